"""Keeps Redis equal to the desired routes and revocations.

The publisher is level-triggered. A change names only its job; the routes of the job's sessions are
then computed from store and cluster, and compared with what was published. One task does all of
this, so that events and heartbeats form one sequence. Whenever Redis holds something else than
expected, everything is published again under a new epoch (docs/proxy-events.md).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import Any, Final, Literal, TypeAlias

import msgspec

from controller.sessions.desired import Desired, DesiredRoutes
from controller.sessions.interval import Interval
from controller.sessions.restored import recover_from_redis
from controller.sessions.snapshot import SessionsSnapshot, SnapshotReader
from controller.sessions.statuses import ended_status
from controller.store.database import FencedStore
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
"""Poll interval for changes of other processes whose notification was lost."""
RESYNC_SECONDS: Final = 60.0
PAUSE_SECONDS: Final = 0.25
PATIENCE_SECONDS: Final = 2.0
YIELD_SECONDS: Final = 60.0
"""The time for which nothing is published if another store's controller came first."""
RIVAL: Final = (
    "another controller, with another store, publishes to this Redis under the same instance"
)
APART_SECONDS: Final = 0.02
"""Pause between two rounds, so that a burst of changes is handled together."""
_EPOCH_BYTES: Final = 16

Routed: TypeAlias = Literal["starting", "ready"]

log = logging.getLogger(__name__)


