"""Queries on policies with a timeout that something has triggered, and on time added to jobs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Final

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Transaction, insert_if_absent

_timers = tables.policy_timers


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer:
    """A policy that is carried out at ``due_at``, unless its trigger is no longer so by then.

    ``retries`` is Volcano's count of restarts within the attempt when it was triggered.
    """

    job_id: str
    trigger: str
    attempt: int
    due_at: float
    action: str
    why: str
    retries: int


_OF_JOB: Final = sa.select(*(_timers.c[name] for name in Timer.__slots__)).where(
    _timers.c.job_id == sa.bindparam("job_id")
)


async def timers_of(transaction: Transaction, job_id: str) -> dict[str, Timer]:
    """Return the job's timers by their triggers."""
    rows = await transaction.execute(_OF_JOB, {"job_id": job_id})
    return {row.trigger: Timer(**row._mapping) for row in rows}


async def replace_timers(
    transaction: Transaction, job_id: str, *, timers: Collection[Timer]
) -> None:
    """Have exactly *timers* run; one that runs already keeps its due time."""
    stored = await timers_of(transaction, job_id)
    wanted = {timer.trigger: timer for timer in timers}
    # One of an earlier attempt, or from before a restart, has nothing to do with the new one.
    over = [name for name, timer in stored.items() if not _goes_on(timer, wanted.get(name))]
    if over:
        gone = (_timers.c.job_id == job_id, _timers.c.trigger.in_(over))
        await transaction.execute(sa.delete(_timers).where(*gone))
    new = [asdict(timer) for name, timer in wanted.items() if name not in stored or name in over]
    if new:
        await insert_if_absent(transaction, _timers, new)


def _goes_on(timer: Timer, wanted: Timer | None) -> bool:
    same = (timer.attempt, timer.retries)
    return wanted is not None and (wanted.attempt, wanted.retries) == same


_extensions = tables.extensions


async def find_extension(transaction: Transaction, job_id: str, key: str) -> float | None:
    """Return how many seconds were added to the job under *key*, None where none were."""
    same = (_extensions.c.job_id == job_id, _extensions.c.key == key)
    seconds: float | None = await transaction.scalar(sa.select(_extensions.c.seconds).where(*same))
    return seconds


async def add_extension(
    transaction: Transaction, job_id: str, key: str, *, seconds: float, now: float
) -> None:
    """Remember that so many seconds were added under *key*, which is new."""
    values = {"job_id": job_id, "key": key, "seconds": seconds, "at": now}
    await transaction.execute(sa.insert(_extensions).values(values))
