"""What a browser asks: heads in, decisions carried out, one request after the other."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gateway.core.answers import CLOSE_DRAINING, REFUSALS, Refusal
from gateway.core.framing import FramingError
from gateway.core.heads import HeadRefused
from gateway.core.request_reader import RequestReader
from gateway.relay.deadlines import act_on_deadline
from gateway.relay.downstream import Downstream
from gateway.relay.exchange import Exchange
from gateway.relay.refusing import oversized_bytes, refusal_bytes
from gateway.relay.states import Event, State, step
from gateway.relay.transports import pause_reading, reset, resume_reading

if TYPE_CHECKING:
    from gateway.core.passage import Ending, Passage
    from gateway.core.places import Verdict
    from gateway.relay.gateway import DataPath
    from gateway.relay.permit import Permit


class Front(Downstream):
    """The downstream protocol: one per connection, until something else takes the transport."""

    kind = "http"

    __slots__ = ("admitted", "close_after", "errand", "exchange", "permit", "reader")

    def __init__(self, path: DataPath, peer: str) -> None:
        super().__init__(path, peer)
        self.reader = RequestReader(path.fields)
        self.permit: Permit | None = None
        self.exchange: Exchange | None = None
        self.errand: asyncio.Task[None] | None = None
        self.close_after = False
        self.admitted = False
        """Whether a request of its was ever let in."""

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport and wait for a head."""
        self.path.fronts.add(self)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Take what the browser sent, as the state says."""
        self.path.meters.http.up += len(data)
        state = self.state
        if state is State.HEAD and not self.early:
            self._read(data)
        elif state is State.LINGERING:
            return
        elif self.exchange is not None and not self.exchange.request.done:
            self._body(self.exchange, data)
        else:
            self._keep(data)

    def eof_received(self) -> bool:
        """The browser shut its side: it still gets the answer to what it has asked."""
        if self._awaits_answer():
            self.half_closed = True
            return True
        # The transport closes after what it holds, which may take long: nothing is added.
        self._let_go()
        return False

    def _awaits_answer(self) -> bool:
        """Say whether its request is whole; TLS closes with the first side that ends."""
        if self.state not in (State.DECIDING, State.RELAYING):
            return False
        if self.transport is None or not self.transport.can_write_eof():
            return False
        if self.exchange is not None:
            return self.exchange.request.done
        return self.reader.fields is None or self._is_bodiless()

    def pause_writing(self) -> None:
        """Hold the app back."""
        self.writable = False
        if self.exchange is not None and self.exchange.upstream is not None:
            pause_reading(self.exchange.upstream.transport)

    def resume_writing(self) -> None:
        """Let the app go on."""
        self.writable = True
        if self.exchange is not None:
            self.exchange.go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of everything."""
        self.state = step(self.state, Event.LOST)
        self.transport = None
        self._let_go()
        self.leave()

    def due(self, now: float) -> float:
        """Act on a deadline that has passed; called by the wheel."""
        return act_on_deadline(self, now)

    # Reading heads

    def _read(self, data: bytes) -> None:
        reader = self.reader
        begun = bool(reader.partial)
        try:
            beyond = reader.read(data)
        except HeadRefused as refused:
            self.refuse(refused.code, bare=True)
            return
        if beyond is None:
            if not begun:
                self.wait(self.path.parts.limits.head_seconds)
            return
        self.state = step(self.state, Event.HEAD_READ)
        self.deadline = 0.0
        if reader.start is not None and reader.fields is not None:
            self.path.admission.admit(self, reader.start, reader.fields, beyond)

    def turn_away(self, verdict: Verdict) -> None:
        """Say that there is no place for it."""
        self.refuse(verdict.value, bare=True)

    # Carrying out

    def relay(self, permit: Permit, beyond: bytes, *, upgrade: bool) -> None:
        """Relay the request by *permit*; called once it has been admitted."""
        start, fields = self.reader.start, self.reader.fields
        if start is None or fields is None:
            return
        exchange = self.exchange = Exchange(
            self, start=start, fields=fields, permit=permit, upgrade=upgrade
        )
        first = b""
        if beyond:
            try:
                first = exchange.request.feed(beyond)
                while exchange.request.stopped:
                    first += exchange.request.feed(b"")
            except FramingError:
                self.refuse("bad_request", bare=True)
                return
            resume_reading(self.transport)  # held, perhaps, while it was being decided
            self._keep(exchange.request.rest)
            exchange.request.rest = b""
        exchange.begin(first)

    # What the exchange calls

    def sent(self) -> None:
        """The request's head was sent."""
        self.state = step(self.state, Event.SENT)
        exchange = self.exchange
        if exchange is None:
            return
        limits = self.path.parts.limits
        self.wait(limits.app_head_seconds if exchange.request.done else limits.slow_body_seconds)
        if not self.writable and exchange.upstream is not None:
            pause_reading(exchange.upstream.transport)

    def request_ended(self) -> None:
        """The last byte of the request's body was sent."""
        resume_reading(self.transport)
        if self.exchange is not None and not self.exchange.answered:
            self.wait(self.path.parts.limits.app_head_seconds)

    def stale(self) -> None:
        """The request is being sent once more."""
        self.state = step(self.state, Event.STALE)

    def write_switch(self, head: bytes) -> bytes:
        """Write the head of a 101; return what the browser sent too early."""
        self.write(head)
        early, self.early = self.early, b""
        return early

    def closes_after(self, ends: bool) -> bool:
        """Say whether the connection closes after this answer, which it *ends* by itself or not."""
        start, fields = self.reader.start, self.reader.fields
        self.close_after = (
            ends
            or self.path.draining
            or start is None
            or start.minor == 0
            or fields is None
            or fields.close
        )
        return self.close_after

    def answer_begins(self) -> None:
        """The head of the answer is there: an answer may take as long as it likes."""
        if self.exchange is not None and self.exchange.request.done:
            self.deadline = 0.0

    def answered(self, *, whole: bool) -> None:
        """The answer is complete; *whole* says whether the request was, too."""
        self.exchange = None
        if self.transport is None:
            return
        if self.close_after or self.path.draining:
            self.finish(whole=whole)
            return
        self.state = step(self.state, Event.ANSWERED)
        self._next()

    def fail(self, code: str) -> None:
        """The exchange cannot be completed: refuse, or reset what has begun to be answered."""
        if self.exchange is not None and self.exchange.answered:
            self._let_go()
            reset(self.transport)
        else:
            self.refuse(code)

    # Ending requests and connections

    def refuse(self, why: str | Refusal, *, bare: bool = False) -> None:
        """Answer with a refusal; the connection lives on when the request was whole.

        Args:
            why: The refusal or its code.
            bare: There is no request that could be trusted.
        """
        self._let_go()
        if self.transport is None or self.state is State.LINGERING:
            return
        refusal = REFUSALS[why] if isinstance(why, str) else why
        refusal = self.path.admission.limited(self, refusal)
        meters = self.path.meters
        meters.refusals[refusal.code] += 1
        meters.own_answers[refusal.status // 100] += 1
        keeps = (
            not bare
            and not refusal.closes
            and refusal.status != 400
            and self._is_bodiless()
            and not self.closes_after(self.half_closed and not self.early)
        )
        reader = self.reader
        if bare and reader.oversized is not None:
            self.write(oversized_bytes(self.path.parts, refusal, reader.oversized))
        else:
            start, fields = reader.start, reader.fields
            asked = None if bare or start is None or fields is None else (start, fields)
            self.write(refusal_bytes(self.path.parts, refusal, asked, close=not keeps))
        if not keeps:
            self.linger()
            return
        self.state = step(self.state, Event.ANSWERED)
        self._next()

    def _is_bodiless(self) -> bool:
        fields = self.reader.fields
        return fields is not None and not fields.chunked and fields.length <= 0

    def end(self, ending: Ending) -> None:
        """End what is under way by a right that holds no more."""
        if ending.close_code == CLOSE_DRAINING:
            return
        self.drop_permit()
        if self.state in (State.DECIDING, State.RELAYING):
            self.fail(ending.refusal)

    def drain(self) -> None:
        """Close now when no request is under way; otherwise its answer is the last one."""
        if self.state is State.HEAD and not self.reader.partial and self.transport is not None:
            self.path.ends.close(self.transport)

    def give_up(self) -> asyncio.Transport | None:
        """Hand out the transport for good; None when it is closing already."""
        transport, self.transport = self.transport, None
        self.state = step(self.state, Event.SWITCHED)
        self.exchange = None
        self.leave()
        return None if transport is None or transport.is_closing() else transport

    @property
    def passage(self) -> Passage:
        """By which right it is registered; only asked while it is."""
        assert self.permit is not None  # noqa: S101  # entered into the registry only with one
        return self.permit.passage

    def _body(self, exchange: Exchange, data: bytes) -> None:
        try:
            rest = exchange.from_client(data)
        except FramingError:
            self.fail("bad_request")
            return
        if rest:
            self._keep(rest)

    def _keep(self, data: bytes) -> None:
        self.early += data
        if len(self.early) > self.path.parts.limits.early_bytes:
            pause_reading(self.transport)

    def _next(self) -> None:
        """Wait for the next request, or take up the one that came already."""
        self.reader.start = None
        self.wait(self.path.parts.limits.idle_seconds)
        if self.early or self.half_closed:
            # Not at once: a long row of refused requests must not become a deep recursion.
            self.path.parts.loop.call_soon(self._resume)

    def _resume(self) -> None:
        if self.state is not State.HEAD or self.transport is None:
            return
        data, self.early = self.early, b""
        resume_reading(self.transport)
        if data:
            self._read(data)
        if self.half_closed and self.state is State.HEAD and not self.early:
            self.path.ends.close(self.transport)

    def _let_go(self) -> None:
        if self.errand is not None:
            self.errand.cancel()
            self.errand = None
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.abandon()

    def drop_permit(self) -> None:
        """Leave the registry, and forget what was decided."""
        if self.permit is not None:
            self.path.parts.live.discard(self)
            self.permit = None
            if self.transport is not None:
                self.become_stranger()

    def leave(self) -> None:
        """Forget the connection: it is closed, or somebody else's."""
        self.drop_permit()
        self.path.fronts.discard(self)
        super().leave()
        self.reader.forget()
