"""A browser's connection: the machine of :mod:`gateway.core.downstream` on a transport."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from gateway.core.access.access_right import UNCOUNTED
from gateway.core.access.refusals import CLOSE_DRAINING, write_response
from gateway.core.downstream.end_notice import make_notice_cookie
from gateway.core.downstream.phases import Event, Phase, transitions
from gateway.core.http.accept import languages_in
from gateway.core.limits.addresses import is_within, limit_key
from gateway.core.limits.connection_quota import ACCEPTED, ARRIVAL_SECONDS, Verdict
from gateway.relay.ending.lingering import Lingering
from gateway.relay.http.relaying import RelayingConnection
from gateway.relay.transports import is_protocol_of, pause_reading, reset, resume_reading
from gateway.relay.tunnel import Tunnel
from gateway.relay.turns import SMALL_READ
from gateway.relay.wheel import TICK_SECONDS

if TYPE_CHECKING:
    from gateway.core.access.access_right import AccessRight, EndReason
    from gateway.core.access.refusals import Refusal
    from gateway.core.downstream.cached_decision import CachedDecision
    from gateway.core.http.fields import Fields
    from gateway.core.http.heads import StartLine
    from gateway.core.http.oversize import OversizedHead
    from gateway.relay.background_tasks import Cancellable
    from gateway.relay.context import Context

_AFTER_SWITCHED: Final = transitions(Event.SWITCHED)


class Admits(Protocol):
    """Judges requests: :class:`gateway.relay.http.admission.Admission`."""

    def admit(self, connection: DownstreamConnection, start: StartLine, fields: Fields) -> None:
        """Send the request of *connection* on its way, or refuse it."""

    def rate_limited(self, connection: DownstreamConnection, refusal: Refusal) -> Refusal:
        """Return *refusal*, or another where the client of *connection* has drawn too many."""


class DownstreamConnection(RelayingConnection, asyncio.Protocol):
    """A connection from *peer*, until something else takes the transport.

    It is one of the unauthenticated ones until a credential of its is found good, or until it is
    closed.
    """

    kind = "http"

    __slots__ = (
        "admission",
        "deadline",
        "key",
        "peer",
        "tick",
        "traffic",
        "turns",
        "verdict",
        "was_admitted",
    )

    def __init__(self, context: Context, admission: Admits, peer: str) -> None:
        super().__init__(context)
        self.turns = context.turns
        self.traffic = context.meters.http
        self.admission = admission
        self.peer = peer
        trusted = context.parts.site.trusted_proxies
        self.key = "" if trusted and is_within(peer, trusted) else limit_key(peer)
        """By what it is counted; "" for a proxy's, which is many people's."""
        self.verdict: Verdict = ACCEPTED
        self.was_admitted = False
        """Whether a request of its was ever let in."""
        self.deadline = 0.0
        self.tick = 0

    # Its place among the others

    def arrives(self, task: Cancellable) -> None:
        """Note what has begun to connect it: with TLS its client may take its time."""
        self.task, self.began = task, self.loop.time()

    def idle_since(self) -> float:
        """Return since when its client is waited for; infinity where it is not.

        A handshake, or a head, is waited for once it has had its time to come.
        """
        if self.phase is not Phase.HEAD or self.inbox or self.write_full:
            return math.inf
        if self.transport is None:
            return self.began + ARRIVAL_SECONDS
        if not self.deadline:
            return math.inf
        limits = self.context.parts.limits
        if self.reader.partial:
            return self.deadline - limits.head_seconds + ARRIVAL_SECONDS
        return self.deadline - limits.idle_seconds

    def evict(self) -> None:
        """Close it, which waits for its client; its place is free at once.

        Without a word: a refusal would be held until its client has read it.
        """
        self.context.connection_quota.remove(self)
        if self.transport is None:
            self.abandon()
        else:
            self.close()

    @property
    def access_right(self) -> AccessRight:
        """By which right it is registered; only request_head while it is."""
        assert self.decision is not None  # noqa: S101  # entered into the registry only with one
        return self.decision.access_right

    def keep(self, decision: CachedDecision) -> None:
        """Register the connection by *decision*, which may hold for its next requests."""
        self.decision = decision
        self.was_admitted = True
        self.context.connection_quota.remove(self)
        self.context.parts.live.add(self)
        self.activity = decision.access_right.activity

    def drop_decision(self) -> None:
        """Leave the registry, and forget what was decided."""
        if self.decision is not None:
            self.context.parts.live.discard(self)
            self.decision, self.activity = None, UNCOUNTED
            if self.transport is not None:
                self.context.connection_quota.add(self)

    def end(self, ending: EndReason) -> None:
        """End what is under way by a right that holds no more."""
        if ending.close_code == CLOSE_DRAINING:
            return
        self.drop_decision()
        self.access_ended(ending.refusal)

    # What the transport calls

    # uvloop's transports have the interface but not the base class.
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a head, if there is a place for one more connection."""
        self.transport, self.task = transport, None
        context = self.context
        context.connections.add(self)
        self.draining = context.draining
        transport.set_write_buffer_limits(high=context.parts.limits.write_high_bytes)
        context.meters.connections += 1
        context.ends.begin(transport, self.hung_up)
        if self.verdict is ACCEPTED:
            self.set_deadline(context.parts.limits.idle_seconds)
        else:
            self.refuse(self.verdict.value, malformed=True)

    def data_received(self, data: bytes) -> None:
        """Take what the browser sent, as the phase says."""
        size = len(data)
        self.traffic.up += size
        self.activity.up += size
        turns = self.turns
        if turns.crowded:
            turns.count_read(self)
        if size < SMALL_READ:
            self.receive(data)
        else:
            turns.take(self, data)

    def pause_for_others(self) -> None:
        """Stop reading for a turn."""
        pause_reading(self.transport)

    def resume_after_others(self) -> None:
        """Read again, unless the machine or the kernel speaks against it, or it is another's."""
        if self.reading and self.upload is None and is_protocol_of(self, self.transport):
            resume_reading(self.transport)

    def eof_received(self) -> bool:
        """The browser has left."""
        self.downstream_ended()
        return False

    def pause_writing(self) -> None:
        """Stop reading from the app; a browser that takes nothing for long is reset."""
        self.context.ends.writes_wait(self.transport)
        self.set_write_full(True)

    def resume_writing(self) -> None:
        """Read from the app again."""
        self.set_write_full(False)

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of everything."""
        self.context.ends.forget(self.transport)
        self.transport = None
        self._gone()

    def _gone(self) -> None:
        self.lost()
        self._forget()

    def look_for_stalls(self) -> None:
        """Have both sides watched where the kernel holds something for them."""
        self.context.ends.look_at(self.transport)
        if self.upstream is not None:
            self.upstream.look_for_stalls()

    def due(self, now: float) -> float:
        """Act on a deadline that has passed; called by the wheel."""
        if self.deadline and now >= self.deadline:
            self.deadline = 0.0
            self.deadline_passed()
        return self.deadline

    # What the machine has done

    def write(self, data: bytes) -> None:
        """Write to the browser."""
        if self.transport is not None:
            size = len(data)
            self.traffic.down += size
            self.activity.down += size
            self.transport.write(data)

    def set_reading(self, reading: bool) -> None:
        """Take bytes from the browser, or stop; unread it may still leave."""
        ends = self.context.ends
        if reading:
            ends.seen_by_loop(self.transport, self.hung_up)
            resume_reading(self.transport)
        else:
            pause_reading(self.transport)
            ends.hangups.watch(self.transport, self.hung_up)

    def defer(self, go_on: Callable[[], None]) -> None:
        """Call *go_on* in a later turn of the loop."""
        self.context.turns.defer(go_on)

    def set_deadline(self, seconds: float) -> None:
        """Have the wheel ask in so many seconds; 0 for never."""
        if not seconds:
            self.deadline = 0.0
            return
        self.deadline = self.loop.time() + seconds
        if not 0 < abs(self.tick) * TICK_SECONDS <= self.deadline:
            self.context.wheel.arm(self, self.deadline)

    def decide(self, start: StartLine, fields: Fields) -> None:
        """Have the request judged."""
        self.admission.admit(self, start, fields)

    def rate_limited(self, refusal: Refusal) -> Refusal:
        """Return *refusal*, or another where the client has drawn too many."""
        return self.admission.rate_limited(self, refusal)

    def refusal_bytes(
        self, refusal: Refusal, request_head: tuple[StartLine, Fields] | None, *, close: bool
    ) -> bytes:
        """Return the response with *refusal*, and count it; None is an unreadable request."""
        self._count(refusal)
        parts = self.context.parts
        if request_head is None:
            page = parts.errors.render(refusal, b"")
        else:
            languages = languages_in(self.reader.end_to_end)
            page = parts.errors.render(refusal, request_head[1].accept, languages)
        if refusal.ends_at is not None:
            told = make_notice_cookie(parts.site, refusal.ends_at, now=parts.wall())
            page = page._replace(fields=(*page.fields, ("Set-Cookie", told)))
        head_only = request_head is not None and request_head[0].method == b"HEAD"
        date = self.date.field()
        return write_response(refusal, page, close=close, head_only=head_only, date=date)

    def oversized_bytes(self, refusal: Refusal, head: OversizedHead) -> bytes:
        """Return, and count, the response that expires the cookies of a head too large."""
        self._count(refusal)
        parts = self.context.parts
        page = parts.errors.render(refusal, head.accept, head.languages)
        expired = head.expiry_fields(base=parts.site.base, secure=parts.site.scheme == "https")
        page = page._replace(fields=page.fields + expired)
        return write_response(refusal, page, close=True, date=self.date.field())

    def _count(self, refusal: Refusal) -> None:
        meters = self.context.meters
        meters.refusals[refusal.code] += 1
        meters.own_answers[refusal.status // 100] += 1
        failures, decision = self.context.parts.failures, self.decision
        if failures is not None and decision is not None and refusal.status >= 500:
            failures.note(decision.access_right.sid, refusal.code)

    # How it ends

    def close(self) -> None:
        """Close after what was written."""
        self.context.ends.close(self.transport)

    def linger(self) -> None:
        """Shut our side after what was written, discard what still comes, and close soon."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        self.set_deadline(0.0)
        self.context.ends.forget(transport)
        seconds = self.context.parts.limits.linger_seconds
        Lingering(self.context.ends, transport, seconds=seconds, gone=self._lingered)

    def _lingered(self) -> None:
        self.transport = None
        self._gone()

    def reset(self) -> None:
        """Close at once, with a reset."""
        reset(self.transport)

    def is_closing(self) -> bool:
        """Say whether it is closed, or about to be."""
        return self.transport is None or self.transport.is_closing()

    def give_up(self) -> asyncio.Transport | None:
        """Hand out the transport for good; None when it is closing already."""
        transport, self.transport = self.transport, None
        self.context.ends.forget(transport)
        self.phase = _AFTER_SWITCHED[self.phase]
        self._forget()
        return None if transport is None or transport.is_closing() else transport

    def _forget(self) -> None:
        """Forget the connection: it is closed, or somebody else's."""
        if self.decision is not None:
            self.drop_decision()
        self.context.connections.discard(self)
        self.context.connection_quota.remove(self)
        self.context.wheel.disarm(self)
        self.reader.clear()

    def start_tunnel(self, trailing: bytes) -> None:
        """Make a tunnel of both transports."""
        browser, upstream, decision = self.transport, self.upstream, self.decision
        if upstream is None or upstream.transport is None or decision is None:
            self.bad_response()
            return
        if browser is None or browser.is_closing():
            self.upstream = None
            self.give_up()
            upstream.close()
            return
        tunnel = Tunnel(
            path=self.context,
            access_right=decision.access_right,
            browser=browser,
            app=upstream.transport,
        )
        self.context.parts.live.replace(self, tunnel)
        self.decision, self.activity = None, UNCOUNTED
        early, full, self.inbox = self.inbox, self.write_full, b""
        upstream.exchange = self.upstream = None
        upstream.spliced()
        self.give_up()
        tunnel.begin(from_browser=early, from_app=trailing)
        if full:
            tunnel.pause_writing()
