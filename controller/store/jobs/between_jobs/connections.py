"""Queries on which job names which other as its peer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Transaction, insert_if_absent
from controller.store.instance import raise_revision
from controller.store.jobs.job_rows import FINAL_STATES, hold_jobs
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
    """A job that names another as its peer, and has not ended; ``ports`` is what it asked for."""

    job_id: str
    namespace: str
    ports: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Peer:
    """A job that another one names: ``address`` is its Service's, once there is one."""

    job_id: str
    namespace: str
    ended: bool
    address: str | None


async def record_connections(
    transaction: Transaction, job_id: str, peers: Mapping[str, Collection[int]]
) -> None:
    """Remember whom the job names, and have those looked at; again changes nothing."""
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
    """Return what tells these callers from any others."""
    rows = [[one.job_id, one.namespace, list(one.ports)] for one in sorted(callers)]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:32] if rows else NOBODY


async def find_peers(transaction: Transaction, job_ids: Collection[str]) -> dict[str, Peer]:
    """Return those of the jobs that there are, by id."""
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
    """Have the jobs that this one names looked at."""
    peers = await transaction.scalars(sa.select(_table.c.peer_id).where(_table.c.job_id == job_id))
    await touch_jobs(transaction, peers.all())


async def touch_jobs(transaction: Transaction, job_ids: Iterable[str]) -> None:
    """Have the jobs looked at, whichever process does that."""
    ids = sorted(set(job_ids))
    if ids:
        await hold_jobs(transaction, ids)
        revision = await raise_revision(transaction)
        touched = sa.update(tables.jobs).where(tables.jobs.c.id.in_(ids))
        await transaction.execute(touched.values(revision=revision))
