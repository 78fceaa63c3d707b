"""One browser's connection: a head is read, its request relayed or refused, and then the next."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Final, assert_never

from gateway.core.access.refusals import REFUSALS, Refusal
from gateway.core.downstream.exchange import Exchange
from gateway.core.downstream.phases import (
    DUE,
    LEFT,
    NEXT,
    TAKES,
    Due,
    Event,
    Left,
    Phase,
    Takes,
    after,
)
from gateway.core.http.framing import ChunkedBody, LengthBody
from gateway.core.http.heads import HeadRefused

if TYPE_CHECKING:
    from gateway.core.http.fields import Fields
    from gateway.core.http.heads import StartLine
    from gateway.core.http.http_date import HttpDate
    from gateway.core.http.oversize import OversizedHead
    from gateway.core.http.request_reader import RequestReader
    from gateway.core.http.response_heads import ResponseReader
    from gateway.core.limits.values import Limits

_AFTER_HEAD_READ: Final = after(Event.HEAD_READ)
_AFTER_ANSWERED: Final = after(Event.ANSWERED)
_HEADS: Final = Takes.HEADS


class Connection(Exchange):
    """A downstream connection's requests, one at a time; the next one in a later turn.

    ``reading`` is its read side: whether bytes are taken from the browser. ``close_after`` says
    that the response under way is the connection's last one, ``draining`` that the response to the
    request under way, or to the next one, is.
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

    # What is done about it

    @abstractmethod
    def decide(self, start: StartLine, fields: Fields) -> None:
        """Have the request judged: :meth:`admitted`, :meth:`refuse`, or somebody else takes it."""

    @abstractmethod
    def set_reading(self, reading: bool) -> None:
        """Take bytes from the browser, or stop; unread it may still leave: :meth:`hung_up`."""

    @abstractmethod
    def abandon(self) -> None:
        """Free the app's connection, and stop waiting for a decision: nobody wants a response."""

    @abstractmethod
    def limited(self, refusal: Refusal) -> Refusal:
        """Return *refusal*, or another where the client has drawn too many."""

    @abstractmethod
    def refusal_bytes(
        self, refusal: Refusal, asked: tuple[StartLine, Fields] | None, *, close: bool
    ) -> bytes:
        """Return, and count, the response to *asked*; None is a request that cannot be read."""

    @abstractmethod
    def oversized_bytes(self, refusal: Refusal, seen: OversizedHead) -> bytes:
        """Return, and count, the response to a head that is too large."""

    @abstractmethod
    def app_timed_out(self) -> str | Refusal:
        """Count an app that is too slow; return the refusal, or its code."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection after what was written."""

    @abstractmethod
    def linger(self) -> None:
        """Shut our side after what was written, discard what still comes, and close soon."""

    @abstractmethod
    def reset(self) -> None:
        """Close the connection at once, with a reset."""

    # What comes from the browser

    def receive(self, data: bytes) -> None:
        """Take what was read, as the phase says."""
        takes = TAKES[self.phase]
        if takes is _HEADS and not self.inbox and not self.write_full:
            self._read_request(data)
        elif takes is Takes.BODY and not self.inbox and not self.request.has_more:
            self.feed_request(data)
        elif takes is not Takes.DISCARDS:
            self.inbox += data
            self.regulate()

    def ended(self) -> None:
        """The browser has sent a FIN, and so has left."""
        self._leave(unread=False)

    def hung_up(self) -> None:
        """The browser has left while nothing was read from it."""
        self._leave(unread=True)

    def _leave(self, *, unread: bool) -> None:
        phase = self.phase
        self.inbox = b""
        if phase is not Phase.HEAD and LEFT[phase] is Left.FLUSHES:
            return
        begun = self.has_begun
        self.abandon()
        self.phase = NEXT[phase, Event.ENDED]
        self.set_deadline(0.0)
        if begun:
            # Cut off, it must not look complete to whoever still reads.
            self.reset()
        elif unread:
            # Closed with bytes unread, the kernel would reset, and drop what is not sent.
            self.linger()
        else:
            self.close()

    def lost(self) -> None:
        """The connection is closed."""
        self.phase = NEXT[self.phase, Event.LOST]
        self.inbox = b""
        self.abandon()

    def set_write_full(self, full: bool) -> None:
        """Note whether more waits for the browser than may."""
        self.write_full = full
        if full:
            if self.upstream is not None:
                self.upstream.pause_reading()
        else:
            self.resume_response()
            self._take_up()
        self.regulate()

    def regulate(self) -> None:
        """Read from the browser, unless what was read before has to go on first."""
        takes = TAKES[self.phase]
        if takes is Takes.BODY:
            upstream = self.upstream
            reading = upstream is not None and upstream.writable and not self.request.has_more
        elif takes is Takes.HEADS:
            reading = not self.write_full
        else:
            reading = takes is Takes.DISCARDS or self.request.done
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
            beyond = reader.read(data)
        except HeadRefused as refused:
            self.refuse(refused.code, bare=True)
            return
        if beyond is None:
            if not begun:
                self.set_deadline(self.limits.head_seconds)
            return
        self.phase = _AFTER_HEAD_READ[self.phase]
        self.inbox = beyond
        start, fields = reader.start, reader.fields
        if start is not None and fields is not None:
            self.decide(start, fields)
            if beyond:
                self.regulate()

    def _take_up(self) -> None:
        """Read the next head in a later turn, if it came already."""
        if self.inbox and self.phase is Phase.HEAD and not self.write_full and not self.resuming:
            self.resuming = True
            self.later(self._resume)

    def _resume(self) -> None:
        self.resuming = False
        if self.phase is not Phase.HEAD or self.write_full:
            return
        data, self.inbox = self.inbox, b""
        if data:
            self._read_request(data)
        self.regulate()

    # Responses

    def closes_after(self, ends: bool) -> bool:
        """Say whether the connection closes after this response, which *ends* it or not."""
        start, fields = self.reader.start, self.reader.fields
        self.close_after = (
            ends
            or self.draining
            or start is None
            or start.minor == 0
            or fields is None
            or fields.close
        )
        return self.close_after

    def complete(self, *, whole: bool) -> None:
        """Go on with the next request, or close."""
        if self.close_after or self.draining:
            self.phase = NEXT[self.phase, Event.ENDED]
            if whole and not self.inbox and not self.write_full:
                self.close()
            else:
                self.inbox = b""
                self.linger()
            return
        self.phase = _AFTER_ANSWERED[self.phase]
        self._next()

    def _next(self) -> None:
        self.reader.start = None
        self.set_deadline(self.limits.idle_seconds)
        if self.inbox:
            self._take_up()
            self.regulate()
        elif not self.reading:
            self.regulate()

    def fail(self, why: str | Refusal) -> None:
        """Refuse the request, or reset a response that has begun."""
        if self.has_begun:
            self.abandon()
            self.response = None
            self.reset()
        else:
            self.refuse(why)

    def refuse(self, why: str | Refusal, *, bare: bool = False) -> None:
        """Answer with a refusal; the connection lives on when the request was whole.

        Args:
            why: The refusal or its code.
            bare: There is no request that could be trusted.
        """
        self.abandon()
        if TAKES[self.phase] is Takes.DISCARDS:
            return
        refusal = self.limited(REFUSALS[why] if isinstance(why, str) else why)
        keeps = (
            not bare
            and not refusal.closes
            and refusal.status != 400
            and self._is_bodiless()
            and not self.closes_after(ends=False)
        )
        reader = self.reader
        if bare and reader.oversized is not None:
            self.write(self.oversized_bytes(refusal, reader.oversized))
        else:
            start, fields = reader.start, reader.fields
            asked = None if bare or start is None or fields is None else (start, fields)
            self.write(self.refusal_bytes(refusal, asked, close=not keeps))
        if keeps:
            self.phase = _AFTER_ANSWERED[self.phase]
            self._next()
        else:
            self.phase = NEXT[self.phase, Event.ENDED]
            self.inbox = b""
            self.linger()

    def _is_bodiless(self) -> bool:
        fields = self.reader.fields
        return fields is not None and not fields.chunked and fields.length <= 0

    # Ends

    def right_ended(self, code: str) -> None:
        """End what is under way by a right that holds no more."""
        if LEFT[self.phase] is Left.DROPS:
            self.fail(code)

    def finish_next(self) -> None:
        """Close after the response to the request under way, or to the next one."""
        self.draining = True

    def drain(self) -> None:
        """Close now when no request is under way; otherwise its response is the last one."""
        self.draining = True
        if self.phase is Phase.HEAD and not self.reader.partial and not self.inbox:
            self.close()

    def deadline_passed(self) -> None:
        """Act on the deadline, which has passed."""
        match DUE[self.phase]:
            case Due.NEVER:
                pass
            case Due.CLOSES if self.reader.partial:
                self.refuse("head_timeout", bare=True)
            case Due.CLOSES if self.write_full or self.resuming:
                # What was asked for before is still being read, or what came is read next: a
                # stall has its own deadline.
                self.set_deadline(self.limits.idle_seconds)
            case Due.CLOSES:
                self.close()
            case Due.JUDGES_UPLOAD:
                self._judge_upload()
            case Due.TIMES_OUT:
                self._time_out()
            case _ as never:
                assert_never(never)

    def _judge_upload(self) -> None:
        """Let an upload go on that was not too slow since it was looked at last.

        Once its response has begun, the app has what it wants of it, and both may take their time.
        """
        limits = self.limits
        came, self.uploaded = self.uploaded, 0
        enough = limits.slow_body_bytes_per_second * limits.slow_body_seconds
        if self.phase is Phase.BOTH or came >= enough:
            self.set_deadline(limits.slow_body_seconds)
        elif not self.app_reads():
            # The browser is not to blame; an app that stalls has a deadline of its own.
            self.set_deadline(limits.slow_body_seconds)
        elif self._waits_for_continue():
            # Not for good: it is asked to wait, and then looked at as any other.
            self.set_deadline(limits.app_head_seconds)
            self.has_waited = True
        else:
            self.fail("body_timeout")

    def app_reads(self) -> bool:
        """Say whether it is the browser that a request's body waits for, and not the app."""
        return self.upstream is not None and self.upstream.writable

    def _waits_for_continue(self) -> bool:
        """Say whether the browser sends nothing because the app has not asked it to."""
        return (
            not self.has_waited
            and not self.was_continued
            and self._is_untouched()
            and b"\r\nexpect: 100-continue\r\n" in b"\r\n%b" % self.reader.end_to_end.lower()
        )

    def continued(self) -> None:
        """The app asks for the request's body: only from now on the browser can be slow."""
        if self.phase is Phase.UPLOADING and not self.was_continued and self._is_untouched():
            self.set_deadline(self.limits.slow_body_seconds)
        self.was_continued = True

    def _is_untouched(self) -> bool:
        """Say whether nothing of the request's body has come."""
        body, fields = self.request, self.reader.fields
        if isinstance(body, ChunkedBody):
            return not body.has_started
        return (
            fields is not None and isinstance(body, LengthBody) and body.remaining == fields.length
        )

    def app_stalled(self) -> None:
        """The app has taken nothing of the request for as long as it may."""
        self._time_out()

    def _time_out(self) -> None:
        self.fail(self.app_timed_out())
