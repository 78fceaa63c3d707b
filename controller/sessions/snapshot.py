"""The store's state of sessions: of the jobs that are due, and what is new for all."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence, Set
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from controller.store.database import FencedStore, Transaction
from controller.store.errors import StoreUnavailable
from controller.store.instance import (
    ALIVE_SECONDS,
    Heartbeat,
    Hub,
    forget_dead_hubs,
    read_heartbeats,
    read_store_metadata,
)
from controller.store.jobs.job_rows import JobRecord, find_jobs
from controller.store.sessions.revocations import (
    StoredRevocation,
    active_revocations,
    forget_revocations,
)
from controller.store.sessions.session_rows import (
    Session,
    jobs_with_changed_sessions,
    live_sessions,
    live_sessions_of,
)
from shared.events import Head


class DirtySet:
    """Jobs that are due, each once.

    Changed jobs come before those of a periodic resync: a revocation must not wait behind
    thousands of unchanged jobs.
    """

    def __init__(self) -> None:
        self._changed: dict[str, None] = {}
        self._others: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._changed.keys() | self._others.keys())

    def add(self, job_ids: Iterable[str]) -> None:
        """Add jobs that have changed."""
        self._changed |= dict.fromkeys(job_ids)

    def add_later(self, job_ids: Iterable[str]) -> None:
        """Add jobs that come after all changed ones."""
        self._others |= dict.fromkeys(job_ids)

    def take(self, most: int) -> list[str]:
        """Remove and return the next jobs. From now on they can be added again."""
        taken: list[str] = []
        for waiting in (self._changed, self._others):
            while waiting and len(taken) < most:
                job_id = next(iter(waiting))
                self._changed.pop(job_id, None)
                self._others.pop(job_id, None)
                taken.append(job_id)
        return taken


AT_ONCE: Final = 500
"""The most jobs per snapshot, after which new changes are read."""


@dataclass(frozen=True, slots=True)
class SessionsSnapshot:
    """The store's state of some jobs' sessions, and of all new revocations, at one moment."""

    jobs: frozenset[str]
    sessions: tuple[Session, ...]
    records: Mapping[str, JobRecord]
    hubs: Mapping[str, Hub]
    revocations: tuple[StoredRevocation, ...]
    revision: int


class SnapshotReader:
    """Reads what is new since the last completed snapshot, as the leader of *term*.

    ``dirty_set`` holds the jobs that are due.
    """

    def __init__(
        self, store: FencedStore, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._live = LiveHubs(monotonic)
        self._hubs: Mapping[str, Hub] = {}
        self._revision = 0
        self._opened: frozenset[str] = frozenset()
        self._reading = False
        self.dirty_set = DirtySet()

    @property
    def revision(self) -> int:
        """The store's revision up to which everything is done."""
        return self._revision

    def concerns(self, job_id: str) -> bool:
        """Return whether a change of the job matters: it has sessions, as far as is known.

        A new session raises the store's revision, and is found by that. During a read, any job may
        have one: the read sees the store as it was before.
        """
        return self._reading or job_id in self._opened

    def mark_done(self, snapshot: SessionsSnapshot) -> None:
        """Complete *snapshot*: the next one contains only what is new since."""
        self._revision, self._hubs = snapshot.revision, snapshot.hubs

    async def next(self, *, now: float, routed: Set[str] = frozenset()) -> SessionsSnapshot:
        """Return what is new, and the state of the next jobs that are due.

        *routed* are the jobs whose sessions have routes: their records are read as well.

        Raises:
            LeadershipLost: If another controller leads.
            StoreUnavailable: If the store does not respond.
        """
        jobs: list[str] = []
        try:
            async with self._read() as transaction:
                # Redis alone would not stop a leader that shares a partition with it.
                await self._store.check(transaction)
                revision = (await read_store_metadata(transaction)).revision
                hubs = await self._find_changed(transaction, revision)
                # Before the read: a change from now on makes them due again.
                jobs += self.dirty_set.take(AT_ONCE)
                return await self._about(transaction, jobs, hubs, revision, routed=routed, now=now)
        except StoreUnavailable:
            self.dirty_set.add(jobs)
            raise

    @asynccontextmanager
    async def _read(self) -> AsyncIterator[Transaction]:
        self._reading = True
        try:
            async with self._store.read() as transaction:
                yield transaction
        finally:
            self._reading = False

    async def _find_changed(self, transaction: Transaction, revision: int) -> Mapping[str, Hub]:
        # Every change of a session, and every revocation, raises the revision.
        if revision != self._revision:
            changed, _ = await jobs_with_changed_sessions(transaction, after=self._revision)
            self.dirty_set.add(changed)
        hubs = self._live.observe(await read_heartbeats(transaction))
        if hubs != self._hubs:
            # Terminals of a dead hub must move; those without a hub can get one now.
            waiting = await live_sessions(transaction)
            self.dirty_set.add_later(one.job_id for one in waiting if one.kind == "terminal")
        return hubs

    async def _about(
        self,
        transaction: Transaction,
        jobs: Collection[str],
        hubs: Mapping[str, Hub],
        revision: int,
        *,
        routed: Set[str],
        now: float,
    ) -> SessionsSnapshot:
        sessions = await live_sessions_of(transaction, jobs) if jobs else []
        opened = {one.job_id for one in sessions}
        # Also for jobs whose routes still exist: people see how their sessions ended.
        wanted = opened | (routed & set(jobs))
        self._opened = (self._opened - set(jobs)) | opened
        records = await find_jobs(transaction, wanted) if wanted else {}
        new: Collection[StoredRevocation] = ()
        if revision != self._revision:
            new = await active_revocations(transaction, now=now, after=self._revision)
        return SessionsSnapshot(
            frozenset(jobs), tuple(sessions), records, hubs, tuple(new), revision
        )

    async def everything(
        self, head: Head | None, *, data_lost: bool, now: float
    ) -> tuple[SessionsSnapshot, float | None]:
        """Return the whole state, and since when Redis' record of used tokens is complete.

        Args:
            head: The head of the table in Redis.
            data_lost: Redis is known to have lost data.
            now: Unix seconds.

        Raises:
            StoreUnavailable: If the store does not respond.
        """
        async with self._read() as transaction:
            since = now if data_lost else await _since(transaction, head, now=now)
            sessions = await live_sessions(transaction)
            jobs = self._opened = frozenset(one.job_id for one in sessions)
            records = await find_jobs(transaction, jobs)
            hubs = self._live.observe(await read_heartbeats(transaction))
            matter = await active_revocations(transaction, now=now)
            revision = (await read_store_metadata(transaction)).revision
        return SessionsSnapshot(
            jobs, tuple(sessions), records, hubs, tuple(matter), revision
        ), since

    async def resync(self, others: Collection[str], *, now: float) -> None:
        """Make all sessions' jobs and *others* due, and delete what is obsolete.

        Raises:
            LeadershipLost: If another controller leads.
            StoreUnavailable: If the store does not respond.
        """
        async with self._store.write() as transaction:
            await forget_revocations(transaction, now=now)
            await forget_dead_hubs(transaction, now=now, alive=self._hubs)
            sessions = await live_sessions(transaction)
        self.dirty_set.add_later({session.job_id for session in sessions} | set(others))


