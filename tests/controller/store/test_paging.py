"""Tests lists: every filter in both orders, page by page, reading only what they return."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from controller.store import paging, tables
from controller.store.database import Store, Transaction
from controller.store.instance import ensure_position
from controller.store.jobs import job_lists
from controller.store.jobs.job_lists import JobFilter, Order, fill_in_kinds, list_jobs
from controller.store.jobs.job_rows import FINAL_STATES, JobRecord, insert_jobs
from controller.store.paging import Key, scan
from controller.store.sessions.session_rows import (
    Session,
    SessionFilter,
    end_session,
    fill_in_owners,
    insert_session,
    newest_sessions,
    sessions_among,
)
from tests.controller.samples import make_record
from tests.shared.samples import make_sid

STATES = ("IN_QUEUE", "RUNNING", *FINAL_STATES)
ORDERS: tuple[Order, ...] = ("id", "newest")


def make_many(count: int) -> Iterator[tuple[JobRecord, dict[str, str]]]:
    """Yield jobs whose fields cycle through their values at different rates."""
    for number in range(count):
        kind = {0: {}, 1: {"kind": "batch"}, 2: {"kind": "lab"}}[number % 3]
        record = make_record(
            id=f"j{(number * 37) % 1000:03}",
            owner_user="ada" if number % 2 else "eve",
            owner_project=None if number % 5 else "sun",
            state=STATES[number % len(STATES)],
            # Several jobs share a creation time.
            created_at=float(number // 4),
            spec={"id": "x", "owner": {"user": "ada"}} | kind,
            batch=f"b{number % 3}" if number < 30 else None,
        )
        yield record, {"team": "x" if number % 4 else "y", "even": str(number % 2)}


@pytest.fixture
async def filled(store: Store) -> list[tuple[JobRecord, dict[str, str]]]:
    jobs = list(make_many(60))
    async with store.write() as transaction:
        await ensure_position(transaction, new_identity="test")
        await insert_jobs(transaction, jobs)
    return jobs


def fits(job: tuple[JobRecord, dict[str, str]], wanted: JobFilter) -> bool:
    record, labels = job
    return (
        wanted.user in (None, record.owner_user)
        and wanted.project in (None, record.owner_project)
        and (not wanted.states or record.state in wanted.states)
        and wanted.kind in (None, record.spec.get("kind"))
        and wanted.batch in (None, record.batch)
        and (wanted.since is None or record.created_at >= wanted.since)
        and set(wanted.labels) <= set(labels.items())
    )


CHOICES: dict[str, tuple[Any, ...]] = {
    "user": (None, "ada"),
    "project": (None, "sun"),
    "states": ((), ("RUNNING",), ("IN_QUEUE", "SUCCESS", "FAILURE")),
    "labels": ((), (("team", "x"),), (("even", "1"), ("team", "y"))),
    "kind": (None, "lab"),
    "since": (None, 7.0),
}
FILTERS = [
    JobFilter(**dict(zip(CHOICES, values, strict=True)))
    for values in itertools.product(*CHOICES.values())
]
FILTERS += [
    JobFilter(batch="b1"),
    JobFilter(batch="b1", user="ada", since=2.0),
    JobFilter(batch="b1", states=("IN_QUEUE", "SUCCESS"), labels=(("team", "x"),)),
]


async def pages(
    transaction: Transaction, wanted: JobFilter, *, order: Order, limit: int
) -> list[list[str]]:
    """Return the ids on each page."""
    found: list[list[str]] = []
    after: Key | None = None
    while True:
        page, after = await list_jobs(transaction, wanted, after=after, limit=limit, order=order)
        found.append([one.id for one in page])
        assert len(found) < 100
        if after is None:
            return found


@pytest.mark.parametrize("order", ORDERS)
async def test_combined_filters_return_all_matches_in_either_order(
    store: Store, filled: list[tuple[JobRecord, dict[str, str]]], order: Order
) -> None:
    def place(job: tuple[JobRecord, dict[str, str]]) -> Any:
        return job[0].id if order == "id" else (job[0].created_at, job[0].id)

    async with store.read() as transaction:
        for wanted in FILTERS:
            expected = [job for job in filled if fits(job, wanted)]
            expected.sort(key=place, reverse=order == "newest")
            found = await pages(transaction, wanted, order=order, limit=7)
            assert [job_id for page in found for job_id in page] == [j[0].id for j in expected]
            assert all(len(page) == 7 for page in found[:-1]), wanted


@pytest.mark.parametrize("order", ORDERS)
async def test_a_page_that_scans_too_many_rows_ends_early_and_continues(
    store: Store,
    filled: list[tuple[JobRecord, dict[str, str]]],
    monkeypatch: pytest.MonkeyPatch,
    order: Order,
) -> None:
    for module in (paging, job_lists):
        monkeypatch.setattr(module, "MOST_CANDIDATES", 10)
    monkeypatch.setattr(paging, "AT_ONCE", 4)
    rare = JobFilter(user="ada", kind="lab", labels=(("team", "x"), ("even", "1")), since=3.0)
    async with store.read() as transaction:
        found = await pages(transaction, rare, order=order, limit=5)
    assert {job_id for page in found for job_id in page} == {
        record.id for record, labels in filled if fits((record, labels), rare)
    }
    assert len(found) > 2


async def test_many_labels_are_one_query(
    store: Store, filled: list[tuple[JobRecord, dict[str, str]]]
) -> None:
    team = ("team", "x")
    async with store.read() as transaction:
        many = JobFilter(user="ada", labels=(team, *((f"l{n}", "x") for n in range(1500))))
        assert await pages(transaction, many, order="newest", limit=9) == [[]]
        same = JobFilter(user="ada", labels=(team,) * 1500)
        once = JobFilter(user="ada", labels=(team,))
        for order in ORDERS:
            found = await pages(transaction, same, order=order, limit=9)
            assert found == await pages(transaction, once, order=order, limit=9)
            assert found[0]


class CountingIndex:
    """Yields keys as an index would, and counts them."""

    def __init__(self, count: int) -> None:
        self.keys = [Key(float(-number), f"j{number}") for number in range(count)]
        self.looked = 0

    async def candidates(self, after: Key | None, count: int) -> list[Key]:
        first = 0 if after is None else self.keys.index(after) + 1
        some = self.keys[first : first + count]
        self.looked += len(some)
        return some


async def test_a_page_costs_the_same_however_many_there_are() -> None:
    async def none(_ids: Collection[str]) -> Collection[str]:
        return ()

    costs: dict[int, tuple[int, int]] = {}
    for count in (20_000, 60_000):
        every, nothing = CountingIndex(count), CountingIndex(count)
        await scan(every.candidates, None, after=None, limit=100)
        keys, following = await scan(nothing.candidates, none, after=None, limit=100)
        assert (keys, following) == ([], nothing.keys[nothing.looked - 1])
        costs[count] = every.looked, nothing.looked
    assert costs[20_000] == costs[60_000]
    assert costs[20_000][0] == 101
    assert costs[20_000][1] <= paging.MOST_CANDIDATES + paging.AT_ONCE


# Which index is used


def page_queries(statements: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Return the queries of pages among *statements*."""
    return [one for one in statements if one[0].startswith("SELECT") and "LIMIT" in one[0]]


