"""Tests queries for many jobs at once, and queries that must not read finished jobs."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from controller.store.database import Store, Transaction
from controller.store.jobs.job_rows import (
    MOST_VALUES,
    find_jobs,
    insert_jobs,
    known_jobs,
    lock_jobs,
    settled_jobs,
    unfinished_jobs,
    unfinished_of,
)
from controller.store.jobs.totals import demand_by_state
from controller.store.sessions.session_rows import live_sessions
from tests.controller.samples import forget_jobs, make_record

MORE_THAN_ONE_STATEMENT_TAKES = 70_000
"""SQLite takes 32,766 values (``SQLITE_MAX_VARIABLE_NUMBER``), PostgreSQL's protocol 65,535."""


async def test_more_jobs_than_one_statement_holds_are_queried(store: Store) -> None:
    ids = [f"j{number:05}" for number in range(MORE_THAN_ONE_STATEMENT_TAKES)]
    # The first and the last, and both sides of the boundary between two statements.
    there = {ids[0], ids[MOST_VALUES - 1], ids[MOST_VALUES], ids[-1]}
    over = {"state": "SUCCESS", "finished_at": 2.0}
    async with store.write() as transaction:
        records = [make_record(id=job_id, **over) for job_id in sorted(there)]
        await insert_jobs(transaction, [(record, {}) for record in records])
        assert await known_jobs(transaction, ids) == there
        assert await settled_jobs(transaction, ids) == there
        assert (await find_jobs(transaction, ids)).keys() == there
        assert list(await lock_jobs(transaction, ids[::-1])) == sorted(there)


async def scans(transaction: Transaction, statements: list[tuple[str, Any]]) -> list[str]:
    """Return the full table scans in SQLite's plans of the statements."""
    plans: list[str] = []
    for statement, values in list(statements):
        plan = await transaction.run_sync(
            sa.Connection.exec_driver_sql, f"EXPLAIN QUERY PLAN {statement}", values
        )
        plans += [row.detail for row in plan if row.detail.startswith("SCAN")]
    return plans


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_ended_jobs_are_not_scanned_to_find_active_ones(
    store: Store, statements: list[tuple[str, Any]]
) -> None:
    async with store.write() as transaction:
        statements.clear()
        await unfinished_jobs(transaction)
        await unfinished_of(transaction, user="ada", project=None)
        await demand_by_state(transaction)
        await live_sessions(transaction)
        await forget_jobs(transaction, finished_before=1.0, limit=9)
        assert len(statements) == 5
        # Kept last runs are found through the tools, which are deleted with their jobs.
        assert await scans(transaction, statements) == ["SCAN tools"]
        whole = [("SELECT id FROM jobs WHERE message = ?", ("x",))]
        assert await scans(transaction, whole) == ["SCAN jobs"]


async def test_ended_jobs_count_as_no_demand(store: Store) -> None:
    async with store.write() as transaction:
        over = make_record(id="over", state="FAILURE", finished_at=2.0, cpu=8.0)
        runs = make_record(id="runs", state="RUNNING", cpu=2.0)
        waits = make_record(id="waits", cpu=1.0, product="other")
        await insert_jobs(transaction, [(one, {}) for one in (over, runs, waits)])
        whole = await demand_by_state(transaction)
        assert {state: (one.jobs, one.cpu) for state, one in whole.items()} == {
            "RUNNING": (1, 2.0), "IN_QUEUE": (1, 1.0),
        }  # fmt: skip
        assert (await demand_by_state(transaction, product="other")).keys() == {"IN_QUEUE"}
        assert set(await unfinished_jobs(transaction)) == {"runs", "waits"}
