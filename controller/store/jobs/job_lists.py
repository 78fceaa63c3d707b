"""Filtered pages of jobs in either order; see ``controller.store.paging``."""

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
    """Selects jobs; an empty value or None matches all. ``since`` is in unix seconds."""

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
    """Return a page of jobs, and the key after which the next page begins; None: no more pages.

    In the order ``id``, only the key's id matters.
    """
    newest = order == "newest"
    searched = await _search_jobs(transaction, wanted, newest=newest)

    async def candidates(place: Key | None, count: int) -> list[Key]:
        rows = await transaction.execute(_job_keys(searched, place, count, newest=newest))
        return [Key(row.created_at, row.id) for row in rows]

    async def fits(job_ids: Collection[str]) -> Collection[str]:
        query = sa.select(_jobs.c.id).where(_jobs.c.id.in_(job_ids), *searched.others)
        return set(await transaction.scalars(query))

    keys, following = await scan(
        candidates, fits if searched.others else None, after=after, limit=limit
    )
    records = await find_jobs(transaction, [key.id for key in keys])
    return [records[key.id] for key in keys], following


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """The index ranges that hold the candidates, and the filters to check on each of them."""

    ranges: tuple[tuple[Condition, ...], ...]
    others: tuple[Condition, ...]
    by_label: bool


async def _search_jobs(transaction: Transaction, wanted: JobFilter, *, newest: bool) -> _Search:
    """Return how to search: by the filter that is likely to match the fewest jobs."""
    # The index of labels is not ordered by time. A rare label's jobs can be sorted; a frequent
    # label's jobs are found soon. A batch has at most a thousand jobs.
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
    # Ordered by time, it starts the index range; ordered by id, it is checked per candidate.
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
    """Return the filter with its own index that is likely to match the fewest jobs."""
    if wanted.batch is not None:
        return "batch"
    if wanted.project is not None or wanted.user is not None:
        return "user" if wanted.project is None else "project"
    # Few jobs are live; among final ones, a kind matches fewer than a state.
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
    # Counted: planning a condition for each of some hundred labels takes a database minutes.
    count = sa.select(sa.func.count()).select_from(_labels).where(_labels.c.job_id == _jobs.c.id)
    found = count.where(sa.tuple_(_labels.c.name, _labels.c.value).in_(labels))
    return found.scalar_subquery() == len(labels)


async def _is_rare(transaction: Transaction, name: str, value: str) -> bool:
    """Return whether at most as many jobs have the label as one page may examine."""
    having = sa.select(_labels.c.job_id).where(_labels.c.name == name, _labels.c.value == value)
    some = having.limit(MOST_CANDIDATES + 1).subquery()
    count: int = (
        await transaction.execute(sa.select(sa.func.count()).select_from(some))
    ).scalar_one()
    return count <= MOST_CANDIDATES


async def fill_in_kinds(transaction: Transaction, *, limit: int) -> int:
    """Set the kinds of jobs that the previous version accepted; return the number of jobs.

    That version does not know the column. At most *limit* jobs are changed.
    """
    unknown = sa.select(_jobs.c.id, _jobs.c.spec).where(_jobs.c.kind.is_(None))
    rows = (await transaction.execute(unknown.order_by(_jobs.c.id).limit(limit))).all()
    if rows:
        known = [{"which": row.id, "kind": kind_of(row.spec)} for row in rows]
        change = sa.update(_jobs).where(_jobs.c.id == sa.bindparam("which"))
        await transaction.execute(change, known)
    return len(rows)


async def live_jobs_of_batch(transaction: Transaction, batch_id: str) -> list[str]:
    """Return the batch's jobs that have not ended."""
    query = sa.select(_jobs.c.id).where(_jobs.c.batch == batch_id, IS_LIVE)
    return list((await transaction.scalars(query)).all())
