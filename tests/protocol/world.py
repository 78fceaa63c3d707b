"""A leader, its store, and followers around one Redis in memory, with the protocol's invariants."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any, cast

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gateway.bus.follower import Follower
from gateway.bus.head_policy import HeadPolicy
from gateway.core.bus_state import BusClock
from shared.bus import HEARTBEAT_SECONDS, BusReader, Keys, Publisher
from shared.errors import BusUnavailable, PublishRefused
from shared.events import GrantRevoked, event_time
from shared.jose.jws import read_key_set
from shared.jose.signing_keys import public_key_set
from shared.routes.route import RouteReader, digest
from shared.routes.signed_table import TableSigner, TableVerifier
from tests.gateway.bus.following import make_route, sid_of
from tests.protocol.memory import Client, Server
from tests.protocol.virtual import VirtualLoop

KEYS = Keys("test")
KEY = Ed25519PrivateKey.generate()
SIGNER = TableSigner(KEY, instance="test")
PUBLIC = read_key_set(json.dumps(public_key_set([KEY])).encode())
BOUND_SECONDS = 4.0
"""Within this a follower whose bus is healthy knows: a lost event, by its look at the head; and a
loss of Redis, by the leader's heartbeat, what it builds anew, and the look."""
WALL = 1_800_000_000.0


class Store:
    """The intended state: the truth."""

    def __init__(self) -> None:
        self.routes: dict[str, bytes] = {}
        self.revoked: dict[str, tuple[float, GrantRevoked]] = {}
        self.gone: dict[str, float] = {}
        self.term = 0


class Leader:
    """The controller's part: makes Redis equal to the store, while its fencing token is valid."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._store = world.store
        self._store.term += 1
        self.client = Client(world.server)
        self.bus = Publisher(
            cast(Any, self.client), KEYS, term=self._store.term, signer=world.signer
        )
        self.told: dict[str, bytes] = {}
        self.revoked: set[tuple[str, float]] = set()
        self._then: Callable[[], None] | None = None
        self._beat_at = 0.0
        self.task = asyncio.get_running_loop().create_task(self._lead())

    async def _lead(self) -> None:
        built, lost = False, False
        while True:
            try:
                if not built:
                    await self._rebuild(lost=lost)
                    built, lost = True, False
                if self._then is not None:
                    await self.bus.settle()
                    then, self._then = self._then, None
                    then()
                await self._round()
            except PublishRefused as refused:
                if refused.reason == "term":
                    return
                built, lost, self._then = False, True, None
            except BusUnavailable:
                await asyncio.sleep(0.25)

    async def _rebuild(self, *, lost: bool) -> None:
        lost = lost or await self.bus.has_lost()
        routes, stored = dict(self._store.routes), dict(self._store.revoked)
        revoked = {member: event.revocation().score for member, (_, event) in stored.items()}
        now = self._world.wall()
        epoch = f"epoch-{self._world.next()}"
        await self.bus.rebuild(routes, revoked, epoch=epoch, now=now, since=now if lost else None)
        self.told, self._then = routes, None
        self.revoked = {(member, at) for member, (at, _) in stored.items()}

    async def _tell(self, call: Any, then: Callable[[], None]) -> None:
        try:
            await call
        except BusUnavailable:
            self._then = then
            raise
        then()

    def _forget(self, sid: str) -> None:
        del self.told[sid]

    async def _round(self) -> None:
        now = self._world.wall()
        for member, (at, event) in list(self._store.revoked.items()):
            if (member, at) not in self.revoked:
                call = self.bus.revoke(at=at, sid=event.sid, sub=event.sub, kid=event.kid)
                await self._tell(call, partial(self.revoked.add, (member, at)))
        for sid in [sid for sid in self.told if sid not in self._store.routes]:
            call = self.bus.remove(sid, "ended", now=now)
            await self._tell(call, partial(self._forget, sid))
        for sid, raw in list(self._store.routes.items()):
            if self.told.get(sid) != raw:
                call = self.bus.upsert(sid, raw, now=now)
                await self._tell(call, partial(self.told.__setitem__, sid, raw))
        if self._world.loop.now >= self._beat_at:
            self._beat_at = self._world.loop.now + HEARTBEAT_SECONDS
            await self._tell(self.bus.beat(now=now), lambda: None)
        await asyncio.sleep(0.05)


class Gateway:
    """A follower, and the sessions that it once knew."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.client = Client(world.server)
        self.ahead = 0.0
        self.known: set[str] = set()
        self.follower = Follower(
            BusReader(cast(Any, self.client), KEYS),
            RouteReader(),
            clock=BusClock(bus_grace_seconds=300, controller_grace_seconds=300),
            monotonic=lambda: world.loop.now + self.ahead,
            wall=world.wall,
            random=world.random.random,
            on_change=lambda _sids: self.check(),
            on_closed=lambda: None,
            policy=world.policy(lambda: world.loop.now + self.ahead),
        )
        self.task = asyncio.get_running_loop().create_task(self.follower.run())

    def check(self) -> None:
        """Assert that the table always holds every valid session that this gateway knew."""
        table = self.follower.table
        if table is None:
            return
        self.known |= set(table)
        # Sessions that the gateway knew and that were never withdrawn.
        missing = {sid for sid in self.known if sid in self._world.store.routes} - set(table)
        assert not missing, f"good sessions were refused: {missing}"


