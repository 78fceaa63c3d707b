"""The errors of calls to Kubernetes.

KubeError
├── NotFound        404: the object or its namespace does not exist
├── NotServed       404: the server does not serve the kind now; its objects may exist
├── AlreadyExists   409: an object of this name exists
├── Conflict        409: the object changed since it was read, or has another UID
├── Invalid         400, 422: the request is invalid, or an admission webhook refused it
├── Unauthorized    401: the credentials are not accepted now; says nothing about the object
├── Forbidden       403: the credentials lack the permission
├── Expired         410: the resourceVersion or continue token is too old
├── Throttled       429: try again after ``retry_after_seconds``
└── Unavailable     5xx, timeouts, lost connections: the outcome is not known
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from shared.text import plain_text

LONGEST_ASKED_SECONDS: Final = 120.0
"""The longest ``Retry-After`` that is obeyed: jobs must not wait for hours."""
_LONGEST: Final = 1 << 16
"""The longest message that is kept: webhooks may return any text of any length."""


class KubeError(Exception):
    """A call that failed.

    ``reason`` and ``details`` are those of the Status (Kubernetes API conventions, "Response
    Status Kind"); ``retry_after_seconds`` is the server's ``Retry-After``, if it sent one.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        details: Mapping[str, Any] | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason
        self.details = details or {}
        self.retry_after_seconds = retry_after_seconds


class NotFound(KubeError):
    """The object or its namespace does not exist."""


class NotServed(KubeError):
    """The server does not serve the kind now, so that its objects may or may not exist.

    It is no NotFound, so that nobody takes it for the evidence that an object is gone. This happens
    while the definition of a kind is changed (``served: false``) or recreated.
    """


class AlreadyExists(KubeError):
    """An object of this name exists."""


class Conflict(KubeError):
    """The object changed since it was read, or has another UID than expected."""


class Invalid(KubeError):
    """The request is invalid, or an admission webhook refused it."""


class Unauthorized(KubeError):
    """The server does not accept the credentials now, and did not execute the call.

    An API server also answers so while it cannot check them: after its start, and while it cannot
    read ServiceAccounts. So the answer says nothing about permissions or objects.
    """


class Forbidden(KubeError):
    """The credentials lack the permission."""


class Expired(KubeError):
    """The resourceVersion or continue token is too old."""


class Throttled(KubeError):
    """The server is overloaded."""


class Unavailable(KubeError):
    """The server failed or did not respond; the outcome is not known."""


_NOT_SERVED: Final = (
    "404 page not found",
    "the server could not find the requested resource",
)
"""The messages of an API server for a group or kind that it does not serve."""

_BY_STATUS: Mapping[int, type[KubeError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    422: Invalid,
    429: Throttled,
}


def error_from(
    status: int, body: Mapping[str, Any], retry_after_seconds: float | None = None
) -> KubeError:
    """Return the error for a response with this HTTP status and this body, a Status."""
    reason = str(body.get("reason") or "")
    kind = _BY_STATUS.get(status, Unavailable if status >= 500 else KubeError)
    if reason == "AlreadyExists":
        kind = AlreadyExists
    elif reason in ("Expired", "Gone"):
        kind = Expired
    elif kind is NotFound and body.get("message") in _NOT_SERVED:
        kind = NotServed
    details = body.get("details")
    return kind(
        plain_text(body.get("message"), _LONGEST) or f"the API server answered {status}",
        status=status,
        reason=reason,
        details=details if isinstance(details, Mapping) else None,
        retry_after_seconds=_asked(retry_after_seconds, details),
    )


def _asked(header: float | None, details: object) -> float | None:
    if header is not None:
        return min(header, LONGEST_ASKED_SECONDS)
    seconds = details.get("retryAfterSeconds") if isinstance(details, Mapping) else None
    return (
        min(float(seconds), LONGEST_ASKED_SECONDS)
        if isinstance(seconds, int) and seconds > 0
        else None
    )
