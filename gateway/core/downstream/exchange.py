"""One request and its response, between a browser's connection and an app's.

Bodies go both ways at once: an app may respond before it has read the request, or while it does.
Whatever the app does wrong before the response's head has gone out becomes a 502; after that, both
connections are reset, so that a broken response never looks complete.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from gateway.core.access.decision import is_root
from gateway.core.downstream.end_notice import is_document, unconditional
from gateway.core.downstream.phases import NEXT, TAKES, Event, Phase, Takes, after
from gateway.core.http.framing import CloseDelimitedBody, FramingError, NoBody, request_body
from gateway.core.http.headers import NO_UPSTREAM_HEAD, UpstreamHead
from gateway.core.http.heads import HeadRefused
from gateway.core.http.response_heads import (
    BAD_RESPONSE,
    VARY_SERVICE_WORKER,
    find_response_end,
    response_body,
)
from gateway.core.http.upgrade import accept_value
from gateway.core.http.upgrade_responses import read_upgrade_response

if TYPE_CHECKING:
    from gateway.core.access.refusals import Refusal
    from gateway.core.http.framing import Body
    from gateway.core.http.heads import StartLine
    from gateway.core.http.http_date import HttpDate
    from gateway.core.http.request_reader import RequestReader
    from gateway.core.http.response_heads import ResponseHead, ResponseReader
    from gateway.core.http.upgrade_responses import UpgradeResponse
    from gateway.core.limits.values import Limits

_REPEATABLE: Final = frozenset({b"GET", b"HEAD", b"OPTIONS"})
_BARE_INTERIM: Final = frozenset({100, 102})
_NO_BODY: Final = NoBody()
_AFTER_ADMITTED: Final = after(Event.ADMITTED)
_AFTER_SENT: Final = after(Event.SENT)
_AFTER_RESPONDED: Final = after(Event.RESPONDED)


class Upstream(Protocol):
    """A connection to an app, as far as an exchange needs it."""

    head: ResponseHead | None
    """The last response's: often the next one's too."""
    writable: bool

    def write(self, data: bytes) -> None:
        """Send *data*."""

    def pause_reading(self) -> None:
        """Stop reading responses."""

    def resume_reading(self) -> None:
        """Read responses again."""


class Exchange(ABC):
    """Relays one request after the other; what is done about it, a subclass knows.

    ``upgrade`` is true for the request of a WebSocket, ``head`` is what stands around the request's
    own parts in the head that the app gets. ``responses`` reads the heads of responses, ``date`` is
    for those that have none (RFC 9110, section 6.6.1).
    """

    __slots__ = (
        "date",
        "first",
        "has_waited",
        "head",
        "heard",
        "inbox",
        "interims",
        "limits",
        "notice",
        "partial",
        "phase",
        "reader",
        "request",
        "response",
        "responses",
        "reused",
        "upgrade",
        "uploaded",
        "upstream",
        "upstream_closes",
        "was_continued",
        "write_full",
    )

    def __init__(
        self, reader: RequestReader, responses: ResponseReader, date: HttpDate, limits: Limits
    ) -> None:
        self.reader = reader
        self.responses = responses
        self.date = date
        self.limits = limits
        self.phase = Phase.HEAD
        self.notice: Refusal | None = None
        """Stands in for the response to this request, if that is a document."""
        self.write_full = False
        """Whether more waits for the browser than may: nothing more is begun, nor read."""
        self.inbox = b""
        """What came beyond the request that is under way, or before it can be taken."""
        self.upstream: Upstream | None = None
        self.request: Body = _NO_BODY
        self.response: Body | None = None
        """None until the head of the final response was read."""
        self._begin(NO_UPSTREAM_HEAD, upgrade=False)

    def _begin(self, head: UpstreamHead, *, upgrade: bool) -> None:
        self.head, self.upgrade = head, upgrade
        self.first = self.partial = b""
        self.response = None
        self.interims = self.uploaded = 0
        self.heard = self.reused = self.upstream_closes = False
        self.has_waited = self.was_continued = False

    # What is done about it

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Write to the browser."""

    @abstractmethod
    def regulate(self) -> None:
        """Read from the browser, or not, as the state says."""

    @abstractmethod
    def later(self, go_on: Callable[[], None]) -> None:
        """Call *go_on* in a later turn of the loop."""

    @abstractmethod
    def set_deadline(self, seconds: float) -> None:
        """Have :meth:`deadline_passed` called in so many seconds; 0 for never."""

    @abstractmethod
    def connect(self) -> None:
        """Call :meth:`connected` with a connection to the app, or refuse the request."""

    @abstractmethod
    def release(self, *, reusable: bool) -> None:
        """Give ``upstream`` back to its pool, or close it."""

    @abstractmethod
    def responded(self, status: int) -> None:
        """Count a response whose head is there."""

    @abstractmethod
    def continued(self) -> None:
        """The app asks for the request's body (100)."""

    @abstractmethod
    def move_request(self) -> None:
        """Have the kernel move the rest of a large body, if it can: see :meth:`request_moved`."""

    @abstractmethod
    def move_response(self) -> None:
        """Have the kernel move the rest of a large body, if it can."""

    @abstractmethod
    def stop_moving(self) -> None:
        """Have the kernel move nothing more."""

    @abstractmethod
    def is_moving(self) -> bool:
        """Say whether the kernel moves the response's body, and reads it."""

    @abstractmethod
    def switch(self, beyond: bytes) -> None:
        """Make a tunnel; *beyond* followed the app's 101."""

    @abstractmethod
    def closes_after(self, ends: bool) -> bool:
        """Say whether the connection closes after this response, which *ends* it or not."""

    @abstractmethod
    def complete(self, *, whole: bool) -> None:
        """The response is complete; *whole* says whether the request was, too."""

    @abstractmethod
    def fail(self, why: str | Refusal) -> None:
        """Refuse the request, or reset a response that has begun."""

    # Towards the app

    def admitted(self, head: UpstreamHead, *, upgrade: bool) -> None:
        """Relay the request that was read, with *head* around it."""
        fields = self.reader.fields
        assert fields is not None  # noqa: S101  # admission is asked about a head that was read
        if (
            self.head is NO_UPSTREAM_HEAD
        ):  # the connection's first request: nothing has changed since
            self.head, self.upgrade = head, upgrade
        else:
            self._begin(head, upgrade=upgrade)
        bodiless = not fields.chunked and fields.length <= 0
        # Nothing is ever fed to a body that is done: all share one that is none.
        self.request = _NO_BODY if bodiless else request_body(fields)
        if self.inbox and not bodiless:
            try:
                self._feed_first()
            except FramingError:
                self.fail("bad_request")
                return
        self.phase = _AFTER_ADMITTED[self.phase]
        self.connect()

    def _feed_first(self) -> None:
        """Take what came of the body with its head."""
        inbox, self.inbox = self.inbox, b""
        self.first = self.request.feed(inbox)
        if self.request.done:
            self.inbox, self.request.trailing_data = self.request.trailing_data, b""

    def is_repeatable(self) -> bool:
        """Say whether the request could be sent once more."""
        start = self.reader.start
        return start is not None and self.request is _NO_BODY and start.method in _REPEATABLE

    def connected(self, upstream: Upstream, *, reused: bool) -> None:
        """Send the request on *upstream*, which may have been used before."""
        start, end_to_end = self.reader.start, self.reader.end_to_end
        assert start is not None  # noqa: S101  # it was admitted
        self.upstream, self.reused = upstream, reused
        first, self.first = self.first, b""
        if self.notice is not None:
            end_to_end = unconditional(end_to_end)
        head = self.head
        upstream.write(
            b"".join(
                (
                    start.method,
                    b" ",
                    head.path_prefix,
                    start.target,
                    head.prefix,
                    end_to_end,
                    head.suffix,
                    first,
                )
            )
        )
        if self.request.done:
            self.phase = _AFTER_SENT[self.phase]
            self.set_deadline(self.limits.app_head_seconds)
        else:
            self.phase = NEXT[self.phase, Event.SENDING]
            self.set_deadline(self.limits.slow_body_seconds)
        if self.write_full:
            upstream.pause_reading()
        if not self.request.done:
            self._go_on_uploading()

    def _go_on_uploading(self) -> None:
        if self.request.has_more:
            self.later(self._feed_on)
        elif self.inbox:
            inbox, self.inbox = self.inbox, b""
            self.feed_request(inbox)
        if not self.request.done and not self.request.has_more:
            self.move_request()
        self.regulate()

    def feed_request(self, data: bytes) -> None:
        """Send on what of *data* belongs to the request."""
        self.uploaded += len(data)
        request = self.request
        try:
            piece = request.feed(data)
        except FramingError:
            self.fail("bad_request")
            return
        if piece and self.upstream is not None:
            self.upstream.write(piece)
        if request.done:
            self.inbox, request.trailing_data = request.trailing_data + self.inbox, b""
            self._request_sent()
        elif request.has_more:
            self.later(self._feed_on)
            self.regulate()

    def _feed_on(self) -> None:
        """Go on with a body that took too many steps for one turn."""
        if TAKES[self.phase] is not Takes.BODY or not self.request.has_more:
            return
        self.feed_request(b"")
        self._take_inbox()

    def _take_inbox(self) -> None:
        """Go on with what came while the body's steps were being taken."""
        if TAKES[self.phase] is Takes.BODY and not self.request.has_more:
            inbox, self.inbox = self.inbox, b""
            if inbox:
                self.feed_request(inbox)
            self.regulate()

    def _request_sent(self) -> None:
        self.phase = _AFTER_SENT[self.phase]
        if self.phase is Phase.WAITING:
            self.set_deadline(self.limits.app_head_seconds)
        self.regulate()

    def request_moved(self) -> None:
        """The kernel has moved the last byte of the request's body."""
        self._request_sent()

    # Towards the browser

    def response_received(self, data: bytes) -> None:
        """Take what the app sent."""
        self.heard = True
        head = self.upstream.head if self.upstream is not None else None
        if head is not None and len(data) == head.message_size and self._pass_whole(head, data):
            return
        try:
            if self.response is not None:
                self._pass(self.response.feed(data))
            elif self.partial:
                seen = len(self.partial)
                self._read_head(self.partial + data, seen)
            else:
                self._read_head(data, 0)
        except (HeadRefused, FramingError):
            self.broken()

    def _pass(self, piece: bytes) -> None:
        response = self.response
        if piece:
            self.write(piece)
        if response is None:
            return
        if response.done:
            self.finish_response()
        elif response.has_more:
            if self.upstream is not None:
                self.upstream.pause_reading()
            self.later(self._pass_on)

    def _pass_on(self) -> None:
        """Go on with a body that took too many steps for one turn.

        The app may have left meanwhile: the response is whole when what it sent before makes it
        whole, and cut off otherwise.
        """
        response = self.response
        if not (self.has_begun and self._is_passing_on()):
            return
        self.response_received(b"")
        if self.response is not response or self._is_passing_on():
            return
        if self.upstream is None:
            self.broken()
        elif not self.write_full:
            self.resume_response()

    def _is_passing_on(self) -> bool:
        """Say whether enough of what the app sent waits to be understood."""
        return self.response is not None and self.response.has_more

    def resume_response(self) -> None:
        """Read from the app again, unless enough of what it sent waits to be understood."""
        if self.upstream is not None and not self._is_passing_on():
            self.upstream.resume_reading()

    def _read_head(self, data: bytes, seen: int) -> None:
        upstream = self.upstream
        if upstream is None:
            raise HeadRefused(BAD_RESPONSE)
        if self.upgrade and not seen and self._is_known_switch(data):
            return
        while True:
            head = upstream.head
            if head is None or not data.startswith(head.raw):
                end = find_response_end(data, seen)
                if not end:
                    self.partial = data
                    return
                head = upstream.head = self.responses.read_head(data[:end])
            self.partial, seen = b"", 0
            data = data[len(head.raw) :]
            if head.status >= 200:
                self._final(head, data)
                return
            if head.status == 101:
                self._read_switch(head, data)
                return
            self._interim(head)

    def _pass_whole(self, head: ResponseHead, data: bytes) -> bool:
        """Pass *data* on where it is a whole response that says what the last one said.

        What :meth:`_final` does comes to this where the request was sent, and nothing stands in
        for its response.
        """
        start = self.reader.start
        if (
            self.response is not None
            or self.partial
            or self.notice is not None
            or not self.request.done
            or start is None
            or start.method == b"HEAD"
            or not data.startswith(head.raw)
        ):
            return False
        close = self.closes_after(ends=False)
        self.phase = _AFTER_RESPONDED[self.phase]
        self.responded(head.status)
        self.write(self._response(head, start, head.length_field, data[len(head.raw) :], close))
        self.release(reusable=True)
        self.complete(whole=True)
        return True

    def _interim(self, head: ResponseHead) -> None:
        self.interims += 1
        fields = head.fields
        if fields.chunked or fields.length > 0 or self.interims > self.limits.interim_responses:
            raise HeadRefused(BAD_RESPONSE)
        if head.status == 100:
            self.continued()
        start = self.reader.start
        if start is None or start.minor == 0:
            return
        end_to_end = b"" if head.status in _BARE_INTERIM else fields.end_to_end
        self.write(b"".join((head.status_line, end_to_end, b"\r\n")))

    def _final(self, head: ResponseHead, beyond: bytes) -> None:
        if self.notice is not None and is_document(head):
            self.fail(self.notice)
            return
        start = self.reader.start
        assert start is not None  # noqa: S101  # a request is being relayed
        body, framing = response_body(head, start.method, start.minor)
        piece = body.feed(beyond) if beyond else b""
        if body.trailing_data:
            raise HeadRefused(BAD_RESPONSE)
        fields = head.fields
        self.upstream_closes = fields.close or head.minor == 0
        self.response = body
        ends = not self.request.done or (not framing and not isinstance(body, NoBody))
        close = self.closes_after(ends)
        self.phase = _AFTER_RESPONDED[self.phase]
        self.responded(head.status)
        self._pass(self._response(head, start, framing, piece, close))
        if self.response is body and not body.has_more:
            self.move_response()

    def _response(
        self, head: ResponseHead, start: StartLine, framing: bytes, piece: bytes, close: bool
    ) -> bytes:
        """Return the response to *start* as it is passed on, with a *piece* of its body."""
        fields = head.fields
        return b"".join(
            (
                head.status_line,
                fields.end_to_end,
                b"" if fields.has_date else self.date.field(),
                VARY_SERVICE_WORKER if is_root(start.target) else b"",
                framing,
                b"Connection: close\r\n\r\n" if close else b"\r\n",
                piece,
            )
        )

    def _is_known_switch(self, data: bytes) -> bool:
        """Start a tunnel if *data* begins with a 101 that equals a cached one but for its proof."""
        fields = self.reader.fields
        if fields is None:
            return False
        accept = accept_value(fields.socket_key or b"")
        found = self.responses.upgrade_responses.get(data, fields, accept)
        if found is None:
            return False
        switch, end = found
        self._switch(switch, accept, data[end:])
        return True

    def _read_switch(self, head: ResponseHead, beyond: bytes) -> None:
        fields = self.reader.fields
        if not self.upgrade or fields is None:
            raise HeadRefused(BAD_RESPONSE)
        accept = accept_value(fields.socket_key or b"")
        switch = read_upgrade_response(head, fields, accept)
        if switch is None:
            raise HeadRefused(BAD_RESPONSE)
        self.responses.upgrade_responses.put(head.raw, switch, accept)
        self._switch(switch, accept, beyond)

    def _switch(self, switch: UpgradeResponse, accept: bytes, beyond: bytes) -> None:
        self.responded(101)
        self.write(switch.write(accept, self.date.field()))
        self.switch(beyond)

    def finish_response(self) -> None:
        """The response is whole: keep or close the app's connection, and go on."""
        response, whole = self.response, self.request.done
        if not whole:
            self.stop_moving()  # of the request: of the response nothing is left
        self.response = None
        self.release(
            reusable=whole
            and not self.upstream_closes
            and response is not None
            and not isinstance(response, CloseDelimitedBody)
            and not response.trailing_data
        )
        self.complete(whole=whole)

    # What goes wrong

    def upstream_ended(self) -> None:
        """The app shut its side: that ends a body without a length."""
        if isinstance(self.response, CloseDelimitedBody):
            self.finish_response()

    def upstream_lost(self, error: Exception | None) -> None:
        """The app's connection is closed."""
        self.stop_moving()
        self.upstream = None
        if isinstance(self.response, CloseDelimitedBody) and error is None:
            self.finish_response()
        elif self._is_passing_on():
            pass  # What it sent is still being passed on, and says whether it is whole.
        elif self.reused and not self.heard and self.is_repeatable():
            # Still "reused": another one from the pool could be as stale, and so on.
            self.phase = NEXT[self.phase, Event.STALE]
            self.connect()
        else:
            self.broken()

    def broken(self) -> None:
        """The app's response cannot be relayed."""
        self.fail(BAD_RESPONSE)

    @property
    def has_begun(self) -> bool:
        """Whether the head of a response was written that is not complete."""
        return self.phase in (Phase.BOTH, Phase.RESPONDING)