async def _since(transaction: Transaction, head: Head | None, *, now: float) -> float | None:
    """Return since when Redis' record of used tokens is complete, None for always."""
    position = await read_store_metadata(transaction)
    if position.epoch is None:
        return None  # nothing was ever published, so nothing was lost
    if head is None or head.epoch != position.epoch or head.seq < position.seq:
        return now
    return head.since


MOST_SECONDS: Final = ALIVE_SECONDS / 5
"""The most that the time between two looks counts. A longer time is an outage of the store, in
which no hub could write either; or the store is slow, and each look counts a little."""


class LiveHubs:
    """Observes the heartbeats of hubs, as a Lease is observed: by their change.

    A heartbeat has the wall clock of its hub, which is compared with no other clock: one that is
    set forward or back by ten seconds would end all terminals. A hub is dead once its heartbeat has
    not changed for ten seconds by this process' monotonic clock. At the first look all hubs are
    alive: a leader that begins ends no terminal before it has waited for a heartbeat.

    Args:
        monotonic: Monotonic seconds.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._unchanged: dict[str, tuple[float, float]] = {}
        self._looked_at: float | None = None

    def observe(self, heartbeats: Sequence[Heartbeat]) -> dict[str, Hub]:
        """Return the hubs that are alive, by id; *heartbeats* are all that the store has."""
        moment, before = self._monotonic(), self._unchanged
        passed = 0.0 if self._looked_at is None else moment - self._looked_at
        self._looked_at, self._unchanged = moment, {}
        for one in heartbeats:
            seen_at, seconds = before.get(one.hub.id, (None, 0.0))
            unchanged = seconds + min(passed, MOST_SECONDS) if seen_at == one.seen_at else 0.0
            self._unchanged[one.hub.id] = (one.seen_at, unchanged)
        return {one.hub.id: one.hub for one in heartbeats if self._is_alive(one.hub.id)}

    def _is_alive(self, hub_id: str) -> bool:
        return self._unchanged[hub_id][1] < ALIVE_SECONDS
