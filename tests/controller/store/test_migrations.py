"""What an older version wrote is still there after its tables were changed."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic import command

from controller.store.counters import read_counter
from controller.store.database import Store
from controller.store.jobs import find_job
from controller.store.leadership import read_leadership
from controller.store.migrations import make_config
from controller.store.position import read_position
from controller.store.updates import updates_after

POD = {
    "task": "job", "index": 3, "uid": "p3", "node": "n1", "phase": "Failed", "reason": "Error",
    "exit_code": 7, "finished_at": 44.0,
}  # fmt: skip
FIRST: list[tuple[str, dict[str, Any]]] = [
    ("position", {"id": 1, "identity": "me", "term": 7, "revision": 9, "epoch": "e", "seq": 3}),
    ("jobs", {"id": "j1", "owner_user": "ada", "namespace": "jobs", "spec": "{}",
              "desired": "ended", "state": "CANCELING", "attempt": 1, "uid": "u", "created_at": 1.0,
              "revision": 9}),
    ("job_labels", {"job_id": "j1", "name": "a", "value": "b"}),
    ("attempts", {"job_id": "j1", "attempt": 1, "uid": "u", "submitted_at": 1.5,
                  "ended_at": 50.0, "pods": json.dumps([POD])}),
    ("transitions", {"id": 5, "job_id": "j1", "attempt": 1, "at": 2.0, "state": "CANCELING"}),
]  # fmt: skip


def _as_it_was(connection: sa.Connection) -> None:
    command.upgrade(make_config(connection), "0001")
    for name, row in FIRST:
        table = sa.Table(name, sa.MetaData(), autoload_with=connection)
        values = dict(row)
        for column in ("spec", "pods"):
            if column in values:
                values[column] = json.loads(values[column])
        connection.execute(sa.insert(table).values(**values))


async def test_nothing_is_lost_on_the_way_to_these_tables(store_url: str) -> None:
    store = Store(store_url)
    try:
        async with store.write() as transaction:
            await transaction.run_sync(_as_it_was)
        await store.open()
        async with store.read() as transaction:
            assert (await read_leadership(transaction)).term == 7
            position = await read_position(transaction)
            assert (position.identity, position.revision, position.seq) == ("me", 9, 3)
            assert await read_counter(transaction, "updates") == 5
            assert [one.id for one in await updates_after(transaction, 0, limit=9)] == [5]
            record = await find_job(transaction, "j1")
            assert record is not None
            assert (record.uid, record.end_state, record.end_reason) == ("u", "SUCCESS", "asked")
            assert (record.stopping, record.evictions) == (False, 0)
            labels = await transaction.scalar(sa.text("SELECT count(*) FROM job_labels"))
            assert labels == 1
            run = (await transaction.execute(sa.text("SELECT * FROM runs"))).one()
            assert (run.pod_uid, run.rank, run.exit_code, run.ended_at) == ("p3", 3, 7, 44.0)
    finally:
        await store.close()
