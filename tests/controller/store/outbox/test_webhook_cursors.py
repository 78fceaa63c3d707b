from __future__ import annotations

from controller.store.database import Store
from controller.store.jobs.job_rows import insert_job, update_job
from controller.store.outbox.update_rows import (
    UpdateHead,
    WebhookCursor,
    ensure_cursors,
    heads_after,
    next_update_of,
    read_cursor,
    time_from,
    write_cursor,
)
from tests.controller.samples import make_record


async def test_a_receiver_continues_at_its_cursor(store: Store) -> None:
    async with store.write() as transaction:
        await insert_job(transaction, make_record(), labels={})
        await ensure_cursors(transaction, ["one"])
    far = WebhookCursor(2**40, 2**33, {"j1": 2**35, "j2": 7})
    async with store.write() as transaction:
        assert await read_cursor(transaction, "one") == WebhookCursor(1, 0, {})
        await write_cursor(transaction, "one", far)
        await insert_job(transaction, make_record(id="j2"), labels={})
        await ensure_cursors(transaction, ["one", "two"])
    async with store.read() as transaction:
        assert await read_cursor(transaction, "one") == far
        assert await read_cursor(transaction, "two") == WebhookCursor(2, 0, {})


async def test_the_next_update_is_found_by_job_and_number(store: Store) -> None:
    async with store.write() as transaction:
        first, second = make_record(), make_record(id="j2")
        for record in (first, second):
            await insert_job(transaction, record, labels={})
        first = await update_job(transaction, first, now=3.0, state="RUNNING")
        await update_job(transaction, second, now=4.0, state="RUNNING")
        await update_job(transaction, first, now=5.0, state="SUCCESS")
    async with store.read() as transaction:
        assert await heads_after(transaction, 1, limit=2) == [
            UpdateHead(2, "j2", 1.0, "IN_QUEUE"),
            UpdateHead(3, "j1", 3.0, "RUNNING"),
        ]
        over = ["SUCCESS"]
        for start, end, states, number in (
            (1, 5, None, 1),
            (2, 5, None, 3),
            (4, 4, None, None),
            (1, 5, over, 5),
            (1, 4, over, None),
        ):
            found = await next_update_of(transaction, "j1", first=start, last=end, states=states)
            assert (found.id if found else None) == number
        assert await time_from(transaction, 4) == 4.0
        assert await time_from(transaction, 6) is None
