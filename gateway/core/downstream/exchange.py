"""One request and its response, between a downstream and an upstream connection.

Both bodies are relayed at the same time: an app may respond before or while it reads the request.
If the app fails before the response head was written, the browser gets a 502. After that both
connections are reset, so that a truncated response never looks complete.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Final

from gateway.core.access.decision import is_root
from gateway.core.access.refusals import Refusal
from gateway.core.downstream.actions import Actions, SplicedBody, Upstream
from gateway.core.downstream.end_notice import app_cookies, is_document, without_conditions
from gateway.core.downstream.phases import NEXT, ON_DATA, Event, OnData, Phase, transitions
from gateway.core.http.framing import Body, FramingError, NoBody, request_body
from gateway.core.http.headers import NO_UPSTREAM_HEAD, UpstreamHead
from gateway.core.http.heads import HeadRefused, StartLine
from gateway.core.http.request_reader import MAX_KEPT_BYTES, NO_REQUEST, RequestReader
from gateway.core.http.response_heads import (
    BAD_RESPONSE,
    VARY_SERVICE_WORKER,
    HttpDate,
    ResponseHead,
    ResponseReader,
    UpgradeResponse,
    find_response_end,
    read_upgrade_response,
    response_body,
)
from gateway.core.http.upgrade import accept_value
from gateway.core.limits.values import Limits

_BARE_INTERIM: Final = frozenset({100, 102})
_NO_BODY: Final = NoBody()
_AFTER_ADMITTED: Final = transitions(Event.ADMITTED)
_AFTER_SENT: Final = transitions(Event.SENT)
_AFTER_RESPONSE_STARTED: Final = transitions(Event.RESPONSE_STARTED)


class Exchange(Actions):
    """Relays one request after the other.

    ``upgrade`` is set for a WebSocket upgrade. ``head`` holds the constant parts of the upstream
    head. ``responses`` parses response heads. ``date`` is added to responses that have none (RFC
    9110, section 6.6.1).
    """

    __slots__ = (
        "date",
        "download",
        "early_body",
        "has_received",
        "has_waited",
        "head",
        "inbox",
        "interim_count",
        "limits",
        "notice",
        "partial",
        "phase",
        "reader",
        "relayed",
        "request_body",
        "response_body",
        "responses",
        "reused",
        "upgrade",
        "upload",
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
        """Replaces the response to this request if that is a document."""
        self.write_full = False
        """Whether the write buffer towards the browser is above its high-water mark: then nothing
        is read."""
        self.inbox = b""
        """Bytes received after the current request, or before they can be processed."""
        self.upstream: Upstream | None = None
        self.relayed = NO_REQUEST
        """The head of the request that is relayed."""
        self.request_body: Body = _NO_BODY
        self.response_body: Body | None = None
        """None until the head of the final response was parsed."""
        self.upload: SplicedBody | None = None
        self.download: SplicedBody | None = None
        """The bodies of the request and of the response, while the kernel moves them."""
        self.head = NO_UPSTREAM_HEAD
        self.upgrade = False
        self._begin()

    def _begin(self) -> None:
        self.early_body = self.partial = b""
        self.response_body = None
        self.interim_count = self.uploaded = 0
        self.has_received = self.reused = self.upstream_closes = False
        self.has_waited = self.was_continued = False

    # What a connection adds

    @abstractmethod
    def sync_reading(self) -> None:
        """Read from the browser or pause, as the state requires."""

    @abstractmethod
    def continue_received(self) -> None:
        """Note that the app asks for the request body (100)."""

    @abstractmethod
    def decide_close(self, ends: bool) -> bool:
        """Return whether the connection closes after this response; *ends* means that it must."""

    @abstractmethod
    def complete(self, *, request_complete: bool) -> None:
        """Note that the response is complete; *request_complete* tells if the request is too."""

    @abstractmethod
    def fail(self, why: str | Refusal) -> None:
        """Refuse the request, or reset a response that has started."""

    @abstractmethod
    def finish_response(self) -> None:
        """Finish a complete response, and continue."""

    @abstractmethod
    def bad_response(self, reason: str = "") -> None:
        """Fail the request: the app's response cannot be relayed, or not to its end."""

    # The request

    def admitted(self, head: UpstreamHead) -> None:
        """Relay the request that was read, with *head* around it."""
        request = self.reader.request
        assert request is not None  # noqa: S101  # a head was read before admission
        self.relayed, fields = request, request.fields
        if self.head is not NO_UPSTREAM_HEAD:  # for the first request, all is as it was made
            self._begin()
        self.head, self.upgrade = head, fields.websocket
        bodiless = not fields.chunked and fields.length <= 0
        # A body that is done is never fed, so all requests without a body share one.
        self.request_body = _NO_BODY if bodiless else request_body(fields)
        if self.inbox and not bodiless:
            try:
                self._feed_early_body()
            except FramingError:
                self.fail("bad_request")
                return
        request.raw = b""
        self.phase = _AFTER_ADMITTED[self.phase]
        self.connect()

    def _feed_early_body(self) -> None:
        """Process the body bytes that arrived with the head."""
        inbox, self.inbox = self.inbox, b""
        self.early_body = self.request_body.feed(inbox)
        if self.request_body.done:
            self.inbox, self.request_body.trailing_data = self.request_body.trailing_data, b""

    def connected(self, upstream: Upstream, *, reused: bool) -> None:
        """Send the request on *upstream*; *reused* says that it comes from the pool."""
        start, end_to_end = self.relayed.start, self.relayed.end_to_end
        self.upstream, self.reused = upstream, reused
        first, self.early_body = self.early_body, b""
        if self.notice is not None:
            end_to_end = without_conditions(end_to_end)
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
        if self.request_body.done:
            self.phase = _AFTER_SENT[self.phase]
            self.set_deadline(self.limits.app_head_seconds)
        else:
            self.phase = NEXT[self.phase, Event.SENDING]
            self.set_deadline(self.limits.slow_body_seconds)
        if self.write_full:
            upstream.pause_reading()
        if not self.request_body.done:
            self._start_upload()

    def _start_upload(self) -> None:
        if self.request_body.has_more:
            self.defer(self._resume_feeding)
        elif self.inbox:
            inbox, self.inbox = self.inbox, b""
            self.feed_request(inbox)
        if not self.request_body.done and not self.request_body.has_more:
            self.splice_request()
        self.sync_reading()

    def feed_request(self, data: bytes) -> None:
        """Forward the bytes of *data* that belong to the request."""
        self.uploaded += len(data)
        request = self.request_body
        try:
            piece = request.feed(data)
        except FramingError:
            self.fail("bad_request")
            return
        if piece and self.upstream is not None:
            self.upstream.write(piece)
        if request.done:
            self.inbox, request.trailing_data = request.trailing_data + self.inbox, b""
            self.request_sent()
        elif request.has_more:
            self.defer(self._resume_feeding)
            self.sync_reading()

    def _resume_feeding(self) -> None:
        """Continue with a body that needed too many steps for one turn."""
        if ON_DATA[self.phase] is not OnData.FORWARD or not self.request_body.has_more:
            return
        self.feed_request(b"")
        self._feed_inbox()

    def _feed_inbox(self) -> None:
        """Process the bytes that arrived meanwhile."""
        if ON_DATA[self.phase] is OnData.FORWARD and not self.request_body.has_more:
            inbox, self.inbox = self.inbox, b""
            if inbox:
                self.feed_request(inbox)
            self.sync_reading()

    def request_sent(self) -> None:
        """Await the response: the last byte of the request was sent, or moved by the kernel."""
        self.phase = _AFTER_SENT[self.phase]
        if self.phase is Phase.WAITING:
            self.set_deadline(self.limits.app_head_seconds)
        self.sync_reading()

    # The response

    def response_received(self, data: bytes) -> None:
        """Process bytes from the app."""
        self.has_received = True
        head = self.upstream.head if self.upstream is not None else None
        if (
            head is not None
            and len(data) == head.message_size
            and self._forward_complete(head, data)
        ):
            return
        try:
            if self.response_body is not None:
                self._forward(self.response_body.feed(data))
            elif self.partial:
                seen = len(self.partial)
                self._read_head(self.partial + data, seen)
            else:
                self._read_head(data, 0)
        except HeadRefused as refused:
            self.bad_response(refused.reason)
        except FramingError as error:
            self.bad_response(str(error))

    def _forward(self, piece: bytes) -> None:
        response = self.response_body
        if piece:
            self.write(piece)
        if response is None:
            return
        if response.done:
            self.finish_response()
        elif response.has_more:
            if self.upstream is not None:
                self.upstream.pause_reading()
            self.defer(self._resume_forwarding)

    def _resume_forwarding(self) -> None:
        """Continue with a body that needed too many steps for one turn.

        The app may have closed its connection meanwhile. The response is then complete only if the
        bytes received before complete it; otherwise it is cut off.
        """
        response = self.response_body
        if not (self.has_begun and self.has_unread_response()):
            return
        self.response_received(b"")
        if self.response_body is not response or self.has_unread_response():
            return
        if self.upstream is None:
            self.bad_response()
        elif not self.write_full:
            self.resume_response()

    def has_unread_response(self) -> bool:
        """Return whether received response bytes wait to be processed."""
        return self.response_body is not None and self.response_body.has_more

    def resume_response(self) -> None:
        """Read from the app again, unless the kernel does, or received bytes wait."""
        if self.download is not None or self.has_unread_response():
            return
        if self.upstream is not None:
            self.upstream.resume_reading()

    def _read_head(self, data: bytes, seen: int) -> None:
        upstream = self.upstream
        if upstream is None:
            raise HeadRefused(BAD_RESPONSE)
        if self.upgrade and not seen and self._start_known_tunnel(data):
            return
        while True:
            head = upstream.head
            if head is None or not data.startswith(head.raw):
                end = find_response_end(data, seen)
                if not end:
                    self.partial = data
                    return
                head = self.responses.read_head(data[:end])
                # Of a longer head, an idle connection would keep some 130 KiB.
                upstream.head = head if end <= MAX_KEPT_BYTES else None
            self.partial, seen = b"", 0
            data = data[len(head.raw) :]
            if head.status >= 200:
                self._read_final(head, data)
                return
            if head.status == 101:
                self._read_upgrade(head, data)
                return
            self._forward_interim(head)

    def _forward_complete(self, head: ResponseHead, data: bytes) -> bool:
        """Forward *data* if it is a complete response with the same head as the last one.

        This is a shortcut for :meth:`_read_final`, taken only if the whole request was sent and no
        notice replaces the response.
        """
        start = self.relayed.start
        if (
            self.response_body is not None
            or self.partial
            or self.notice is not None
            or not self.request_body.done
            or start.method == b"HEAD"
            or not data.startswith(head.raw)
        ):
            return False
        close = self.decide_close(ends=False)
        self.phase = _AFTER_RESPONSE_STARTED[self.phase]
        self.response_started(head.status)
        self.write(self._response(head, start, head.length_field, data[len(head.raw) :], close))
        self.release(reusable=True)
        self.complete(request_complete=True)
        return True

    def _forward_interim(self, head: ResponseHead) -> None:
        self.interim_count += 1
        fields = head.fields
        if (
            fields.chunked
            or fields.length > 0
            or self.interim_count > self.limits.interim_responses
        ):
            raise HeadRefused(
                BAD_RESPONSE, "an interim response (1xx) has content or is one too many"
            )
        if head.status == 100:
            self.continue_received()
        if self.relayed.start.minor == 0:
            return
        end_to_end = b"" if head.status in _BARE_INTERIM else fields.end_to_end
        self.write(b"".join((head.status_line, end_to_end, b"\r\n")))

    def _read_final(self, head: ResponseHead, trailing: bytes) -> None:
        if self.notice is not None and is_document(head):
            cookies = app_cookies(self.public_fields(head.fields))
            self.fail(replace(self.notice, app_cookies=cookies))
            return
        start = self.relayed.start
        body, framing = response_body(head, start.method, start.minor)
        piece = body.feed(trailing) if trailing else b""
        if body.trailing_data:
            raise HeadRefused(BAD_RESPONSE, "the response is longer than its head says")
        fields = head.fields
        self.upstream_closes = fields.close or head.minor == 0
        self.response_body = body
        ends = not self.request_body.done or (not framing and not isinstance(body, NoBody))
        close = self.decide_close(ends)
        self.phase = _AFTER_RESPONSE_STARTED[self.phase]
        self.response_started(head.status)
        self._forward(self._response(head, start, framing, piece, close))
        if self.response_body is body and not body.has_more:
            self.splice_response()

    def _response(
        self, head: ResponseHead, start: StartLine, framing: bytes, piece: bytes, close: bool
    ) -> bytes:
        """Return the response to *start* as it is forwarded, with a *piece* of its body."""
        fields = head.fields
        return b"".join(
            (
                head.status_line,
                self.public_fields(fields) if fields.adapts else fields.end_to_end,
                b"" if fields.has_date else self.date.field(),
                VARY_SERVICE_WORKER if is_root(start.target) else b"",
                framing,
                b"Connection: close\r\n\r\n" if close else b"\r\n",
                piece,
            )
        )

    def _start_known_tunnel(self, data: bytes) -> bool:
        """Start a tunnel if *data* begins with a cached 101, apart from its accept value."""
        fields = self.relayed.fields
        accept = accept_value(fields.socket_key or b"")
        found = self.responses.upgrade_responses.get(data, fields, accept)
        if found is None:
            return False
        switch, end = found
        self._send_upgrade_response(switch, accept, data[end:])
        return True

    def _read_upgrade(self, head: ResponseHead, trailing: bytes) -> None:
        if not self.upgrade:
            raise HeadRefused(BAD_RESPONSE, "the response is a 101 that was not requested")
        fields = self.relayed.fields
        accept = accept_value(fields.socket_key or b"")
        switch = read_upgrade_response(head, fields, accept)
        self.responses.upgrade_responses.put(head.raw, switch, accept)
        self._send_upgrade_response(switch, accept, trailing)

    def _send_upgrade_response(
        self, switch: UpgradeResponse, accept: bytes, trailing: bytes
    ) -> None:
        self.response_started(101)
        fields = switch.fields
        end_to_end = self.public_fields(fields) if fields.adapts else fields.end_to_end
        self.write(switch.write(end_to_end, accept, self.date.field()))
        self.start_tunnel(trailing)

    @property
    def has_begun(self) -> bool:
        """Whether the head of a response was written that is not complete."""
        return self.phase in (Phase.EARLY_RESPONSE, Phase.RESPONDING)
