"""Queries on relations between jobs: peers and predecessors.

A job names other jobs as its peers, or waits for their end. How a predecessor ended is stored with
the jobs that wait for it, so that it outlives the predecessor's record.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Store, Transaction, insert_if_absent
from controller.store.instance import raise_revision
from controller.store.jobs.job_rows import ASKED, FINAL_STATES, IS_LIVE, lock_jobs
from controller.volcano.names import peer_service_name

_table = tables.connections
_jobs = tables.jobs
_CALLERS: Final = (
    sa.select(_table.c.job_id, _jobs.c.namespace, _table.c.ports)
    .join_from(_table, _jobs, _jobs.c.id == _table.c.job_id)
    .where(
        _table.c.peer_id == sa.bindparam("peer_id"),
        _jobs.c.outcome.is_(None),
        _jobs.c.state.not_in(FINAL_STATES),
    )
)
NOBODY: Final = "-"


@dataclass(frozen=True, slots=True, order=True)
class Caller:
    """A job that names another as its peer and has not ended; ``ports`` are those it requests."""

    job_id: str
    namespace: str
    ports: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Peer:
    """A job that another one names; ``address`` is that of its Service, once there is one."""

    job_id: str
    namespace: str
    ended: bool
    address: str | None


async def record_connections(
    transaction: Transaction, job_id: str, peers: Mapping[str, Collection[int]]
) -> None:
    """Store the job's peers, and have them reconciled. A repeated call changes nothing."""
    if not peers:
        return
    rows = [
        {"job_id": job_id, "peer_id": peer, "ports": sorted(ports)} for peer, ports in peers.items()
    ]
    await insert_if_absent(transaction, _table, rows)
    await touch_jobs(transaction, peers)


async def callers_of(transaction: Transaction, job_id: str) -> list[Caller]:
    """Return the jobs that name this one and have not ended, in order."""
    rows = await transaction.execute(_CALLERS, {"peer_id": job_id})
    return sorted(Caller(row.job_id, row.namespace, tuple(row.ports)) for row in rows)


def basis_of(callers: Iterable[Caller]) -> str:
    """Return a digest of *callers*, which differs for any other set."""
    rows = [[one.job_id, one.namespace, list(one.ports)] for one in sorted(callers)]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:32] if rows else NOBODY


async def find_peers(transaction: Transaction, job_ids: Collection[str]) -> dict[str, Peer]:
    """Return the jobs that exist, by id."""
    jobs, companions = tables.jobs, tables.companions
    service = sa.literal(peer_service_name("")) + jobs.c.id
    rows = await transaction.execute(
        sa.select(jobs.c.id, jobs.c.namespace, jobs.c.state, jobs.c.outcome, companions.c.address)
        .select_from(
            jobs.outerjoin(
                companions, (companions.c.job_id == jobs.c.id) & (companions.c.name == service)
            )
        )
        .where(jobs.c.id.in_(job_ids))
    )
    return {
        row.id: Peer(
            job_id=row.id,
            namespace=row.namespace,
            ended=row.outcome is not None or row.state in FINAL_STATES,
            address=row.address,
        )
        for row in rows
    }


async def touch_peers_of(transaction: Transaction, job_id: str) -> None:
    """Have the peers of this job reconciled."""
    peers = await transaction.scalars(sa.select(_table.c.peer_id).where(_table.c.job_id == job_id))
    await touch_jobs(transaction, peers.all())


async def touch_jobs(transaction: Transaction, job_ids: Iterable[str]) -> None:
    """Have the jobs reconciled, whichever process is the leader."""
    ids = sorted(set(job_ids))
    if ids:
        await lock_jobs(transaction, ids)
        revision = await raise_revision(transaction)
        touched = sa.update(tables.jobs).where(tables.jobs.c.id.in_(ids))
        await transaction.execute(touched.values(revision=revision))


_predecessors: Final = tables.predecessors
_PREDECESSORS_OF: Final = (
    sa.select(
        _predecessors.c.predecessor_id,
        sa.func.coalesce(_predecessors.c.state, _jobs.c.state).label("state"),
        sa.func.coalesce(_predecessors.c.reason, _jobs.c.reason).label("reason"),
    )
    .select_from(_predecessors.outerjoin(_jobs, _jobs.c.id == _predecessors.c.predecessor_id))
    .where(_predecessors.c.job_id == sa.bindparam("job"))
    .order_by(_predecessors.c.predecessor_id)
)


@dataclass(frozen=True, slots=True)
class Predecessor:
    """A job that another one waits for; ``state`` is None if nothing is known of it any more."""

    job_id: str
    state: str | None
    reason: str | None

    @property
    def goes_on(self) -> bool:
        """Whether the job has not ended."""
        return self.state is not None and self.state not in FINAL_STATES

    @property
    def ended_well(self) -> bool:
        """Whether the job succeeded by itself, without a request to end it."""
        return self.state == "SUCCESS" and self.reason != ASKED.reason


async def record_predecessors(
    transaction: Transaction, job_id: str, predecessors: Collection[str]
) -> None:
    """Store the jobs that the job waits for; this transaction holds or has added them."""
    rows = [{"job_id": job_id, "predecessor_id": one} for one in predecessors]
    if not rows:
        return
    await insert_if_absent(transaction, _predecessors, rows)
    ended = sa.select(_jobs.c.id, _jobs.c.state, _jobs.c.reason).where(
        _jobs.c.id.in_(predecessors), _jobs.c.state.in_(FINAL_STATES)
    )
    for row in (await transaction.execute(ended)).all():
        await _settle(transaction, row.id, state=row.state, reason=row.reason)


async def predecessors_of(transaction: Transaction, job_id: str) -> tuple[Predecessor, ...]:
    """Return the jobs that the job waits or has waited for, in order."""
    rows = await transaction.execute(_PREDECESSORS_OF, {"job": job_id})
    return tuple(Predecessor(row.predecessor_id, row.state, row.reason) for row in rows)


async def settle_followers(
    transaction: Transaction, job_id: str, *, state: str, reason: str | None
) -> Sequence[str]:
    """Store how the job, which this transaction holds, ended; return the jobs that wait for it."""
    await _settle(transaction, job_id, state=state, reason=reason)
    query = sa.select(_predecessors.c.job_id).join_from(
        _predecessors, _jobs, _jobs.c.id == _predecessors.c.job_id
    )
    return (
        await transaction.scalars(query.where(_predecessors.c.predecessor_id == job_id, IS_LIVE))
    ).all()


async def _settle(transaction: Transaction, job_id: str, *, state: str, reason: str | None) -> None:
    # An earlier job with this id may have ended before.
    waits = (_predecessors.c.predecessor_id == job_id, _predecessors.c.state.is_(None))
    await transaction.execute(
        sa.update(_predecessors).where(*waits).values(state=state, reason=reason)
    )


class Peers:
    """The relations between jobs, as plugins see them.

    Every method raises StoreUnavailable if the store does not respond.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def find(self, job_ids: Collection[str]) -> Mapping[str, Peer]:
        """Return the jobs that exist, by id."""
        async with self._store.read() as transaction:
            return await find_peers(transaction, job_ids)

    async def callers_of(self, job_id: str) -> Sequence[Caller]:
        """Return the jobs that name this one and have not ended, in order."""
        async with self._store.read() as transaction:
            return await callers_of(transaction, job_id)

    async def has_ended(self, job_id: str) -> None:
        """Have the peers of an ended job reconciled, since they must no longer admit it."""
        async with self._store.write() as transaction:
            await touch_peers_of(transaction, job_id)
