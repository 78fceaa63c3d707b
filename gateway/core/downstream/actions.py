"""What a downstream connection's state machine asks its owner to do: I/O, timers, admission.

:mod:`gateway.relay.http.downstream` performs these actions on transports; tests record them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

from gateway.core.access.refusals import Refusal
from gateway.core.http.request_reader import RequestHead
from gateway.core.http.response_heads import ResponseFields, ResponseHead


class Upstream(Protocol):
    """An upstream connection, as far as the state machine needs it."""

    head: ResponseHead | None
    """The last response's head; often equal to the next one's."""
    writable: bool

    def write(self, data: bytes) -> None:
        """Send *data*."""

    def pause_reading(self) -> None:
        """Stop reading responses."""

    def resume_reading(self) -> None:
        """Read responses again."""


class SplicedBody(Protocol):
    """A large body that the kernel moves, as far as the state machine needs it."""

    @property
    def blocked(self) -> bool:
        """Whether the sink is waited for."""

    def sink_drained(self) -> None:
        """Start moving: the sink's transport has written everything."""

    def stop(self) -> None:
        """Stop moving; bytes in the pipe are lost."""


class Actions(ABC):
    """The actions of a downstream connection, in the order of a request's life."""

    __slots__ = ()

    # Admission

    @abstractmethod
    def decide(self, request: RequestHead) -> None:
        """Have *request* decided: it is admitted, refused, or handed over."""

    @abstractmethod
    def abandon(self) -> None:
        """Close the upstream connection and cancel a pending decision or dial."""

    # The downstream connection

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Write to the browser."""

    @abstractmethod
    def set_reading(self, reading: bool) -> None:
        """Read from the browser, or pause; ``hung_up`` reports a browser that leaves meanwhile."""

    @abstractmethod
    def defer(self, call: Callable[[], None]) -> None:
        """Call *call* in a later turn of the loop."""

    @abstractmethod
    def set_deadline(self, seconds: float) -> None:
        """Have ``deadline_passed`` called in that many seconds; 0 cancels the deadline."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection once everything is written."""

    @abstractmethod
    def linger(self) -> None:
        """Shut down our side once everything is written, discard input, and close soon."""

    @abstractmethod
    def reset_when_flushed(self) -> None:
        """Reset once the browser has received what was written; discard input until then."""

    @abstractmethod
    def reset(self) -> None:
        """Reset the connection at once."""

    # The upstream connection

    @abstractmethod
    def connect(self) -> None:
        """Call ``connected`` with an upstream connection, or refuse the request."""

    @abstractmethod
    def release(self, *, reusable: bool) -> None:
        """Return the upstream connection to its pool, or close it."""

    @abstractmethod
    def start_tunnel(self, trailing: bytes) -> None:
        """Make a tunnel; *trailing* followed the app's 101."""

    # Large bodies, which the kernel can splice

    @abstractmethod
    def splice_request(self) -> None:
        """Let the kernel move the rest of a large request body, if possible."""

    @abstractmethod
    def splice_response(self) -> None:
        """Let the kernel move the rest of a large response body, if possible."""

    # Refusals and counters

    @abstractmethod
    def rate_limited(self, refusal: Refusal) -> Refusal:
        """Return *refusal*, or a 429 if the client has drawn too many refusals."""

    @abstractmethod
    def refusal_bytes(
        self,
        refusal: Refusal,
        request: RequestHead | None,
        *,
        close: bool,
        head_only: bool,
    ) -> bytes:
        """Return the response with *refusal*, and count it; None is an unreadable request.

        With *head_only* it has no content: the method is HEAD.
        """

    @abstractmethod
    def response_started(self, status: int) -> None:
        """Count a response whose head was received."""

    @abstractmethod
    def public_fields(self, fields: ResponseFields) -> bytes:
        """Return the end-to-end fields of a response as the browser must see them."""

    @abstractmethod
    def upstream_timed_out(self) -> str | Refusal:
        """Count an upstream timeout; return the refusal, or its code."""

    @abstractmethod
    def app_failure(self, code: str, reason: str = "") -> Refusal:
        """Return the refusal for the failure *code* of the app; *reason* is for its developer."""
