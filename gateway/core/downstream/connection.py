"""One downstream connection: it reads a head, relays or refuses the request, and continues."""

from __future__ import annotations

from typing import Final, assert_never

from gateway.core.access.refusals import REFUSALS, Refusal
from gateway.core.downstream.exchange import Exchange
from gateway.core.downstream.phases import (
    NEXT,
    ON_DATA,
    ON_DEADLINE,
    ON_FIN,
    Event,
    OnData,
    OnDeadline,
    OnFin,
    Phase,
    transitions,
)
from gateway.core.http.framing import ChunkedBody, CloseDelimitedBody, LengthBody, NoBody
from gateway.core.http.headers import UpstreamHead
from gateway.core.http.heads import HeadRefused
from gateway.core.http.request_reader import NO_REQUEST, RequestReader
from gateway.core.http.response_heads import (
    BAD_RESPONSE,
    HttpDate,
    ResponseReader,
    foreign_protocol,
)
from gateway.core.limits.values import Limits

_AFTER_HEAD_READ: Final = transitions(Event.HEAD_READ)
_AFTER_COMPLETED: Final = transitions(Event.COMPLETED)
_HEADS: Final = OnData.PARSE_HEAD
_REPEATABLE: Final = frozenset({b"GET", b"HEAD", b"OPTIONS"})
_RELEASED_HEAD: Final = UpstreamHead(b"", b"", b"")
"""In place of a large head, while the connection is idle."""


