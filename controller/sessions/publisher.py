"""Keeps what gateways are told equal to what should be, over Redis.

Level-triggered: whoever changes something says of which job, and the routes of its sessions are
made anew from store and cluster and compared with what was published. One task does it all, so
that publishes and heartbeats are one sequence. Whenever Redis holds anything else than expected,
everything is published anew under a new epoch (docs/proxy-events.md).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import Any, Final, Literal

import msgspec

from controller.sessions.desired import Desired, DesiredRoutes
from controller.sessions.interval import Interval
from controller.sessions.restored import take_back
from controller.sessions.snapshot import SessionsSnapshot, SnapshotReader
from controller.sessions.statuses import ended_status
from controller.store.database import Store
from controller.store.errors import LeadershipLost, StoreUnavailable
from controller.store.instance import raise_term_to, read_store_metadata, record_published
from controller.store.jobs.job_rows import JobRecord
from controller.store.sessions.revocations import StoredRevocation
from shared.bus import HEARTBEAT_SECONDS, Publisher
from shared.errors import BusUnavailable, PublishRefused
from shared.link import Seal
from shared.log import Outage
from shared.routes.route import Route, digest, encode_route

LOOK_SECONDS: Final = 0.5
"""How soon is noticed what another process wrote into the store, should nobody tell."""
RESYNC_SECONDS: Final = 60.0
PAUSE_SECONDS: Final = 0.25
PATIENCE_SECONDS: Final = 2.0
YIELD_SECONDS: Final = 60.0
"""For how long nothing is published where another store's controller was there before."""
RIVAL: Final = (
    "another controller, with another store, publishes to this Redis under the same instance"
)
APART_SECONDS: Final = 0.02
"""Between two looks: what a burst of jobs changes meanwhile is looked at together."""
_EPOCH_BYTES: Final = 16

log = logging.getLogger(__name__)