class World:
    """The whole system, on a loop with virtual time."""

    def __init__(self, seed: int, *, gateways: int = 2, signed: bool = False) -> None:
        self.signer = SIGNER if signed else None
        self.random = Random(seed)
        self.loop = VirtualLoop()
        self.server = Server(self.random)
        self.store = Store()
        self.faulty_at = 0.0
        self.leader: Leader | None = None
        self.gateways: list[Gateway] = []
        self._count = 0
        self._last_change: dict[str, float] = {}
        self.run(self._start(gateways))

    async def _start(self, gateways: int) -> None:
        self.leader = Leader(self)
        self.gateways = [Gateway(self) for _ in range(gateways)]

    def policy(self, monotonic: Callable[[], float]) -> HeadPolicy:
        """Return the policy by which a gateway accepts heads."""
        verifier = None if self.signer is None else TableVerifier(PUBLIC, instance="test")
        return HeadPolicy(verifier, wall=self.wall, monotonic=monotonic, max_age_seconds=300)

    def run(self, work: Any) -> Any:
        """Return the result of *work*."""
        return self.loop.run_until_complete(work)

    def wall(self) -> float:
        """Return the Unix time in seconds."""
        return WALL + self.loop.now

    def next(self) -> int:
        """Return a number that was never returned before."""
        self._count += 1
        return self._count

    # Operations

    def upsert(self, number: int) -> None:
        """Add a session, or change its target."""
        sid = sid_of(number)
        if sid in self.store.gone:
            return
        rev = self.next()
        route = make_route(sid, rev=rev)
        route["target"]["id"] = f"pod-{rev}"
        self.store.routes[sid] = msgspec.json.encode(route)
        self._last_change[sid] = self.loop.now

    def remove(self, number: int) -> None:
        """Remove a session for good."""
        sid = sid_of(number)
        if self.store.routes.pop(sid, None) is not None:
            self.store.gone[sid] = self._last_change[sid] = self.loop.now

    def revoke(self, number: int, *, notice: bool) -> None:
        """Revoke a user's grants; with *notice*, from a replica that does not lead."""
        at = event_time(self.wall())
        event = GrantRevoked(epoch="-", seq=0, at=at, sid=sid_of(number), sub="ada")
        member = event.revocation().member
        self.store.revoked[member] = (at.timestamp(), event)
        self._last_change[member] = self.loop.now
        if notice:
            replica = Publisher(
                cast(Any, Client(self.server)), KEYS, term=self.store.term, signer=self.signer
            )
            self.loop.create_task(_quietly(replica.notice(event)))

    # Faults

    def fault(self) -> None:
        """Record that a fault happened now."""
        self.faulty_at = self.loop.now

    def change_leader(self, *, old_goes_on: bool) -> None:
        """Make another controller the leader; the previous leader may not know for a while."""
        assert self.leader is not None
        if not old_goes_on:
            self.leader.task.cancel()

        async def start() -> None:
            self.leader = Leader(self)

        self.run(start())
        self.fault()

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and check the invariants."""
        self.run(asyncio.sleep(seconds))
        self.check()

    # Invariants

    @property
    def is_faulty(self) -> bool:
        """Return whether a current fault suspends the time bound."""
        assert self.leader is not None
        clients = [self.leader.client, *(one.client for one in self.gateways)]
        cut = any(client.cut for client in clients)
        return cut or not self.server.alive or self.server.silence > 0

    def check(self) -> None:
        """Assert what must hold at every moment."""
        if self.is_faulty:
            self.fault()
        for gateway in self.gateways:
            if gateway.task.done():
                gateway.task.result()
            gateway.check()
            table = gateway.follower.table
            # Nobody forges here: whatever the faults, all data in Redis is what a leader signed.
            assert gateway.follower.noted["unproven"] == 0
            assert table is None or (table.proof is None) == (self.signer is None)
            if self.loop.now - self.faulty_at > BOUND_SECONDS:
                self._check_withdrawn(gateway)

    def _check_withdrawn(self, gateway: Gateway) -> None:
        table = gateway.follower.table
        assert table is not None
        since = self.loop.now - BOUND_SECONDS
        for name, at in self._last_change.items():
            if at >= since:
                continue
            if name in self.store.revoked:
                assert table.revocations.get(name) is not None, f"{name} is let in"
            elif name in self.store.routes:
                assert name in table, f"{name} is not served"
                held = table.entry(name)
                assert held is not None
                assert held.digest == digest(name, self.store.routes[name]), f"{name} is stale"
            else:
                assert name not in table, f"{name} is served though it ended"

    def rest(self) -> None:
        """End all faults; after a while all gateways must have the same table."""
        assert self.leader is not None
        if not self.server.alive:
            self.server.start()
        self.server.loss = self.server.silence = 0.0
        for client in (self.leader.client, *(one.client for one in self.gateways)):
            client.cut = False
        self.fault()
        self.pass_time(BOUND_SECONDS + 2)
        wanted = 0
        for sid, raw in self.store.routes.items():
            wanted ^= digest(sid, raw)
        for gateway in self.gateways:
            table = gateway.follower.table
            assert table is not None
            assert table.hash == wanted
            assert (table.epoch, table.seq) == (self.leader.bus.epoch, self.leader.bus.seq)
            assert set(self.store.revoked) <= set(table.revocations)
            assert gateway.follower.opening

    def close(self) -> None:
        """Close everything."""
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        self.run(asyncio.gather(*tasks, return_exceptions=True))
        self.loop.close()


async def _quietly(call: Any) -> None:
    with suppress(BusUnavailable, PublishRefused):
        await call
