"""What a call to Kubernetes may raise.

KubeError
├── NotFound        404: the object, or its namespace, is not there
│   └── NotServed   404: the server has no such kind, now; of its objects that says nothing
├── AlreadyExists   409: an object of this name is there
├── Conflict        409: it changed since it was read, or is not the one that was meant
├── Invalid         400, 422: what was sent is wrong; an admission webhook's refusal too
├── Forbidden       401, 403: these credentials may not
├── Expired         410: the resourceVersion or continue token is too old
├── Throttled       429: later, after ``retry_after_seconds``
└── Unavailable     5xx, timeouts, lost connections: whether it was done is not known
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from controller.plain import plain_text
from shared.numbers import whole_number

LONGEST_ASKED_SECONDS: Final = 120.0
"""A server that asks for more is asked sooner: nobody would look at its jobs for hours."""
_LONGEST: Final = 1 << 16
"""Of a message: webhooks are anybody's, and say as much as they like, also what is no text."""


class KubeError(Exception):
    """A call that failed.

    ``reason`` is the Status' (Kubernetes API conventions, "Response Status Kind"), ``details`` its
    details; ``retry_after_seconds`` is what the server asked for, if it did.
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
    """The object, or its namespace, is not there."""


class NotServed(NotFound):
    """The server does not serve such objects now: whether this one is there is not known.

    So it is while a kind's definition is changed (``served: false``) or made anew.
    """


class AlreadyExists(KubeError):
    """An object of this name is there."""


class Conflict(KubeError):
    """The object changed since it was read, or is not the one that was meant."""


class Invalid(KubeError):
    """What was sent is wrong, or an admission webhook refused it."""


class Forbidden(KubeError):
    """These credentials may not do this."""


class Expired(KubeError):
    """The resourceVersion or continue token is too old."""


class Throttled(KubeError):
    """The server has too much to do."""


class Unavailable(KubeError):
    """The server failed or did not answer; whether it was done is not known."""


_NOT_SERVED: Final = (
    "404 page not found",
    "the server could not find the requested resource",
)
"""What an API server says of a group or a kind that it does not serve."""

_BY_STATUS: Mapping[int, type[KubeError]] = {
    400: Invalid,
    401: Forbidden,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    422: Invalid,
    429: Throttled,
}


def error_from(status: int, body: Mapping[str, Any], retry_after: str | None = None) -> KubeError:
    """Return the error that an answer stands for: its HTTP status and its body, a Status."""
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
        retry_after_seconds=_seconds(retry_after, details),
    )


def _seconds(header: str | None, details: object) -> float | None:
    if header is not None and (seconds := whole_number(header)) is not None:
        return min(float(seconds), LONGEST_ASKED_SECONDS)
    asked = details.get("retryAfterSeconds") if isinstance(details, Mapping) else None
    return (
        min(float(asked), LONGEST_ASKED_SECONDS) if isinstance(asked, int) and asked > 0 else None
    )
