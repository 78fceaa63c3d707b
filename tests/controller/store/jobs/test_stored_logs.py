"""Tests which stored objects make up a pod's log."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.store.database import Store
from controller.store.errors import LeadershipLost
from controller.store.instance import raise_term
from controller.store.jobs.job_rows import insert_job
from controller.store.jobs.stored_logs import (
    Segment,
    dropped_keys,
    ended,
    find_log,
    forget_log,
    logs_in,
    logs_of,
    open_log,
    write_log,
)
from controller.store.jobs.tombstones import delete_job_records
from tests.controller.samples import make_record

KEY = "0" * 32
SEGMENT = Segment(name=f"{KEY}/1-0", text=3, raw=30, lines=1, at=7 * 10**18, count=2)


async def test_a_log_is_unique_and_deleted_with_its_job(store: Store) -> None:
    async with store.write() as transaction:
        await insert_job(transaction, make_record(), labels={})
        first = await raise_term(transaction)
    async with store.fenced(first).write() as transaction:
        log = await open_log(transaction, "j1", "p1", key=KEY, now=1.0)
        assert log is not None
        again = await open_log(transaction, "j1", "p1", key="1" * 32, now=2.0)
        assert again == log
        assert await open_log(transaction, "never-was", "p1", key="2" * 32, now=1.0) is None
    kept = ended(replace(log, segments=(SEGMENT,)), "size")
    async with store.fenced(first).write() as transaction:
        await write_log(transaction, kept, now=2.0)
    async with store.write() as transaction:
        await raise_term(transaction)
    with pytest.raises(LeadershipLost):
        async with store.fenced(first).write() as transaction:
            await write_log(transaction, log, now=3.0)
    async with store.read() as transaction:
        assert await logs_of(transaction, "j1") == {"p1": kept}
        assert await logs_in(transaction, "open") == []
        assert kept.size == 3
        assert sorted(kept.lost) == ["size"]
    async with store.write() as transaction:
        await delete_job_records(transaction, ["j1"], at=1.0)
        await write_log(transaction, kept, now=9.0)  # late: the log stays dropped
        await insert_job(transaction, make_record(), labels={})
        assert await find_log(transaction, "j1", "p1") is None
        assert await dropped_keys(transaction, limit=5) == [KEY]
        await forget_log(transaction, KEY)
        assert await dropped_keys(transaction, limit=5) == []
