"""Tests the removal of old, acknowledged ledger entries from the start, without gaps."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from controller.store.database import Store
from controller.store.outbox.update_rows import Forgotten, raise_counter
from controller.store.outbox.usage_entries import (
    UsageEntry,
    append_usage,
    forget_usage,
    usage_after,
)


async def write(store: Store, ages: Sequence[float]) -> None:
    """Insert one entry for each of *ages*, numbered from 1."""
    async with store.write() as transaction:
        for period, at in enumerate(ages):
            entry = UsageEntry(
                job_id="j1", owner_user="ada", owner_project=None, uid="u", attempt=1, rank=0,
                period=period, until=at, seconds=1.0, final=False, product=None, price=None,
                resources={}, at=at,
            )  # fmt: skip
            await append_usage(transaction, [entry])


@pytest.mark.parametrize(
    ("ages", "acknowledged", "limit", "gone"),
    [
        ([1, 2, 3, 4], 4, 9, 4),
        ([1, 2, 3, 4], 2, 9, 2),
        ([1, 2, 3, 4], 0, 9, 0),
        ([1, 2, 3, 4], 4, 3, 3),
        ([1, 20, 3, 4], 4, 9, 1),
        ([20, 2, 3, 4], 4, 9, 0),
        ([], 0, 9, 0),
    ],
    ids=["all", "taken", "untaken", "at-once", "a-young-one", "young", "empty"],
)
async def test_acknowledged_old_entries_are_deleted_without_gap(
    store: Store, ages: list[float], acknowledged: int, limit: int, gone: int
) -> None:
    await write(store, ages)
    async with store.write() as transaction:
        await raise_counter(transaction, "usage_acknowledged", acknowledged)
        assert await forget_usage(transaction, before=10.0, limit=limit) == gone
    async with store.read() as transaction:
        kept = await usage_after(transaction, gone, limit=9)
        assert [one.id for one in kept] == list(range(gone + 1, len(ages) + 1))
        if gone:
            with pytest.raises(Forgotten) as forgotten:
                await usage_after(transaction, gone - 1, limit=9)
            assert forgotten.value.through == gone