class RoutePublisher:
    """Publishes routes and revocations, as the leader of one term.

    Args:
        store: Sessions, jobs, revocations.
        bus: Redis.
        desired: Says what should be there.
        seal: Hides passwords from everybody but gateways.
        clock: Unix seconds.
        revision: The store's when the term began.
        monotonic: Seconds that go on evenly, for heartbeats.
        sleep: Returns after so many seconds.
    """

    def __init__(
        self,
        *,
        store: Store,
        bus: Publisher,
        desired: DesiredRoutes,
        seal: Seal,
        clock: Callable[[], float],
        random: Callable[[int], bytes],
        revision: int,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._store = store
        self._bus = bus
        self._desired = desired
        self._seal = seal
        self._clock = clock
        self._random = random
        self._began_at = revision
        self._published: dict[str, Desired] = {}
        self._sids_of: dict[str, set[str]] = {}
        self._world = SnapshotReader(store, term=bus.term)
        self._woken = asyncio.Event()
        self._news = asyncio.Event()
        self._rev = 0
        self._sleep = sleep
        self._beat = Interval(HEARTBEAT_SECONDS, monotonic)
        self._resync = Interval(RESYNC_SECONDS, monotonic)
        self._apart = Interval(APART_SECONDS, monotonic)
        self._remembered = ("", -1)
        self._digests: dict[str, int] = {}
        self._hash = 0
        self._built = False
        self._took_back = False
        self._came_second = False
        self._rival: Interval | None = None
        self._monotonic = monotonic
        self._unsure: Callable[[], None] | None = None
        self._trouble = ""
        self._outage = Outage(
            log, begins="routes cannot be published", ends="routes are published again"
        )
        self._unread = Outage(log, begins="changes cannot be read", ends="changes are read again")

    def enqueue(self, job_id: str) -> None:
        """Have the job's sessions and all revocations looked at, soon."""
        self._world.dirty_set.add([job_id])
        self._woken.set()

    def job_changed(self, job_id: str) -> None:
        """Have the sessions of a job looked at, soon, if it has any; also those of a tool's."""
        job_id = self._desired.job_of(job_id)
        if self._world.concerns(job_id):
            self.enqueue(job_id)

    def look_at_store(self) -> None:
        """Have looked, at once, at what another process has written."""
        self._woken.set()

    def state_of(self, sid: str) -> Literal["starting", "ready"]:
        """Return how the session's route was last published."""
        desired = self._published.get(sid)
        return "ready" if desired is not None and desired.route.state == "ready" else "starting"

    @property
    def is_published(self) -> bool:
        """Whether Redis holds what should be, as far as is known."""
        return self._built and self._unsure is None

    @property
    def problems(self) -> tuple[str, ...]:
        """Why Redis does not hold what should be: for readiness."""
        rival = (RIVAL,) if self._rival is not None and not self._rival.is_due else ()
        if self.is_published:
            return rival
        return tuple(filter(None, ("routes are not published to Redis", self._trouble, *rival)))

    @property
    def count(self) -> int:
        """How many routes are published."""
        return len(self._published)

    def routes(self) -> list[Route]:
        """Return what is published."""
        return [desired.route for desired in self._published.values()]

    def describe(self) -> dict[str, Any]:
        """Return where gateways should stand, to be compared with where they do."""
        return {
            "published": self.is_published,
            "term": self._bus.term,
            "epoch": self._bus.epoch,
            "seq": self._bus.seq,
            "hash": f"{self._hash:016x}",
            "routes": len(self._published),
            "changed_jobs": len(self._world.dirty_set),
        }

    async def until_published(self, sids: Collection[str]) -> None:
        """Return when gateways have been told of these sessions, after two seconds at the latest.

        So that whoever is sent to a session right after it was opened finds it there.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not all(sid in self._published for sid in sids):
                    await self._news.wait()

    async def run(self) -> None:
        """Publish until cancelled; the informer cache must be complete.

        Raises:
            LeadershipLost: If another one leads.
        """
        lost = False
        while True:
            try:
                if not self._built:
                    await self._rebuild(data_lost=lost)
                    self._trouble = ""
                    self._outage.passed()
                await self._settle()
                await self._round()
            except PublishRefused as error:
                outranked = error.reason == "term"
                if outranked and not await self._is_outranked_by_a_rival():
                    await self._outgrow()
                    raise LeadershipLost("another controller publishes") from error
                # It holds something else than it had acknowledged, so nobody knows what else.
                self._built, self._unsure, lost = False, None, True
                self._trouble = str(error)
                log.warning("Redis holds something else", extra={"what": error.reason})
                if outranked or error.reason == "epoch":
                    await self._give_way(outranked=outranked)
            except (BusUnavailable, StoreUnavailable) as error:
                self._trouble = str(error)
                self._outage.failed(error)
                await self._sleep(PAUSE_SECONDS)

    # One after another

    async def _round(self) -> None:
        """Wait for something to do, and do it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(min(LOOK_SECONDS, self._beat.left_seconds)):
                await self._woken.wait()
        await self._sleep(self._apart.left_seconds)
        self._apart.begin()
        self._woken.clear()
        try:
            await self._keep_up()
        except StoreUnavailable as error:
            # What is published stays as it is, and gateways must not take us for dead.
            self._unread.failed(error)
        else:
            self._unread.passed()
        if self._beat.is_due:
            self._beat.begin()
            await self._tell(self._bus.beat(now=self._clock()), lambda: None)

    async def _keep_up(self) -> None:
        snapshot = await self._world.next(now=self._clock(), routed=self._sids_of.keys())
        try:
            await self._catch_up(snapshot)
        except (BusUnavailable, StoreUnavailable):
            # By any other error it has lost leadership, or everything is published anew.
            self._world.dirty_set.add(snapshot.jobs)
            raise
        self._world.dealt_with(snapshot)
        await self._remember()
        if self._resync.is_due:
            await self._world.look_at_all(self._sids_of.keys(), now=self._clock())
            self._resync.begin()
        if self._world.dirty_set:
            self._woken.set()

    async def _catch_up(self, snapshot: SessionsSnapshot) -> None:
        """Publish what has changed of the jobs, and all new revocations."""
        # Who was shut out is told before anybody is let in, and whatever becomes of routes.
        for revocation in snapshot.revocations:
            await self._revoke(revocation)
        desired = await self._desired.of(snapshot.sessions, snapshot.records, snapshot.hubs)
        for job_id in sorted(snapshot.jobs):
            for sid in sorted(self._sids_of.get(job_id, set()) - desired.keys()):
                await self._remove(sid, snapshot.records.get(job_id))
        for sid, one in desired.items():
            # Publishing takes its time: nobody is led to a pod that went meanwhile.
            if self._published.get(sid) != one and self._desired.holds(one):
                await self._upsert(one)

    # Telling it

    async def _tell(self, call: Awaitable[None], then: Callable[[], None]) -> None:
        """Publish; *then* is what it means here, also where the answer comes only later."""
        try:
            await call
        except BusUnavailable:
            self._unsure = then
            # Once Redis answers again: does it still hold what it did?
            self._beat.make_due()
            raise
        self._outage.passed()
        then()

    async def _settle(self) -> None:
        """Find out what became of a call that was not answered, before anything else is told."""
        if self._unsure is not None:
            await self._bus.settle()
            then, self._unsure = self._unsure, None
            then()

    async def _upsert(self, desired: Desired) -> None:
        sid, raw = desired.route.sid, self._encode(desired)

        def then() -> None:
            self._note(desired, raw)
            self._tell_waiting()

        await self._tell(self._bus.upsert(sid, raw, now=self._clock()), then)

    def _note(self, desired: Desired, raw: bytes) -> None:
        sid = desired.route.sid
        self._published[sid] = desired
        self._sids_of.setdefault(desired.route.job, set()).add(sid)
        share = digest(sid, raw)
        self._hash ^= self._digests.get(sid, 0) ^ share
        self._digests[sid] = share

    def _tell_waiting(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def _remove(self, sid: str, record: JobRecord | None) -> None:
        now = self._clock()
        status = ended_status(self._published[sid].route, record, now=now)
        call = self._bus.remove(sid, "ended", now=now, status=status)
        await self._tell(call, lambda: self._forget(sid))

    def _forget(self, sid: str) -> None:
        job = self._published.pop(sid).route.job
        self._hash ^= self._digests.pop(sid)
        self._sids_of[job].discard(sid)
        if not self._sids_of[job]:
            del self._sids_of[job]

    async def _revoke(self, one: StoredRevocation) -> None:
        call = self._bus.revoke(at=one.at, sid=one.sid, jti=one.jti, sub=one.sub, kid=one.kid)
        await self._tell(call, lambda: None)

    def _encode(self, desired: Desired) -> bytes:
        # Milliseconds: so revisions go up also over a restart of ours.
        rev = self._rev = max(self._rev + 1, int(self._clock() * 1000))
        route: dict[str, Any] = msgspec.to_builtins(desired.route) | {"rev": rev}
        del route["epoch"]  # for signed routes only
        if desired.password is not None:
            route["sealed"] = self._seal.seal(
                {"vnc_password": desired.password},
                sid=desired.route.sid,
                rev=rev,
                random=self._random,
            )
        return encode_route(route)

    async def _outgrow(self) -> None:
        """Have the next leader win, where Redis holds what another store's leaders published.

        A store from which nothing was ever published cannot be that of a leader who was replaced.
        """
        try:
            head, foreign = await self._bus.head(), await self._is_of_another_store()
            async with self._store.write() as transaction:
                is_new = (await read_store_metadata(transaction)).epoch is None
                if head is not None and (foreign or is_new):
                    await raise_term_to(transaction, head.term)
        except (BusUnavailable, StoreUnavailable) as error:
            log.warning("a new store's term cannot be raised", extra={"why": str(error)})

    async def _is_outranked_by_a_rival(self) -> bool:
        """Say whether the higher term is that of another store's leader, who publishes still.

        To lead no more would change nothing: whoever leads next here has a lower one, too.
        """
        with suppress(BusUnavailable, StoreUnavailable):
            return await self._is_of_another_store() and await self._bus.hears_another()
        return False

    async def _give_way(self, *, outranked: bool) -> None:
        """Wait where another store's controller publishes, and was there before or *outranked* us.

        Two whose instance is the same by mistake would end each other's sessions every second.
        """
        with suppress(BusUnavailable, StoreUnavailable):
            if await self._is_of_another_store():
                self._rival = Interval(3 * YIELD_SECONDS, self._monotonic)
                self._rival.begin()
                gives_way = outranked or self._came_second
                log.error(RIVAL, extra={"gives_way": gives_way})
                if gives_way:
                    await self._sleep(YIELD_SECONDS)

    async def _is_of_another_store(self) -> bool:
        """Say whether what stands in Redis was published from another store."""
        noted = await self._bus.noted_store()
        async with self._store.read() as transaction:
            own = (await read_store_metadata(transaction)).identity
        return noted not in ("", own)

    # Everything anew

    async def _rebuild(self, *, data_lost: bool) -> None:
        """Publish everything under a new epoch.

        Args:
            data_lost: Redis is known to have lost something, whatever its head says.

        Raises:
            PublishRefused: ``term`` if another one leads.
            BusUnavailable, StoreUnavailable: If it could not be done.
        """
        now = self._clock()
        head = await self._bus.head()
        if not self._took_back:
            # Before anything replaces what Redis knows, unless that was found to be damaged.
            self._came_second = await self._is_of_another_store()
            await take_back(self._store, self._bus, revision=self._began_at, now=now)
            self._took_back = True
        data_lost = data_lost or await self._bus.has_lost()
        snapshot, since = await self._world.everything(head, data_lost=data_lost, now=now)
        desired = await self._desired.of(snapshot.sessions, snapshot.records, snapshot.hubs)
        routes = {sid: self._encode(one) for sid, one in desired.items()}
        revoked = {one.member: one.score for one in snapshot.revocations}
        epoch = self._random(_EPOCH_BYTES).hex()
        await self._bus.rebuild(routes, revoked, epoch=epoch, now=now, since=since)
        self._published, self._sids_of, self._digests, self._hash = {}, {}, {}, 0
        for sid, one in desired.items():
            self._note(one, routes[sid])
        self._world.dealt_with(snapshot)
        self._beat.begin()
        await self._remember()
        self._built, self._unsure = True, None
        self._tell_waiting()
        # A revocation that came into the store since it was read above is not in this epoch yet.
        self._woken.set()
        log.info("routes are published anew", extra={"epoch": epoch, "routes": len(routes)})

    async def _remember(self) -> None:
        """Remember how far Redis was told: so it is noticed when it has forgotten."""
        told = (self._bus.epoch, self._bus.seq)
        if told != self._remembered:
            async with self._store.lead(self._bus.term) as transaction:
                await record_published(transaction, epoch=told[0], seq=told[1])
                identity = (await read_store_metadata(transaction)).identity
            await self._bus.note_store(identity, self._world.revision)
            self._remembered = told
