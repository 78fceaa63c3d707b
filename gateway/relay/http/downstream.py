"""A downstream connection: the state machine of :mod:`gateway.core.downstream` on a transport."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Final, TypeAlias

from gateway.core.access.access_right import OVERLOADED, UNCOUNTED, AccessRight, EndReason
from gateway.core.access.decision import OPEN_PATH
from gateway.core.access.refusals import CLOSE_DRAINING, Refusal, write_response
from gateway.core.downstream.cached_decision import CachedDecision
from gateway.core.downstream.end_notice import make_notice_cookie
from gateway.core.downstream.phases import Event, Phase, transitions
from gateway.core.http.accept import languages_in, preferences_in
from gateway.core.http.public_fields import PublicView, adapt_fields
from gateway.core.http.request_reader import RequestHead
from gateway.core.http.response_heads import ResponseFields
from gateway.core.limits.addresses import client_address, client_of_key, is_within, limit_key
from gateway.core.limits.connection_quota import ACCEPTED, ARRIVAL_SECONDS, Verdict
from gateway.relay.background_tasks import Cancellable
from gateway.relay.context import Context
from gateway.relay.ending.closer import CutOff, Lingering
from gateway.relay.http.relaying import RelayingConnection
from gateway.relay.transports import (
    LARGE_BYTES,
    owns_transport,
    pause_reading,
    reset,
    resume_reading,
    waiting_bytes,
    write_large,
)
from gateway.relay.tunnel import Tunnel
from gateway.relay.turns import SMALL_READ
from gateway.wheel import TICK_SECONDS

Admit: TypeAlias = "Callable[[DownstreamConnection, RequestHead], None]"
"""Relays or refuses a request: :meth:`gateway.relay.http.admission.Admission.admit`."""

_AFTER_SWITCHED: Final = transitions(Event.SWITCHED)


class DownstreamConnection(RelayingConnection, asyncio.Protocol):
    """A connection from *peer*, until it is handed over or closed.

    It is unauthenticated until one of its requests had a valid credential.
    """

    kind = "http"

    __slots__ = (
        "admit",
        "cut",
        "deadline",
        "key",
        "peer",
        "tick",
        "traffic",
        "turns",
        "verdict",
        "was_admitted",
    )

    def __init__(self, context: Context, admit: Admit, peer: str) -> None:
        super().__init__(context)
        self.turns = context.turns
        self.traffic = context.meters.http
        self.admit = admit
        self.peer = peer
        trusted = context.site.trusted_proxies
        self.key = "" if trusted and is_within(peer, trusted) else limit_key(peer)
        """The limit key of its address; "" for a proxy, whose connections belong to many
        clients."""
        self.verdict: Verdict = ACCEPTED
        self.was_admitted = False
        """Whether any of its requests was admitted."""
        self.cut = False
        """Whether its last response broke off, and is still being delivered."""
        self.deadline = 0.0
        self.tick = 0

    def client_address(self, request: RequestHead | None) -> str:
        """Return the address of the client behind the peer, from the fields of *request*."""
        trusted = self.context.site.trusted_proxies
        if not trusted:
            return self.peer
        forwarded_for = request.fields.forwarded_for if request is not None else None
        return client_address(self.peer, forwarded_for, trusted)

    # The connection quota and the registry

    def note_arrival(self, task: Cancellable) -> None:
        """Record the *task* that accepts it: a TLS handshake depends on the client."""
        self.task, self.began = task, self.loop.time()

    def idle_since(self) -> float:
        """Return since when it is idle; infinity if it is not.

        A handshake or a head counts as idle only after the time that it usually takes.
        """
        if self.phase is not Phase.HEAD or self.inbox or self.write_full:
            return math.inf
        if self.transport is None:
            return self.began + ARRIVAL_SECONDS
        if not self.deadline:
            return math.inf
        limits = self.context.limits
        if self.reader.partial:
            return self.deadline - limits.head_seconds + ARRIVAL_SECONDS
        return self.deadline - limits.idle_seconds

    def evict(self) -> None:
        """Close it while it is idle; it stops counting at once.

        It gets no response: a refusal would keep it open until its client has read it.
        """
        self.context.connection_quota.remove(self)
        if self.transport is None:
            self.abandon()
        else:
            self.close()

    @property
    def access_right(self) -> AccessRight:
        """The right by which it is registered; read only while it is registered."""
        assert self.decision is not None  # noqa: S101  # entered into the registry only with one
        return self.decision.access_right

    def cache_decision(self, decision: CachedDecision) -> None:
        """Register the connection by *decision*, which may hold for its next requests."""
        self.decision = decision
        self.was_admitted = True
        self.context.connection_quota.remove(self)
        self.context.live.add(self)
        self.activity = decision.access_right.activity

    def drop_decision(self) -> None:
        """Unregister the connection and discard the cached decision."""
        if self.decision is not None:
            self.context.live.discard(self)
            self.decision, self.activity = None, UNCOUNTED
            if self.transport is not None:
                self.context.connection_quota.add(self)

    def end(self, ending: EndReason) -> None:
        """End the current request: the access right has ended."""
        if ending.close_code == CLOSE_DRAINING:
            return
        self.drop_decision()
        if self.cut or (ending is OVERLOADED and not self.has_request):
            self.reset()
        else:
            self.access_ended(ending.refusal)

    # Events of the transport

    # uvloop's transports have the interface but not the base class.
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Await a head, or refuse the connection if the quota is used up."""
        self.transport, self.task = transport, None
        context = self.context
        context.connections.add(self)
        self.draining = context.draining
        transport.set_write_buffer_limits(high=context.limits.write_high_bytes)
        context.meters.connections += 1
        context.closer.watch_tls_fin(transport, self.hung_up)
        if self.verdict is ACCEPTED:
            self.set_deadline(context.limits.idle_seconds)
        else:
            self.refuse(self.verdict.value, malformed=True)

    def data_received(self, data: bytes) -> None:
        """Process received bytes as the phase requires."""
        size = len(data)
        self.traffic.up += size
        self.activity.up += size
        turns = self.turns
        if turns.crowded:
            turns.count_read(self)
        if size < SMALL_READ:
            self.receive(data)
        else:
            turns.run(self, data)

    def yield_turn(self) -> None:
        """Stop reading for a turn."""
        pause_reading(self.transport)

    def resume_turn(self) -> None:
        """Read again, unless the state machine or the kernel prevents it, or it is handed over."""
        if self.reading and self.upload is None and owns_transport(self, self.transport):
            resume_reading(self.transport)

    def eof_received(self) -> bool:
        """Note that the browser has left."""
        self.downstream_ended()
        return False

    def pause_writing(self) -> None:
        """Stop reading from the app; a browser that reads nothing for long is reset."""
        self.context.closer.watch_writes(self.transport)
        self.set_write_full(True)

    def resume_writing(self) -> None:
        """Read from the app again."""
        self.set_write_full(False)

    def connection_lost(self, exc: Exception | None) -> None:
        """Release everything."""
        self.context.closer.forget(self.transport)
        self.transport = None
        self._gone()

    def _gone(self) -> None:
        self.lost()
        self._forget()

    def check_stalls(self) -> None:
        """Watch each side for which the kernel holds unacknowledged bytes."""
        self.context.closer.watch_if_unacknowledged(self.transport)
        if self.upstream is not None:
            self.upstream.check_stalls()

    # Short of memory

    @property
    def client(self) -> str:
        """The user, or the key of the address without one; "" if it is not known."""
        if self.decision is None:
            return client_of_key(self.key)
        return self.context.live.client_of(self.decision.access_right)

    def buffered_bytes(self) -> int:
        """Return how many bytes wait for either side, or for the rest of a head."""
        waiting = len(self.inbox) + len(self.partial) + len(self.reader.partial)
        upstream = None if self.upstream is None else self.upstream.transport
        return waiting + waiting_bytes(self.transport) + waiting_bytes(upstream)

    def shed(self) -> None:
        """Refuse the request under way, or reset the connection, to free memory."""
        if self.transport is None:  # handed over, or closed
            return
        if self.decision is not None:
            self.context.live.end((self,), OVERLOADED)
        else:
            self.reset()

    def due(self, now: float) -> float:
        """Act on a deadline that has passed; called by the wheel."""
        if self.deadline and now >= self.deadline:
            self.deadline = 0.0
            self.deadline_passed()
        return self.deadline

    # Actions of the state machine

    def write(self, data: bytes) -> None:
        """Write to the browser."""
        if self.transport is not None:
            size = len(data)
            self.traffic.down += size
            self.activity.down += size
            if size > LARGE_BYTES:
                write_large(self.transport, data)
            else:
                self.transport.write(data)

    def set_reading(self, reading: bool) -> None:
        """Read from the browser, or pause; a browser that leaves meanwhile is noticed."""
        closer = self.context.closer
        if reading:
            closer.rely_on_loop(self.transport, self.hung_up)
            resume_reading(self.transport)
        else:
            pause_reading(self.transport)
            closer.hangups.watch(self.transport, self.hung_up)

    def defer(self, go_on: Callable[[], None]) -> None:
        """Call *go_on* in a later turn of the loop."""
        self.context.turns.defer(go_on)

    def set_deadline(self, seconds: float) -> None:
        """Have the wheel call :meth:`due` in that many seconds; 0 for never."""
        if not seconds:
            self.deadline = 0.0
            return
        self.deadline = self.loop.time() + seconds
        if not 0 < abs(self.tick) * TICK_SECONDS <= self.deadline:
            self.context.wheel.arm(self, self.deadline)

    def decide(self, request: RequestHead) -> None:
        """Have *request* decided."""
        self.admit(self, request)

    def rate_limited(self, refusal: Refusal) -> Refusal:
        """Return *refusal*, or a 429 if the client has drawn too many refusals."""
        return self.context.refusals.judge(refusal, self.client_address(self.reader.request))

    def public_fields(self, fields: ResponseFields) -> bytes:
        """Return the end-to-end fields of a response as the browser must see them."""
        decision, request = self.decision, self.reader.request
        if decision is None or request is None:
            return fields.end_to_end
        grant = decision.access_right.grant
        view = PublicView(
            scheme=self.context.site.scheme,
            host=request.fields.host,
            target=decision.target,
            framed=grant is not None and grant.framed,
        )
        return adapt_fields(fields, view)

    def refusal_bytes(
        self,
        refusal: Refusal,
        request: RequestHead | None,
        *,
        close: bool,
        head_only: bool,
    ) -> bytes:
        """Return the response with *refusal*, and count it; None is an unreadable request."""
        self._count(refusal)
        context = self.context
        if request is None:
            page = context.errors.render(refusal, *preferences_in(self.reader.unread))
        else:
            start = request.start
            languages = languages_in(request.end_to_end)
            shown = refusal.for_request(
                start.method.decode("ascii"), opening=start.target == OPEN_PATH
            )
            page = context.errors.render(shown, request.fields.accept, languages)
        if refusal.ends_at is not None:
            cookie = make_notice_cookie(context.site, refusal.ends_at, now=context.wall())
            cookies = [("Set-Cookie", value) for value in (*refusal.app_cookies, cookie)]
            page = page._replace(fields=(*page.fields, *cookies))
        date = self.date.field()
        return write_response(refusal, page, close=close, head_only=head_only, date=date)

    def _count(self, refusal: Refusal) -> None:
        meters = self.context.meters
        meters.refusals[refusal.code] += 1
        meters.own_answers[refusal.status // 100] += 1
        if self.decision is not None and refusal.status >= 500:
            sid = self.decision.access_right.sid
            self.context.failures.note(sid, refusal.code, refusal.reason)

    # End

    def close(self) -> None:
        """Close once everything is written."""
        self.context.closer.close(self.transport)

    def linger(self) -> None:
        """Shut down our side once everything is written, discard input, and close soon."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        self.set_deadline(0.0)
        self.context.closer.forget(transport)
        seconds = self.context.limits.linger_seconds
        Lingering(self.context.closer, transport, seconds=seconds, on_closed=self._lingered)

    def reset_when_flushed(self) -> None:
        """Reset the connection once the browser has received what was written."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        self.set_deadline(0.0)
        self.context.closer.forget(transport)
        self.cut = True
        CutOff(self.context.closer, transport, on_closed=self._lingered)

    def _lingered(self) -> None:
        self.transport = None
        self._gone()

    def reset(self) -> None:
        """Reset the connection at once."""
        reset(self.transport)

    def is_closing(self) -> bool:
        """Return whether it is closed or about to be."""
        return self.transport is None or self.transport.is_closing()

    def detach(self) -> asyncio.Transport | None:
        """Release the transport for good and return it; None if it is closing."""
        transport, self.transport = self.transport, None
        self.context.closer.forget(transport)
        self.phase = _AFTER_SWITCHED[self.phase]
        self._forget()
        return None if transport is None or transport.is_closing() else transport

    def _forget(self) -> None:
        """Unregister the connection: it is closed or handed over."""
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
            self.detach()
            upstream.close()
            return
        tunnel = Tunnel(
            context=self.context,
            access_right=decision.access_right,
            browser=browser,
            app=upstream.transport,
        )
        self.context.live.replace(self, tunnel)
        self.decision, self.activity = None, UNCOUNTED
        early, full, self.inbox = self.inbox, self.write_full, b""
        upstream.exchange = self.upstream = None
        upstream.detach()
        self.detach()
        tunnel.start(browser_data=early, app_data=trailing)
        if full:
            tunnel.pause_writing()