class Connection(Exchange):
    """A downstream connection's requests, one at a time; the next one starts in a later turn.

    ``reading`` is the read side: whether the browser is read. ``close_after`` is set if the current
    response is the connection's last one. ``draining`` is set if the response to the current or the
    next request is the last one.
    """

    __slots__ = ("close_after", "draining", "reading", "resuming")

    def __init__(
        self, reader: RequestReader, responses: ResponseReader, date: HttpDate, limits: Limits
    ) -> None:
        super().__init__(reader, responses, date, limits)
        self.reading = True
        self.resuming = False
        self.close_after = False
        self.draining = False

    # Events of the transport

    def receive(self, data: bytes) -> None:
        """Process received bytes as the phase requires."""
        on_data = ON_DATA[self.phase]
        if on_data is _HEADS and not self.inbox and not self.write_full:
            self._read_request(data)
        elif on_data is OnData.FORWARD and not self.inbox and not self.request_body.has_more:
            self.feed_request(data)
        elif on_data is not OnData.DISCARD:
            self.inbox += data
            self.sync_reading()

    def downstream_ended(self) -> None:
        """Note that the browser has sent a FIN, and so has left."""
        self._leave(unread=False)

    def hung_up(self) -> None:
        """Note that the browser has left while reading was paused."""
        self._leave(unread=True)

    def _leave(self, *, unread: bool) -> None:
        phase = self.phase
        self.inbox = b""
        if phase is not Phase.HEAD and ON_FIN[phase] is OnFin.FLUSH:
            return
        begun = self.has_begun
        self.abandon()
        self.phase = NEXT[phase, Event.ENDED]
        self.set_deadline(0.0)
        if begun:
            # A truncated response must not look complete to a client that still reads.
            self.reset()
        elif unread:
            # If bytes are unread, closing makes the kernel send a reset and drop unsent data.
            self.linger()
        else:
            self.close()

    def lost(self) -> None:
        """Note that the connection is closed."""
        self.phase = NEXT[self.phase, Event.LOST]
        self.inbox = b""
        self.abandon()

    def set_write_full(self, full: bool) -> None:
        """Note whether the write buffer towards the browser is above its high-water mark."""
        self.write_full = full
        if full:
            if self.upstream is not None:
                self.upstream.pause_reading()
        else:
            self.resume_response()
            self._schedule_next_head()
        self.sync_reading()
        if not full and self.download is not None:
            self.download.sink_drained()

    def sync_reading(self) -> None:
        """Read from the browser unless the kernel does, or earlier bytes must go first."""
        if self.upload is not None:
            if self.upstream is not None and self.upstream.writable:
                self.upload.sink_drained()
            return
        on_data = ON_DATA[self.phase]
        if on_data is OnData.FORWARD:
            upstream = self.upstream
            reading = upstream is not None and upstream.writable and not self.request_body.has_more
        elif on_data is OnData.PARSE_HEAD:
            reading = not self.write_full
        else:
            reading = on_data is OnData.DISCARD or self.request_body.done
        if len(self.inbox) >= self.limits.early_bytes:
            reading = False
        if reading is not self.reading:
            self.reading = reading
            self.set_reading(reading)

    # Heads

    def _read_request(self, data: bytes) -> None:
        reader = self.reader
        begun = reader.partial
        try:
            trailing = reader.read(data)
        except HeadRefused as refused:
            self.refuse(refused.code, malformed=True)
            return
        if trailing is None:
            if not begun:
                self.set_deadline(self.limits.head_seconds)
            return
        self.phase = _AFTER_HEAD_READ[self.phase]
        self.inbox = trailing
        if reader.request is not None:
            self.decide(reader.request)
            if trailing:
                self.sync_reading()

    def _schedule_next_head(self) -> None:
        """Parse the next head in a later turn, if its bytes have arrived."""
        if self.inbox and self.phase is Phase.HEAD and not self.write_full and not self.resuming:
            self.resuming = True
            self.defer(self._resume)

    def _resume(self) -> None:
        self.resuming = False
        if self.phase is not Phase.HEAD or self.write_full:
            return
        data, self.inbox = self.inbox, b""
        if data:
            self._read_request(data)
        self.sync_reading()

    # Bodies that the kernel moves

    def stop_splicing(self) -> None:
        """Stop the kernel from moving any body."""
        upload, self.upload = self.upload, None
        if upload is not None:
            upload.stop()
        download, self.download = self.download, None
        if download is not None:
            download.stop()

    # Responses

    def decide_close(self, ends: bool) -> bool:
        """Return whether the connection closes after this response; *ends* means that it must."""
        request = self.reader.request
        self.close_after = (
            ends
            or self.draining
            or request is None
            or request.start.minor == 0
            or request.fields.close
        )
        return self.close_after

    def finish_response(self) -> None:
        """Finish a complete response: pool or close the upstream connection, and continue."""
        response, complete = self.response_body, self.request_body.done
        if not complete:
            self.stop_splicing()  # of the request; the response is complete
        self.response_body = None
        self.release(
            reusable=complete
            and not self.upstream_closes
            and response is not None
            and not isinstance(response, CloseDelimitedBody)
            and not response.trailing_data
        )
        self.complete(request_complete=complete)

    def complete(self, *, request_complete: bool) -> None:
        """Continue with the next request, or close."""
        if self.close_after or self.draining:
            self.phase = NEXT[self.phase, Event.ENDED]
            if request_complete and not self.inbox and not self.write_full:
                self.close()
            else:
                self.inbox = b""
                self.linger()
            return
        self.phase = _AFTER_COMPLETED[self.phase]
        self._await_next_head()

    def _await_next_head(self) -> None:
        self.reader.release()
        self.relayed = NO_REQUEST
        if self.reader.section is None:
            self.head = _RELEASED_HEAD
        self.set_deadline(self.limits.idle_seconds)
        if self.inbox:
            self._schedule_next_head()
            self.sync_reading()
        elif not self.reading:
            self.sync_reading()

    # Failures

    def upstream_ended(self) -> None:
        """Note that the app has sent a FIN, which ends a close-delimited body."""
        if isinstance(self.response_body, CloseDelimitedBody):
            self.finish_response()

    def upstream_lost(self, error: Exception | None) -> None:
        """Note that the upstream connection is closed."""
        self.stop_splicing()
        self.upstream = None
        if isinstance(self.response_body, CloseDelimitedBody) and error is None:
            self.finish_response()
        elif self.has_unread_response():
            pass  # Received bytes are still being forwarded, and decide whether it is complete.
        elif self.reused and not self.has_received and self.is_repeatable():
            # Still "reused": another pooled connection could be stale as well.
            self.phase = NEXT[self.phase, Event.STALE]
            self.connect()
        elif self.response_body is not None:
            self.bad_response()
        elif self.partial:
            self.bad_response(
                foreign_protocol(self.partial) or "the response ended within its head"
            )
        else:
            self.bad_response("the app closed the connection without a response")

    def bad_response(self, reason: str = "") -> None:
        """Fail the request: the app's response cannot be relayed, or not to its end."""
        if self.has_begun:
            self.cut_off()
        else:
            self.fail(self.app_failure(BAD_RESPONSE, reason))

    def is_repeatable(self) -> bool:
        """Return whether the request may be sent a second time."""
        bodiless = isinstance(self.request_body, NoBody)
        return bodiless and self.relayed.start.method in _REPEATABLE

    def fail(self, why: str | Refusal) -> None:
        """Refuse the request, or reset a response that has started."""
        if self.has_begun:
            self.abandon()
            self.response_body = None
            self.reset()
        else:
            self.refuse(why)

    def cut_off(self) -> None:
        """Reset a response that has started, once the browser has what came of it.

        A FIN could make it look complete. A reset at once would discard what a slow reader has not
        received: megabytes, or the last lines of a log.
        """
        self.abandon()
        self.response_body = None
        self.phase = NEXT[self.phase, Event.ENDED]
        self.inbox = b""
        self.reset_when_flushed()

    def refuse(self, why: str | Refusal, *, malformed: bool = False) -> None:
        """Respond with a refusal; the connection persists if the request was read completely.

        Args:
            why: The refusal or its code.
            malformed: The head could not be read, so nothing in it is trusted.
        """
        self.abandon()
        if ON_DATA[self.phase] is OnData.DISCARD:
            return
        refusal = self.rate_limited(REFUSALS[why] if isinstance(why, str) else why)
        keeps = (
            not malformed
            and not refusal.closes
            and refusal.status != 400
            and self._is_bodiless()
            and not self.decide_close(ends=False)
        )
        reader = self.reader
        request = None if malformed else reader.request
        head_only = request.start.method == b"HEAD" if request else reader.asks_for_head
        self.write(self.refusal_bytes(refusal, request, close=not keeps, head_only=head_only))
        if keeps:
            self.phase = _AFTER_COMPLETED[self.phase]
            self._await_next_head()
        else:
            self.phase = NEXT[self.phase, Event.ENDED]
            self.inbox = b""
            self.linger()

    def _is_bodiless(self) -> bool:
        request = self.reader.request
        if request is None:
            return False
        fields = request.fields
        return not fields.chunked and fields.length <= 0

    # End

    def access_ended(self, code: str) -> None:
        """End the current request: its access right has ended."""
        if self.has_request:
            self.fail(code)

    @property
    def has_request(self) -> bool:
        """Whether a request is under way, with its access right."""
        return ON_FIN[self.phase] is OnFin.ABORT

    def close_after_response(self) -> None:
        """Close after the response to the current or the next request."""
        self.draining = True

    def drain(self) -> None:
        """Close now if no request is in progress; otherwise after its response."""
        self.draining = True
        if self.phase is Phase.HEAD and not self.reader.partial and not self.inbox:
            self.close()

    def deadline_passed(self) -> None:
        """Act on the deadline, which has passed."""
        match ON_DEADLINE[self.phase]:
            case OnDeadline.NONE:
                pass
            case OnDeadline.CLOSE if self.reader.partial:
                self.refuse("head_timeout", malformed=True)
            case OnDeadline.CLOSE if self.write_full or self.resuming:
                # An earlier response is still being read, or received bytes are parsed next. A
                # stall has a deadline of its own.
                self.set_deadline(self.limits.idle_seconds)
            case OnDeadline.CLOSE:
                self.close()
            case OnDeadline.CHECK_UPLOAD:
                self._check_upload()
            case OnDeadline.TIME_OUT:
                self.upstream_stalled()
            case _ as never:
                assert_never(never)

    def _check_upload(self) -> None:
        """Extend the deadline of an upload that was fast enough since the last check.

        Once the response has started, the app has what it needs, and both sides may take their
        time.
        """
        limits = self.limits
        came, self.uploaded = self.uploaded, 0
        enough = limits.slow_body_bytes_per_second * limits.slow_body_seconds
        if self.phase is Phase.EARLY_RESPONSE or came >= enough:
            self.set_deadline(limits.slow_body_seconds)
        elif not self.is_upstream_writable():
            # The app does not read; an app that stalls has a deadline of its own.
            self.set_deadline(limits.slow_body_seconds)
        elif self._waits_for_continue():
            # Only once: the wait for a 100 ends, and then the upload is checked as any other.
            self.set_deadline(limits.app_head_seconds)
            self.has_waited = True
        else:
            self.fail("body_timeout")

    def is_upstream_writable(self) -> bool:
        """Return whether the request body waits for the browser and not for the app."""
        if self.upload is not None and self.upload.blocked:
            return False
        return self.upstream is not None and self.upstream.writable

    def _waits_for_continue(self) -> bool:
        """Return whether the browser sends nothing because it awaits a 100."""
        return (
            not self.has_waited
            and not self.was_continued
            and self._is_untouched()
            and b"\r\nexpect: 100-continue\r\n" in b"\r\n%b" % self.relayed.end_to_end.lower()
        )

    def continue_received(self) -> None:
        """Restart the upload deadline: the app asks for the request body only now."""
        if self.phase is Phase.UPLOADING and not self.was_continued and self._is_untouched():
            self.set_deadline(self.limits.slow_body_seconds)
        self.was_continued = True

    def _is_untouched(self) -> bool:
        """Return whether no byte of the request body has arrived."""
        body = self.request_body
        if isinstance(body, ChunkedBody):
            return not body.has_started
        return isinstance(body, LengthBody) and body.remaining == self.relayed.fields.length

    def upstream_stalled(self) -> None:
        """Fail the request: the app has read nothing, or sent nothing, for as long as it may."""
        self.fail(self.upstream_timed_out())
