"""Refusals as a Kubernetes API server words them: a Status with code, reason and details."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from deploy.local.cluster.apiserver.kinds import Kind, Object

_REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    504: "Timeout",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One field that is wrong. *reason* is one of Kubernetes' cause types."""

    field: str
    reason: str
    message: str

    @classmethod
    def required(cls, field: str, message: str = "") -> Self:
        """Return the problem of a field that is missing."""
        detail = f": {message}" if message else ""
        return cls(field, "FieldValueRequired", f"Required value{detail}")

    @classmethod
    def invalid(cls, field: str, value: object, message: str) -> Self:
        """Return the problem of a field whose value cannot be."""
        shown = f'"{value}"' if isinstance(value, str) else _go_value(value)
        return cls(field, "FieldValueInvalid", f"Invalid value: {shown}: {message}")

    @classmethod
    def unsupported(cls, field: str, value: object, allowed: Sequence[str]) -> Self:
        """Return the problem of a value outside an enumeration."""
        choices = ", ".join(f'"{choice}"' for choice in allowed)
        return cls(
            field, "FieldValueNotSupported", f'Unsupported value: "{value}": supported: {choices}'
        )

    @classmethod
    def forbidden(cls, field: str, message: str) -> Self:
        """Return the problem of a field that may not be set or changed."""
        return cls(field, "FieldValueForbidden", f"Forbidden: {message}")


class ApiError(Exception):
    """A request that is refused; `status` is what the client gets."""

    def __init__(
        self,
        code: int,
        message: str,
        *,
        reason: str | None = None,
        details: Object | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.reason = reason or _REASONS.get(code, "")
        self.details = details
        self.headers = headers or {}

    @property
    def status(self) -> Object:
        """The Status object of this refusal."""
        status: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        if self.details:
            status["details"] = self.details
        return status


def not_found(kind: Kind, name: str) -> ApiError:
    """Return the 404 of an object that does not exist."""
    return ApiError(404, f'{kind.resource} "{name}" not found', details=_details(kind, name))


def already_exists(kind: Kind, name: str) -> ApiError:
    """Return the 409 of a name that is taken."""
    return ApiError(
        409,
        f'{kind.resource} "{name}" already exists',
        reason="AlreadyExists",
        details=_details(kind, name),
    )


def conflict(kind: Kind, name: str, why: str = "") -> ApiError:
    """Return the 409 of a write that is based on what is no longer so."""
    why = why or (
        "the object has been modified; please apply your changes to the latest version and "
        "try again"
    )
    return ApiError(
        409,
        f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}',
        details=_details(kind, name),
    )


def invalid(kind: Kind, name: str, problems: Sequence[Problem]) -> ApiError:
    """Return the 422 that names every field in *problems*."""
    shown = [f"{problem.field}: {problem.message}" for problem in problems]
    text = shown[0] if len(shown) == 1 else f"[{', '.join(shown)}]"
    qualified = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    causes = [
        {"reason": problem.reason, "message": problem.message, "field": problem.field}
        for problem in problems
    ]
    return ApiError(
        422,
        f'{qualified} "{name}" is invalid: {text}',
        details={"name": name, "group": kind.group, "kind": kind.kind, "causes": causes},
    )


def forbidden(kind: Kind, name: str, why: str) -> ApiError:
    """Return the 403 of a write that a rule of the server stands against."""
    return ApiError(
        403, f'{kind.resource} "{name}" is forbidden: {why}', details=_details(kind, name)
    )


def expired(revision: int, oldest: int) -> ApiError:
    """Return the 410 of a watch from a revision that is no longer kept."""
    return ApiError(410, f"too old resource version: {revision} ({oldest})")


def expired_list() -> ApiError:
    """Return the 410 of a list's page whose revision is no longer kept."""
    return ApiError(410, "The provided continue parameter is too old to display a consistent list.")


def bad_request(message: str) -> ApiError:
    """Return a 400."""
    return ApiError(400, message)


def _details(kind: Kind, name: str) -> Object:
    details: dict[str, Any] = {"name": name, "kind": kind.plural}
    if kind.group:
        details["group"] = kind.group
    return details


def _go_value(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (int, float)) else type(value).__name__