async def plan_of(transaction: Transaction, statement: str, values: Any, *, index: str) -> str:
    """Return the statement's plan; PostgreSQL may use only *index* and the keys."""
    if transaction.dialect.name == "sqlite":
        plan = await transaction.run_sync(
            sa.Connection.exec_driver_sql, f"EXPLAIN QUERY PLAN {statement}", values
        )
        return "\n".join(row.detail for row in plan)
    # PostgreSQL scans a small table whatever the indexes are. This shows that the right one exists.
    async with transaction.begin_nested() as tried:
        for one in (*tables.jobs.indexes, *tables.job_labels.indexes, *tables.sessions.indexes):
            if one.name != index:
                await transaction.exec_driver_sql(f"DROP INDEX {one.name}")
        for way in ("seqscan", "sort", "bitmapscan"):
            await transaction.exec_driver_sql(f"SET LOCAL enable_{way} = off")
        plan = await transaction.exec_driver_sql(f"EXPLAIN {statement}", values)
        text = "\n".join(row[0] for row in plan)
        await tried.rollback()
    return text


INDEXES: list[tuple[Order, dict[str, Any], str]] = [
    ("id", {}, "jobs"),
    ("id", {"user": "ada"}, "ix_jobs_owner"),
    ("id", {"project": "sun"}, "ix_jobs_project"),
    ("id", {"kind": "lab"}, "ix_jobs_kind"),
    ("id", {"states": ("RUNNING", "SUCCESS")}, "ix_jobs_state"),
    ("id", {"labels": (("team", "x"),)}, "ix_job_labels_name"),
    ("id", {"batch": "b1"}, "ix_jobs_batch"),
    ("newest", {}, "ix_jobs_newest"),
    ("newest", {"since": 3.0}, "ix_jobs_newest"),
    ("newest", {"user": "ada", "since": 3.0}, "ix_jobs_owner_newest"),
    ("newest", {"project": "sun"}, "ix_jobs_project_newest"),
    ("newest", {"kind": "lab"}, "ix_jobs_kind_newest"),
    ("newest", {"states": ("RUNNING", "SUCCESS")}, "ix_jobs_state_newest"),
    ("newest", {"user": "ada", "states": ("RUNNING",)}, "ix_jobs_owner_state_newest"),
    ("newest", {"project": "sun", "states": ("RUNNING",)}, "ix_jobs_project_state_newest"),
]


