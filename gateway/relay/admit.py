"""Admitting requests: the decision is the core's, what it needs and what follows is done here.

A decision may need a token verified, a token marked, or the table repaired; each is an errand,
after which the request is decided again with what is then known.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, assert_never

from gateway.core.access import (
    Ask,
    Connect,
    Decision,
    Forward,
    Hand,
    Proof,
    Prove,
    Refuse,
    Repair,
)
from gateway.core.addresses import client_address
from gateway.core.answers import REFUSALS, Refusal
from gateway.core.framing import request_body
from gateway.core.headers import Facts, forwarded_fields, head_to_app, head_to_bridge, head_to_page
from gateway.core.overload import Step
from gateway.core.passage import Passage
from gateway.core.refusal_rate import COUNTED
from gateway.relay.bridge import UpgradeRequest
from gateway.relay.handed import Handed
from gateway.relay.handover import Handover
from gateway.relay.permit import Permit
from gateway.relay.transports import resume_reading
from gateway.relay.world import BearerRefused

if TYPE_CHECKING:
    from gateway.core.fields import Fields
    from gateway.core.heads import StartLine
    from gateway.relay.front import Front
    from gateway.relay.gateway import DataPath
    from shared.routes import RouteTable
    from shared.tokens import SessionClaims


class Admission:
    """Admits the requests of all connections of one data path."""

    __slots__ = ("_access", "_parts", "_path")

    def __init__(self, path: DataPath) -> None:
        self._path = path
        self._parts = path.parts
        self._access = path.access

    def admit(self, front: Front, start: StartLine, fields: Fields, beyond: bytes) -> None:
        """Send the request of *front* on its way, or refuse it; *beyond* followed its head."""
        world = self._parts.world
        if self._parts.overload.step is Step.REQUESTS:
            front.refuse("gateway_overloaded")
            return
        if world.stale:
            front.drop_permit()
            front.early = beyond
            ask = Ask(start, fields, fields.websocket)
            self._run(front, self._wake_up(front, ask))
            return
        table = world.table
        if table is None or not world.serving:
            if not self._serve_asset(front, Ask(start, fields, fields.websocket), beyond):
                front.refuse("bus_lost")
            return
        permit = front.permit
        if permit is not None and permit.covers(start, fields, table, self._parts.wall()):
            if permit.fields is fields and permit.method == start.method:
                front.relay(permit, beyond, upgrade=False)
                return
            if permit.said_so(start, fields) or self._access.comes_from_here(
                permit.passage, start.method, fields.provenance
            ):
                self._relay(front, start, fields, permit, beyond, upgrade=False)
                return
        front.drop_permit()
        ask = Ask(start, fields, fields.websocket)
        if self._serve_asset(front, ask, beyond):
            return
        front.early = beyond
        self._decide(front, ask)

    def _serve_asset(self, front: Front, ask: Ask, beyond: bytes) -> bool:
        hand = self._access.asset(ask)
        if hand is None:
            return False
        front.drop_permit()
        self._hand(front, ask, hand, self._client(front, ask), beyond)
        return True

    def _decide(
        self,
        front: Front,
        ask: Ask,
        *,
        proof: Proof | None = None,
        marked: bool = False,
        repaired: bool = False,
    ) -> None:
        table = self._parts.world.table
        if table is None:
            front.refuse("bus_lost")
            return
        decision = self._access.decide(
            ask, table=table, now=self._parts.wall(), proof=proof, repaired=repaired
        )
        self._carry_out(front, ask, decision, table, marked=marked)

    def _carry_out(
        self, front: Front, ask: Ask, decision: Decision, table: RouteTable, *, marked: bool
    ) -> None:
        if self._parts.overload.step and not front.admitted and not _has_credential(decision):
            front.refuse("gateway_overloaded")
            return
        match decision:
            case Refuse(refusal=refusal):
                front.refuse(refusal)
            case Prove(token=token):
                remembered = self._parts.bearer.remembered(token)
                if remembered is not None:
                    self._decide(front, ask, proof=remembered, marked=True)
                else:
                    self._run(front, self._prove(front, ask, token))
            case Repair():
                self._run(front, self._repair(front, ask))
            case Forward() | Connect() | Hand():
                if decision.claims is not None and not marked:
                    self._run(front, self._mark(front, ask, decision.claims))
                else:
                    self._proceed(front, ask, decision, table)
            case _:
                assert_never(decision)

    # Errands. A connection that goes, or whose right ends, cancels the one it waits for.

    def _run(self, front: Front, errand: Coroutine[Any, Any, None]) -> None:
        front.errand = self._parts.errands.run(errand, failed=front.abort)

    async def _prove(self, front: Front, ask: Ask, token: str) -> None:
        proof: Proof
        try:
            proof = await self._parts.bearer.verify(token, address=self._client(front, ask))
        except BearerRefused as refused:
            proof = REFUSALS[refused.code]
        front.errand = None
        self._decide(front, ask, proof=proof)

    async def _mark(self, front: Front, ask: Ask, claims: SessionClaims) -> None:
        """Use up the token, and decide once more: much can have happened meanwhile."""
        try:
            await self._parts.bearer.mark(claims)
        except BearerRefused as refused:
            front.errand = None
            front.refuse(refused.code)
            return
        front.errand = None
        self._decide(front, ask, proof=claims, marked=True)

    async def _wake_up(self, front: Front, ask: Ask) -> None:
        await self._parts.world.repair()
        front.errand = None
        if self._parts.world.serving:
            self._decide(front, ask)
        else:
            front.refuse("bus_lost")

    async def _repair(self, front: Front, ask: Ask) -> None:
        await self._parts.world.repair()
        front.errand = None
        self._decide(front, ask, repaired=True)

    # Proceeding

    def _proceed(
        self, front: Front, ask: Ask, decision: Forward | Connect | Hand, table: RouteTable
    ) -> None:
        client = self._client(front, ask)
        passage = passage_of(decision)
        if passage is not None and not self._parts.live.has_room(passage):
            front.refuse("too_many_connections")
            return
        beyond, front.early = front.early, b""
        match decision:
            case Forward(passage=passage, claims=claims):
                kept = claims is None and not ask.upgrade
                permit = self._permit(ask, passage, table, client, kept=kept)
                if permit is None:
                    front.refuse("session_starting")
                    return
                front.permit = permit
                front.admitted = True
                front.leave_place()
                self._parts.live.add(front)
                self._relay(front, ask.start, ask.fields, permit, beyond, upgrade=ask.upgrade)
            case Connect(passage=passage):
                self._connect(front, ask, passage, client, beyond)
            case Hand():
                self._hand(front, ask, decision, client, beyond)

    def _client(self, front: Front, ask: Ask) -> str:
        return self._address(front, ask.fields)

    def _address(self, front: Front, fields: Fields | None) -> str:
        told = fields.forwarded_for if fields is not None else None
        return client_address(front.peer, told, self._parts.site.trusted_proxies)

    def limited(self, front: Front, refusal: Refusal) -> Refusal:
        """Return *refusal*, or another where the client of *front* has drawn too many."""
        if refusal.status not in COUNTED:
            return refusal
        return self._parts.refusals.judge(refusal, self._address(front, front.reader.fields))

    def _permit(
        self, ask: Ask, passage: Passage, table: RouteTable, client: str, *, kept: bool
    ) -> Permit | None:
        target = passage.route.target
        if target is None:
            return None
        user = passage.grant.sub if passage.grant is not None else None
        facts = Facts(client_address=client, scheme=self._parts.site.scheme, user=user)
        return Permit(
            passage=passage,
            target=target,
            table=table,
            # Nobody is known on a public host: there a connection is one address' at most.
            user=f"sub {user}" if user is not None else f"address {client}",
            forwarded=forwarded_fields(ask.fields.host, facts),
            kept=kept,
        )

    @staticmethod
    def _relay(
        front: Front,
        start: StartLine,
        fields: Fields,
        permit: Permit,
        beyond: bytes,
        *,
        upgrade: bool,
    ) -> None:
        permit.fields = fields
        permit.method = start.method
        permit.tail = head_to_app(fields, permit.forwarded, upgrade=upgrade)
        front.relay(permit, beyond, upgrade=upgrade)

    def _connect(
        self, front: Front, ask: Ask, passage: Passage, client: str, beyond: bytes
    ) -> None:
        factory = self._parts.bridges.get(passage.route.kind)
        if factory is None:
            front.refuse("not_found")
            return
        offered = (ask.fields.socket_protocols or b"").decode("latin-1").split(",")
        bridge = factory(
            UpgradeRequest(
                head=head_to_bridge(ask.start, ask.fields),
                protocols=tuple(name.strip() for name in offered if name.strip()),
                passage=passage,
                client_address=client,
                live=self._parts.live,
                errands=self._parts.errands,
                ends=self._path.ends,
                turns=self._path.turns,
            )
        )
        transport = front.give_up()
        if transport is None:
            return
        transport.set_protocol(bridge)
        bridge.connection_made(transport)
        resume_reading(transport)
        if beyond:
            bridge.data_received(beyond)

    def _hand(self, front: Front, ask: Ask, hand: Hand, client: str, beyond: bytes) -> None:
        handed = Handed(
            client_address=client,
            scheme=self._parts.site.scheme,
            host=hand.host,
            sid=hand.sid,
            route=hand.route,
            grant=hand.grant,
            refusal=hand.refusal,
            holder=hand.holder,
        )
        transport = front.give_up()
        if transport is None:
            return
        handover = Handover(
            path=self._path,
            browser=transport,
            page=self._parts.pages(),
            body=request_body(ask.fields),
            passage=passage_of(hand),
            key=front.key,
            writable=front.writable,
        )
        self._path.handed.add(handover)
        resume_reading(transport)
        handover.start(handed, head_to_page(ask.start, ask.fields), beyond)


def _has_credential(decision: Decision) -> bool:
    """Say whether *decision* is about a credential that is good, or has still to be proven."""
    match decision:
        case Prove() | Repair():
            return True
        case Forward() | Connect() | Hand():
            passage = passage_of(decision)
            return passage is not None and passage.grant is not None
        case _:
            return False


def passage_of(decision: Forward | Connect | Hand) -> Passage | None:
    """Return the right by which *decision* lets a request in; None where it asks for none."""
    if not isinstance(decision, Hand):
        return decision.passage
    if decision.route is None or decision.grant is None:
        return None
    return Passage(route=decision.route, host=decision.host, grant=decision.grant)
