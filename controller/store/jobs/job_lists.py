"""Pages of jobs, by any filters in either order; see ``controller.store.paging``."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Transaction
from controller.store.jobs.job_rows import (
    FINAL_STATES,
    IS_JOB,
    IS_LIVE,
    JobRecord,
    find_jobs,
    kind_of,
)
from controller.store.paging import (
    MOST_CANDIDATES,
    Condition,
    Key,
    Keys,
    first_keys,
    merged_keys,
    scan,
)

Order = Literal["id", "newest"]

_jobs: Final = tables.jobs
_labels: Final = tables.job_labels


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs are asked for; what is empty or None matches all. ``since`` is in unix seconds."""

    user: str | None = None
    project: str | None = None
    states: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    kind: str | None = None
    batch: str | None = None
    since: float | None = None


async def list_jobs(
    transaction: Transaction,
    wanted: JobFilter,
    *,
    after: Key | None,
    limit: int,
    order: Order = "id",
) -> tuple[list[JobRecord], Key | None]:
    """Return a page of jobs, and after which one the next page begins; None: there is no more.

    In the order ``id``, only the id of a place counts.
    """
    newest = order == "newest"
    searched = await _search_jobs(transaction, wanted, newest=newest)

    async def candidates(place: Key | None, count: int) -> list[Key]:
        rows = await transaction.execute(_job_keys(searched, place, count, newest=newest))
        return [Key(row.created_at, row.id) for row in rows]

    async def fits(job_ids: Collection[str]) -> Collection[str]:
        query = sa.select(_jobs.c.id).where(_jobs.c.id.in_(job_ids), *searched.others)
        return set(await transaction.scalars(query))

    page = await scan(candidates, fits if searched.others else None, after=after, limit=limit)
    records = await find_jobs(transaction, [key.id for key in page.keys])
    return [records[key.id] for key in page.keys], page.next


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """Which ranges of an index hold the candidates; ``others`` are asked of these."""

    ranges: tuple[tuple[Condition, ...], ...]
    others: tuple[Condition, ...]
    by_label: bool


async def _search_jobs(transaction: Transaction, wanted: JobFilter, *, newest: bool) -> _Search:
    """Return how to find the jobs: by the filter that is likely to leave the fewest."""
    # Labels know no times. Those of few jobs can be sorted; those of many are soon found.
    # A batch has a thousand jobs at most.
    by_label = bool(wanted.labels and wanted.batch is None) and (
        not newest or await _is_rare(transaction, *wanted.labels[0])
    )
    others: dict[str, Condition] = {}
    for name, column in (
        ("project", _jobs.c.owner_project),
        ("user", _jobs.c.owner_user),
        ("kind", _jobs.c.kind),
        ("batch", _jobs.c.batch),
    ):
        if (value := getattr(wanted, name)) is not None:
            others[name] = column == value
    if wanted.since is not None:
        others["since"] = _jobs.c.created_at >= wanted.since
    labels = list(dict.fromkeys(wanted.labels))
    states = [_jobs.c.state == state for state in dict.fromkeys(wanted.states)]
    # In the order of time, a range of an index begins with it; in that of ids it is asked after.
    drive = [others.pop("since")] if newest and "since" in others else []
    found_by = "label" if by_label else _found_by(wanted)
    if by_label:
        label, value = wanted.labels[0]
        drive += [_labels.c.name == label, _labels.c.value == value]
        del labels[0]
    elif found_by in others:
        drive.append(others.pop(found_by))
    ranges = [tuple(drive)]
    if found_by == "state" or (newest and states and found_by in ("project", "user")):
        ranges, states = [(*drive, state) for state in states], []
    in_states = [sa.or_(*states)] if states else []
    labelled = [_has_labels(labels)] if labels else []
    return _Search(
        ranges=tuple(ranges), others=(*others.values(), *labelled, *in_states), by_label=by_label
    )


def _found_by(wanted: JobFilter) -> str:
    """Return the filter that has an index of its own and is likely to leave the fewest jobs."""
    if wanted.batch is not None:
        return "batch"
    if wanted.project is not None or wanted.user is not None:
        return "user" if wanted.project is None else "project"
    # Few are not over; of those that are, a kind is fewer.
    if wanted.states and (wanted.kind is None or not set(FINAL_STATES) & set(wanted.states)):
        return "state"
    return "kind"


def _job_keys(searched: _Search, place: Key | None, count: int, *, newest: bool) -> Keys:
    job_id = _labels.c.job_id if searched.by_label else _jobs.c.id
    keys = sa.select(_jobs.c.created_at, job_id.label("id"))
    if searched.by_label:
        keys = keys.join_from(_labels, _jobs, _labels.c.job_id == _jobs.c.id)
    else:
        keys = keys.where(IS_JOB)  # tools have no labels
    if newest:
        return first_keys(keys, searched.ranges, (_jobs.c.created_at, _jobs.c.id), place, count)
    after = (job_id > place.id,) if place is not None else ()
    parts = [keys.where(*one, *after).order_by(job_id).limit(count) for one in searched.ranges]
    return merged_keys(parts, count, newest=False)


def _has_labels(labels: Sequence[tuple[str, str]]) -> Condition:
    # Counted: with a condition for each, a database takes minutes to plan some hundreds of them.
    count = sa.select(sa.func.count()).select_from(_labels).where(_labels.c.job_id == _jobs.c.id)
    found = count.where(sa.tuple_(_labels.c.name, _labels.c.value).in_(labels))
    return found.scalar_subquery() == len(labels)


async def _is_rare(transaction: Transaction, name: str, value: str) -> bool:
    """Say whether no more jobs have the label than a page may look at."""
    having = sa.select(_labels.c.job_id).where(_labels.c.name == name, _labels.c.value == value)
    some = having.limit(MOST_CANDIDATES + 1).subquery()
    count: int = (
        await transaction.execute(sa.select(sa.func.count()).select_from(some))
    ).scalar_one()
    return count <= MOST_CANDIDATES


async def fill_in_kinds(transaction: Transaction, *, limit: int) -> int:
    """Fill in the kinds of jobs that the version before accepted; return of how many.

    It does not know the column. *limit* at most.
    """
    unknown = sa.select(_jobs.c.id, _jobs.c.spec).where(_jobs.c.kind.is_(None))
    rows = (await transaction.execute(unknown.order_by(_jobs.c.id).limit(limit))).all()
    if rows:
        known = [{"which": row.id, "kind": kind_of(row.spec)} for row in rows]
        change = sa.update(_jobs).where(_jobs.c.id == sa.bindparam("which"))
        await transaction.execute(change, known)
    return len(rows)


async def live_jobs_of_batch(transaction: Transaction, batch_id: str) -> list[str]:
    """Return the batch's jobs that are not over."""
    query = sa.select(_jobs.c.id).where(_jobs.c.batch == batch_id, IS_LIVE)
    return list((await transaction.scalars(query)).all())