@pytest.mark.parametrize(("order", "wanted", "index"), INDEXES, ids=lambda one: str(one))
async def test_candidates_are_read_in_order_from_the_filters_own_index(
    store: Store,
    filled: list[tuple[JobRecord, dict[str, str]]],
    statements: list[tuple[str, Any]],
    order: Order,
    wanted: dict[str, Any],
    index: str,
) -> None:
    async with store.write() as transaction:
        after = Key(9.0, "j500")
        await list_jobs(transaction, JobFilter(**wanted), after=after, limit=5, order=order)
        ((statement, values),) = page_queries(statements)
        plan = await plan_of(transaction, statement, values, index=index)
    used = set(re.findall(r"INDEX (\S+)|(?:Scan|Scan Backward) using (\S+)", plan))
    names = {name for pair in used for name in pair if name}
    assert names, plan
    assert {name.removeprefix("pk_").removeprefix("sqlite_autoindex_").removesuffix("_1")
            for name in names} >= {index}, plan  # fmt: skip
    several = len(wanted.get("states", ())) > 1
    # Only several ranges are sorted or merged, one page of each.
    assert several or not re.search("TEMP B-TREE|Sort", plan), plan
    assert "Seq Scan" not in plan
    assert not re.search(r"SCAN (jobs|job_labels)(?! USING)", plan), plan


# Sessions


async def open_some(store: Store, count: int) -> list[Session]:
    opened = [
        Session(
            sid=make_sid(number), job_id=("j000", "j037")[number % 2], rank=0, kind="terminal",
            endpoint=None, port=None, base_path="/", created_at=float(number // 3),
        )
        for number in range(count)
    ]  # fmt: skip
    async with store.write() as transaction:
        for one in opened:
            await insert_session(transaction, one)
        for one in opened[::4]:
            await end_session(transaction, one.sid, reason="ended", now=99.0)
    return opened


@pytest.mark.parametrize(
    ("wanted", "index", "keeps"),
    [
        ({}, "ix_sessions_newest", lambda n: True),
        ({"job": "j037"}, "ix_sessions_job_newest", lambda n: n % 2),
        ({"user": "eve"}, "ix_sessions_owner_newest", lambda n: not n % 2),
        ({"ended": False}, "ix_sessions_live_newest", lambda n: n % 4),
        ({"ended": True}, "ix_sessions_newest", lambda n: not n % 4),
        ({"user": "eve", "ended": False}, "ix_sessions_owner_newest", lambda n: n % 4 == 2),
    ],
)
async def test_sessions_are_found_newest_first_by_job_owner_and_whether_they_have_ended(
    store: Store,
    filled: list[tuple[JobRecord, dict[str, str]]],
    statements: list[tuple[str, Any]],
    wanted: dict[str, Any],
    index: str,
    keeps: Callable[[int], bool],
) -> None:
    opened = await open_some(store, 30)
    expected = [one for number, one in enumerate(opened) if keeps(number)]
    expected.sort(key=lambda one: (one.created_at, one.sid), reverse=True)
    sought = SessionFilter(**wanted)
    async with store.write() as transaction:
        statements.clear()
        after: Key | None = Key(99.0, "")
        keys: list[Key] = []
        while some := await newest_sessions(transaction, sought, after=after, count=7):
            found = {
                one.sid for one in await sessions_among(transaction, sought, [k.id for k in some])
            }
            keys += [key for key in some if key.id in found]
            after = some[-1]
        plan = await plan_of(transaction, *page_queries(statements)[0], index=index)
    assert [key.id for key in keys] == [one.sid for one in expected]
    assert index in plan
    assert not re.search("TEMP B-TREE|Sort", plan), plan


async def test_rows_of_the_previous_version_are_found_after_backfill(
    store: Store, filled: list[tuple[JobRecord, dict[str, str]]]
) -> None:
    await open_some(store, 3)
    async with store.write() as transaction:
        await transaction.execute(sa.update(tables.jobs).values(kind=None))
        await transaction.execute(sa.update(tables.sessions).values(owner_user=None))
        lab = JobFilter(kind="lab")
        assert (await list_jobs(transaction, lab, after=None, limit=99))[0] == []
        for _ in range(3):
            assert await fill_in_kinds(transaction, limit=20) == 20
        assert await fill_in_kinds(transaction, limit=20) == 0
        assert await fill_in_owners(transaction, limit=20) == 3
        assert await fill_in_owners(transaction, limit=20) == 0
        assert len((await list_jobs(transaction, lab, after=None, limit=99))[0]) == 20
        eves = await newest_sessions(transaction, SessionFilter(user="eve"), after=None, count=9)
        assert {key.id for key in eves} == {make_sid(0), make_sid(2)}


def test_page_tokens_round_trip_and_other_text_is_refused() -> None:
    for key in (Key(1767225600.1234567, "j1"), Key(0.1 + 0.2, "x")):
        assert Key.read(str(key)) == key
    for text in ("j1", "1.0", "nan_j1", "inf_j1", "_j1", "x_j1"):
        with pytest.raises(ValueError, match=r".*"):
            Key.read(text)