class RoutePublisher:
    """Publishes routes and revocations, as the leader of one term.

    Args:
        store: Sessions, jobs, revocations.
        bus: Publishes to Redis.
        desired: Computes the desired routes.
        seal: Seals passwords for gateways.
        clock: Unix seconds.
        revision: The store's revision at the beginning of the term.
        monotonic: Monotonic seconds, for heartbeats.
        sleep: Sleeps for a number of seconds.
    """

    def __init__(
        self,
        *,
        store: FencedStore,
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
        self._snapshots = SnapshotReader(store, monotonic=monotonic)
        self._woken = asyncio.Event()
        self._published_event = asyncio.Event()
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
            log, begins="cannot publish routes", ends="routes are published again"
        )
        self._unread = Outage(
            log, begins="cannot read changes of sessions", ends="changes of sessions are read again"
        )

    def enqueue(self, job_id: str) -> None:
        """Have the job's sessions and all revocations published soon."""
        self._snapshots.dirty_set.add([job_id])
        self._woken.set()

    def job_changed(self, job_id: str) -> None:
        """Have the sessions of a job, or of its tools, published soon if there are any."""
        job_id = self._desired.job_of(job_id)
        if self._snapshots.concerns(job_id):
            self.enqueue(job_id)

    def look_at_store(self) -> None:
        """Read the changes of other processes from the store now."""
        self._woken.set()

    def state_of(self, sid: str) -> Routed:
        """Return the session's state as last published."""
        desired = self._published.get(sid)
        return "ready" if desired is not None and desired.route.state == "ready" else "starting"

    @property
    def is_published(self) -> bool:
        """Whether Redis holds the desired state, as far as is known."""
        return self._built and self._unsure is None

    @property
    def problems(self) -> tuple[str, ...]:
        """Why Redis does not hold the desired state: for readiness."""
        rival = (RIVAL,) if self._rival is not None and not self._rival.is_due else ()
        if self.is_published:
            return rival
        return tuple(filter(None, ("routes are not published to Redis", self._trouble, *rival)))

    @property
    def count(self) -> int:
        """The number of published routes."""
        return len(self._published)

    def routes(self) -> list[Route]:
        """Return the published routes."""
        return [desired.route for desired in self._published.values()]

    def describe(self) -> dict[str, Any]:
        """Return the position that gateways should have reached, for comparison with theirs."""
        return {
            "published": self.is_published,
            "term": self._bus.term,
            "epoch": self._bus.epoch,
            "seq": self._bus.seq,
            "hash": f"{self._hash:016x}",
            "routes": len(self._published),
            "changed_jobs": len(self._snapshots.dirty_set),
        }

    async def until_published(self, sids: Collection[str]) -> None:
        """Return when these sessions are published, after two seconds at the latest.

        So a user who is sent to a session right after its opening finds it.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not all(sid in self._published for sid in sids):
                    await self._published_event.wait()

    async def run(self) -> None:
        """Publish until cancelled; the informer cache must be complete.

        Raises:
            LeadershipLost: If another controller leads.
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
                    await self._raise_term_above_redis()
                    raise LeadershipLost("another controller publishes") from error
                # Redis lacks an acknowledged event, so that all of its content is in doubt.
                self._built, self._unsure, lost = False, None, True
                self._trouble = str(error)
                log.warning("Redis does not hold what was published", extra={"what": error.reason})
                if outranked or error.reason == "epoch":
                    await self._yield_to_rival(outranked=outranked)
            except (BusUnavailable, StoreUnavailable) as error:
                self._trouble = str(error)
                self._outage.failed(error)
                await self._sleep(PAUSE_SECONDS)

    # Rounds

    async def _round(self) -> None:
        """Wait for a change or a heartbeat, and handle it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(min(LOOK_SECONDS, self._beat.left_seconds)):
                await self._woken.wait()
        await self._sleep(self._apart.left_seconds)
        self._apart.begin()
        self._woken.clear()
        try:
            await self._publish_next()
        except StoreUnavailable as error:
            # Published routes stay, and heartbeats must go on.
            self._unread.failed(error)
        else:
            self._unread.passed()
        if self._beat.is_due:
            self._beat.begin()
            await self._publish(self._bus.beat(now=self._clock()), lambda: None)

    async def _publish_next(self) -> None:
        snapshot = await self._snapshots.next(now=self._clock(), routed=self._sids_of.keys())
        try:
            await self._publish_snapshot(snapshot)
        except (BusUnavailable, StoreUnavailable):
            # After other errors, leadership is lost or everything is published again.
            self._snapshots.dirty_set.add(snapshot.jobs)
            raise
        self._snapshots.mark_done(snapshot)
        await self._record_position()
        if self._resync.is_due:
            await self._snapshots.resync(self._sids_of.keys(), now=self._clock())
            self._resync.begin()
        if self._snapshots.dirty_set:
            self._woken.set()

    async def _publish_snapshot(self, snapshot: SessionsSnapshot) -> None:
        """Publish the changes of the jobs, and all new revocations."""
        # Revocations come before new routes, and do not depend on the routes.
        for revocation in snapshot.revocations:
            await self._revoke(revocation)
        desired = await self._desired.of(snapshot.sessions, snapshot.records, snapshot.hubs)
        for job_id in sorted(snapshot.jobs):
            for sid in sorted(self._sids_of.get(job_id, set()) - desired.keys()):
                await self._remove(sid, snapshot.records.get(job_id))
        for sid, one in desired.items():
            # Publishing takes time: a route must not lead to a pod that has gone meanwhile.
            if self._published.get(sid) != one and self._desired.holds(one):
                await self._upsert(one)

    # Publishing

    async def _publish(self, call: Awaitable[None], then: Callable[[], None]) -> None:
        """Publish an event; *then* applies it here, also if the response arrives only later."""
        try:
            await call
        except BusUnavailable:
            self._unsure = then
            # The next heartbeat checks whether Redis still holds the rest.
            self._beat.make_due()
            raise
        self._outage.passed()
        then()

    async def _settle(self) -> None:
        """Find out the outcome of a call without a response, before anything else is published."""
        if self._unsure is not None:
            await self._bus.settle()
            then, self._unsure = self._unsure, None
            then()

    async def _upsert(self, desired: Desired) -> None:
        sid, raw = desired.route.sid, self._encode(desired)

        def then() -> None:
            self._note(desired, raw)
            self._wake_waiters()

        await self._publish(self._bus.upsert(sid, raw, now=self._clock()), then)

    def _note(self, desired: Desired, raw: bytes) -> None:
        sid = desired.route.sid
        self._published[sid] = desired
        self._sids_of.setdefault(desired.route.job, set()).add(sid)
        share = digest(sid, raw)
        self._hash ^= self._digests.get(sid, 0) ^ share
        self._digests[sid] = share

    def _wake_waiters(self) -> None:
        self._published_event.set()
        self._published_event = asyncio.Event()

    async def _remove(self, sid: str, record: JobRecord | None) -> None:
        now = self._clock()
        status = ended_status(self._published[sid].route, record, now=now)
        call = self._bus.remove(sid, "ended", now=now, status=status)
        await self._publish(call, lambda: self._forget(sid))

    def _forget(self, sid: str) -> None:
        job = self._published.pop(sid).route.job
        self._hash ^= self._digests.pop(sid)
        self._sids_of[job].discard(sid)
        if not self._sids_of[job]:
            del self._sids_of[job]

    async def _revoke(self, one: StoredRevocation) -> None:
        call = self._bus.revoke(at=one.at, sid=one.sid, jti=one.jti, sub=one.sub, kid=one.kid)
        await self._publish(call, lambda: None)

    def _encode(self, desired: Desired) -> bytes:
        # Milliseconds, so that revisions also increase over a restart of this process.
        rev = self._rev = max(self._rev + 1, int(self._clock() * 1000))
        route: dict[str, Any] = msgspec.to_builtins(desired.route) | {"rev": rev}
        del route["epoch"]  # only signed routes have one
        if desired.password is not None:
            route["sealed"] = self._seal.seal(
                {"vnc_password": desired.password},
                sid=desired.route.sid,
                rev=rev,
                random=self._random,
            )
        return encode_route(route)

    async def _raise_term_above_redis(self) -> None:
        """Let the next leader win if another store's leaders have published to this Redis.

        A store from which nothing was published cannot be that of a replaced leader.
        """
        try:
            head, foreign = await self._bus.head(), await self._is_of_another_store()
            async with self._store.unfenced.write() as transaction:
                is_new = (await read_store_metadata(transaction)).epoch is None
                if head is not None and (foreign or is_new):
                    await raise_term_to(transaction, head.term)
        except (BusUnavailable, StoreUnavailable) as error:
            log.warning("cannot raise the term of a new store", extra={"why": str(error)})

    async def _is_outranked_by_a_rival(self) -> bool:
        """Return whether the higher term belongs to another store's leader that still publishes.

        Giving up leadership would not help: the next leader here has a lower term too.
        """
        with suppress(BusUnavailable, StoreUnavailable):
            return await self._is_of_another_store() and await self._bus.hears_another()
        return False

    async def _yield_to_rival(self, *, outranked: bool) -> None:
        """Wait if another store's controller publishes, and came first or *outranked* this one.

        Two installations with the same instance by mistake would else end each other's sessions
        every second.
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
        """Return whether the content of Redis was published from another store."""
        noted = await self._bus.noted_store()
        async with self._store.read() as transaction:
            own = (await read_store_metadata(transaction)).identity
        return noted not in ("", own)

    # Rebuild

    async def _rebuild(self, *, data_lost: bool) -> None:
        """Publish everything under a new epoch.

        Args:
            data_lost: Redis is known to have lost something, whatever its head says.

        Raises:
            PublishRefused: With reason ``term`` if another controller leads.
            BusUnavailable, StoreUnavailable: If Redis or the store does not respond.
        """
        now = self._clock()
        head = await self._bus.head()
        if not self._took_back:
            # Before the content of Redis is replaced, unless it was found to be damaged.
            self._came_second = await self._is_of_another_store()
            await recover_from_redis(self._store, self._bus, revision=self._began_at, now=now)
            self._took_back = True
        data_lost = data_lost or await self._bus.has_lost()
        snapshot, since = await self._snapshots.everything(head, data_lost=data_lost, now=now)
        desired = await self._desired.of(snapshot.sessions, snapshot.records, snapshot.hubs)
        routes = {sid: self._encode(one) for sid, one in desired.items()}
        revoked = {one.member: one.score for one in snapshot.revocations}
        epoch = self._random(_EPOCH_BYTES).hex()
        await self._bus.rebuild(routes, revoked, epoch=epoch, now=now, since=since)
        self._published, self._sids_of, self._digests, self._hash = {}, {}, {}, 0
        for sid, one in desired.items():
            self._note(one, routes[sid])
        self._snapshots.mark_done(snapshot)
        self._beat.begin()
        await self._record_position()
        self._built, self._unsure = True, None
        self._wake_waiters()
        # A revocation that was stored after the read above is not in this epoch yet.
        self._woken.set()
        log.info(
            "published all routes under a new epoch", extra={"epoch": epoch, "routes": len(routes)}
        )

    async def _record_position(self) -> None:
        """Store the position of the last event, so that a loss of data in Redis is noticed."""
        position = (self._bus.epoch, self._bus.seq)
        if position != self._remembered:
            async with self._store.write() as transaction:
                await record_published(transaction, epoch=position[0], seq=position[1])
                identity = (await read_store_metadata(transaction)).identity
            await self._bus.note_store(identity, self._snapshots.revision)
            self._remembered = position
