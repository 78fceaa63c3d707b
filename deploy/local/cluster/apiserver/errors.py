"""Refusals in the words of a Kubernetes API server: a Status with code, reason and details."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import msgspec

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
    """A field that is wrong. *reason* is one of Kubernetes' cause types."""

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
        """Return the problem of a field with an invalid value."""
        shown = f'"{value}"' if isinstance(value, str) else _go_value(value)
        return cls(field, "FieldValueInvalid", f"Invalid value: {shown}: {message}")

    @classmethod
    def unsupported(cls, field: str, value: object, allowed: Sequence[str]) -> Self:
        """Return the problem of a value outside an enumeration."""
        choices = ", ".join(f'"{choice}"' for choice in allowed)
        shown = f'"{value}"' if isinstance(value, str) else _go_value(value)
        message = f"Unsupported value: {shown}: supported values: {choices}"
        return cls(field, "FieldValueNotSupported", message)

    @classmethod
    def duplicate(cls, field: str, value: object) -> Self:
        """Return the problem of a duplicate value."""
        return cls(field, "FieldValueDuplicate", f"Duplicate value: {_go_value(value)}")

    @classmethod
    def forbidden(cls, field: str, message: str) -> Self:
        """Return the problem of a field that may not be set or changed."""
        return cls(field, "FieldValueForbidden", f"Forbidden: {message}")


class ApiError(Exception):
    """A request that is refused; `status` is the response for the client.

    An empty *reason* means that there is none: not every refusal of a real server has one. If it
    *is_plain*, the response is its message as plain text.
    """

    def __init__(
        self,
        code: int,
        message: str,
        *,
        reason: str | None = None,
        details: Object | None = None,
        headers: dict[str, str] | None = None,
        continues: str = "",
        is_plain: bool = False,
    ) -> None:
        super().__init__(message)
        self.is_plain = is_plain
        self.code = code
        self.message = message
        self.reason = _REASONS.get(code, "") if reason is None else reason
        self.details = details
        self.headers = headers or {}
        self.continues = continues

    @property
    def status(self) -> Object:
        """The Status object of this refusal."""
        status: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.continues} if self.continues else {},
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        return status


def not_found(kind: Kind, name: str) -> ApiError:
    """Return the 404 of an object that does not exist."""
    return ApiError(404, f'{kind.resource} "{name}" not found', details=_details(kind, name))


def already_exists(
    kind: Kind, name: str, *, going: bool = False, generated: bool = False
) -> ApiError:
    """Return the 409 of a name that exists: its object may be *going*, or it was *generated*."""
    if generated:
        why = ", the server was not able to generate a unique name for the object"
        return _taken(kind, name, after=why, retryAfterSeconds=1)
    if going:
        return _taken(kind, name, before="object is being deleted: ")
    return _taken(kind, name)


def _taken(kind: Kind, name: str, before: str = "", after: str = "", **more: Any) -> ApiError:
    return ApiError(
        409,
        f'{before}{kind.resource} "{name}" already exists{after}',
        reason="AlreadyExists",
        details={**_details(kind, name), **more},
    )


def conflict(kind: Kind, name: str, why: str = "") -> ApiError:
    """Return the 409 of a write that is based on an old revision."""
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
    return _invalid(kind.group, kind.kind, name, problems)


def invalid_options(options: str, problem: Problem) -> ApiError:
    """Return the 422 of an option in a query or body; *options* is the kind of the options."""
    return _invalid("meta.k8s.io", options, "", [problem])


def _invalid(group: str, kind: str, name: str, problems: Sequence[Problem]) -> ApiError:
    shown = list(dict.fromkeys(f"{problem.field}: {problem.message}" for problem in problems))
    text = shown[0] if len(shown) == 1 else f"[{', '.join(shown)}]"
    causes = [
        {"reason": problem.reason, "message": problem.message, "field": problem.field}
        for problem in problems
    ]
    details = {"name": name, "group": group, "kind": kind}
    return ApiError(
        422,
        f'{kind}{"." if group else ""}{group} "{name}" is invalid: {text}',
        details={**{key: value for key, value in details.items() if value}, "causes": causes},
    )


def forbidden(kind: Kind, name: str, why: str) -> ApiError:
    """Return the 403 of a write that a rule of the server forbids."""
    return ApiError(
        403, f'{kind.resource} "{name}" is forbidden: {why}', details=_details(kind, name)
    )


def expired(revision: int, oldest: int) -> ApiError:
    """Return the 410 of a watch from a revision that is no longer kept."""
    return ApiError(410, f"too old resource version: {revision} ({oldest})")


def expired_list(token: str) -> ApiError:
    """Return the 410 of a page whose revision is no longer kept; *token* continues anyway."""
    return ApiError(
        410,
        "The provided continue parameter is too old to display a consistent list result. You can "
        "start a new list without the continue parameter, or use the continue token in this "
        "response to retrieve the remainder of the results. Continuing with the provided token "
        "results in an inconsistent list - objects that were created, modified, or deleted between "
        "the time the first chunk was returned and now may show up in the list.",
        continues=token,
    )


def bad_request(message: str) -> ApiError:
    """Return a 400."""
    return ApiError(400, message)


def _details(kind: Kind, name: str) -> Object:
    details: dict[str, Any] = {"name": name, "kind": kind.plural}
    if kind.group:
        details["group"] = kind.group
    return details


def method_not_allowed() -> ApiError:
    """Return the 405 of a verb that the resource does not support."""
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, message, details={})


def no_such_resource() -> ApiError:
    """Return the 404 of a path that is not a resource's."""
    return ApiError(404, "the server could not find the requested resource", details={})


def _go_value(value: object) -> str:
    if value is None:
        return "null"
    return msgspec.json.encode(value).decode()
