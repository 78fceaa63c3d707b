"""Tests the backup and restore commands: what was removed since the backup stays removed."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from controller.backup import BackupFailed, back_up, restore
from controller.store import tables
from controller.store.database import Store
from controller.store.instance import (
    ensure_position,
    raise_term_to,
    read_leadership,
    read_maintenance,
    read_store_metadata,
)
from controller.store.jobs.job_rows import find_job, insert_job, insert_jobs, request_end
from controller.store.jobs.tombstones import delete_job_records
from controller.store.outbox.update_rows import (
    MOST_TOLD,
    Forgotten,
    Series,
    read_counter,
    take_number,
    updates_after,
)
from controller.store.outbox.usage_entries import usage_after
from controller.store.sessions.revocations import StoredRevocation, add_revocation
from controller.store.sessions.session_rows import Session, end_session, insert_session
from tests import warm
from tests.controller.postgres import Postgres, find_programs
from tests.controller.running import ROOT, Controller
from tests.controller.samples import make_record

SERIES: tuple[Series, ...] = ("updates", "usage")
SIDS = {name: name * 26 for name in "abc"}


def command(settings: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    known = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    command = [sys.executable, "-m", "controller", *words]
    return warm.run(command, cwd=ROOT, env=known | settings)


@pytest.mark.parametrize(
    "kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.needs("postgres"))]
)
async def test_jobs_removed_since_the_backup_stay_removed(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    if kind == "postgresql":
        server: Postgres = request.getfixturevalue("postgres")
        url = server.new_database()
        monkeypatch.setenv("PATH", f"{find_programs()}:{os.environ['PATH']}")
    settings = Controller(
        tmp_path / "controller", redis_url="redis://127.0.0.1:1",
        FUMAROLE_CONTROLLER_STORE_URL=url,
    ).settings  # fmt: skip
    file = tmp_path / "backup"
    now = time.time()
    store = Store(url)
    try:
        await store.open()
        async with store.write() as transaction:
            await ensure_position(transaction, new_identity="this one")
            for job_id in ("goes-on", "ends", "goes"):
                record = make_record(id=job_id, uid=f"u-{job_id}", state="RUNNING")
                await insert_job(transaction, record, labels={})
            for sid in SIDS.values():
                session = Session(
                    sid=sid, job_id="goes-on", rank=0, kind="terminal", endpoint=None,
                    port=None, base_path="/", created_at=now,
                )  # fmt: skip
                await insert_session(transaction, session)
        done = command(settings, "backup", str(file))
        assert (done.returncode, done.stderr) == (0, "")
        assert file.stat().st_mode & 0o777 == 0o600
        async with store.write() as transaction:
            await end_session(transaction, SIDS["a"], reason="ended", now=now)
            revoked = StoredRevocation(member=f"sub:{SIDS['b']}:x", at=now, sid=SIDS["b"], sub="x")
            await add_revocation(transaction, revoked)
            for job_id in ("ends", "goes"):
                found = await find_job(transaction, job_id)
                assert found is not None
                await request_end(transaction, found, now=now)
            await delete_job_records(transaction, ["goes"], at=now)
            await raise_term_to(transaction, 7)
            numbers = {one: await take_number(transaction, one, 5) for one in SERIES}
        # An addition of a later version goes with the replaced store.
        async with store.write() as transaction:
            await transaction.execute(sa.text("ALTER TABLE jobs ADD COLUMN later INTEGER"))
            await transaction.execute(sa.text("UPDATE schema_version SET version_num = '9999'"))
        await store.close()
        done = command(settings, "restore", str(file))
        assert (done.returncode, done.stderr) == (0, "")
        assert not list(tmp_path.glob("backup?*"))
        await store.open()
        async with store.read() as transaction:
            assert (await read_store_metadata(transaction)).identity == "this one"
            assert (await read_leadership(transaction)).term == 7
            # Readers had received more updates than the backup holds. They get an error that says
            # so, and miss none of the later updates, however many there are.
            for number in (0, numbers["updates"]):
                with pytest.raises(Forgotten) as missing:
                    await updates_after(transaction, number, limit=9)
                assert missing.value.through > numbers["updates"]
            later = await updates_after(transaction, missing.value.through, limit=9)
            assert {one.job_id for one in later} == {"ends", "goes"}
            assert await read_counter(transaction, "usage") > numbers["usage"]
            assert await usage_after(transaction, numbers["usage"], limit=9) == []
            pause = await read_maintenance(transaction)
            assert pause.mode == "paused"
            assert "restored from a backup of 20" in str(pause.message)
            desired = {
                job_id: (await find_job(transaction, job_id)) for job_id in ("goes-on", "ends")
            }
            assert {job_id: one and one.desired for job_id, one in desired.items()} == {
                "goes-on": "run", "ends": "ended",
            }  # fmt: skip
            gone = await find_job(transaction, "goes")
            assert gone is not None
            assert gone.desired == "ended"
            live = sa.select(tables.sessions.c.sid).where(tables.sessions.c.ended_at.is_(None))
            assert set(await transaction.scalars(live)) == {SIDS["b"], SIDS["c"]}
            member = await transaction.scalar(sa.select(tables.revocations.c.member))
            assert member == revoked.member
            stone = (await transaction.execute(sa.select(tables.tombstones))).one()
            assert (stone.job_id, stone.uid) == ("goes", "u-goes")
    finally:
        await store.close()


@pytest.mark.needs("postgres")
async def test_a_backup_of_sqlite_is_restored_into_postgresql(
    tmp_path: Path, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, url = tmp_path / "backup", postgres.new_database()
    monkeypatch.setenv("PATH", "/nowhere")  # PostgreSQL's programs are not needed
    await fill(f"sqlite:///{tmp_path}/store.db", identity="this one", jobs=501)
    await fill(url, identity="another", jobs=1)
    await asyncio.to_thread(back_up, f"sqlite:///{tmp_path}/store.db", file)
    held = file.read_bytes()
    file.write_bytes(held[:-4096])
    with pytest.raises(BackupFailed, match=f"{file}"):
        await restore(url, file, now=time.time())
    assert await rows_of(url, tables.position, "identity") == {"another"}
    file.write_bytes(held)
    await restore(url, file, now=time.time())
    assert file.read_bytes() == held
    assert await rows_of(url, tables.position, "identity") == {"this one"}
    assert await rows_of(url, tables.maintenance, "mode") == {"paused"}
    for name in ("jobs.id", "jobs.spec", "sessions.sid", "job_labels.value"):
        table, _, column = name.partition(".")
        moved = tables.metadata.tables[table]
        old = await rows_of(f"sqlite:///{tmp_path}/store.db", moved, column)
        assert old
        assert await rows_of(url, moved, column) == old


async def fill(url: str, *, identity: str, jobs: int) -> None:
    store = Store(url)
    await store.open()
    async with store.write() as transaction:
        await ensure_position(transaction, new_identity=identity)
        records = (make_record(id=f"{identity[0]}-{number}") for number in range(jobs))
        await insert_jobs(transaction, [(record, {"a": "b"}) for record in records])
        session = Session(
            sid=SIDS["a"], job_id=f"{identity[0]}-0", rank=0, kind="terminal", endpoint=None,
            port=None, base_path="/", created_at=1.5,
        )  # fmt: skip
        await insert_session(transaction, session)
    await store.close()


async def rows_of(url: str, table: sa.Table, column: str) -> set[object]:
    store = Store(url)
    async with store.read() as transaction:
        found = {repr(one) for one in await transaction.scalars(sa.select(table.c[column]))}
    await store.close()
    return {one.strip("'") for one in found}


def test_a_malformed_backup_changes_nothing(tmp_path: Path) -> None:
    database, file = tmp_path / "store.db", tmp_path / "backup"
    settings = Controller(
        tmp_path / "controller", redis_url="redis://127.0.0.1:1",
        FUMAROLE_CONTROLLER_STORE_URL=f"sqlite:///{database}",
    ).settings  # fmt: skip
    done = command(settings, "backup", str(file))
    assert (done.returncode, done.stderr) == (1, f"error: {database} does not exist\n")
    assert not file.exists()
    with closing(sqlite3.connect(database)) as there:
        there.execute("CREATE TABLE kept (id INTEGER)")
    file.write_text("hello")
    for words in (("restore", str(file)), ("restore", str(tmp_path / "none"))):
        done = command(settings, *words)
        assert done.returncode == 1, done
        # One line: nothing was replaced, so there is nothing to report about the old store.
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1
    with closing(sqlite3.connect(database)) as there:
        assert there.execute("SELECT name FROM sqlite_master").fetchall() == [("kept",)]


async def test_a_damaged_store_does_not_replace_its_last_backup(tmp_path: Path) -> None:
    database, file = tmp_path / "store.db", tmp_path / "backup"
    store = Store(f"sqlite:///{database}")
    await store.open()
    async with store.write() as transaction:
        await ensure_position(transaction, new_identity="this one")
    await store.close()
    back_up(f"sqlite:///{database}", file)
    sound = file.read_bytes()
    with closing(sqlite3.connect(database)) as there:
        pages = there.execute("SELECT rootpage FROM sqlite_master WHERE name = 'jobs'")
        (page,) = pages.fetchone()
        (size,) = there.execute("PRAGMA page_size").fetchone()
    with database.open("r+b") as damaged:
        damaged.seek((page - 1) * size)
        damaged.write(b"\xff" * 100)
    with pytest.raises(BackupFailed, match=r"cannot copy the store to .*: it is damaged: "):
        back_up(f"sqlite:///{database}", file)
    assert file.read_bytes() == sound


async def test_a_damaged_store_is_distinguished_from_a_damaged_backup(tmp_path: Path) -> None:
    database, file = tmp_path / "store.db", tmp_path / "backup"
    store = Store(f"sqlite:///{database}")
    await store.open()
    async with store.write() as transaction:
        await ensure_position(transaction, new_identity="this one")
        last = await take_number(transaction, "updates", 3)
    await store.close()
    back_up(f"sqlite:///{database}", file)
    database.write_bytes(b"what a disk makes of it" * 1000)
    with pytest.raises(BackupFailed, match=r"the store .*store\.db is damaged .*store\.db-wal"):
        await restore(f"sqlite:///{database}", file, now=time.time())
    database.unlink()
    await restore(f"sqlite:///{database}", file, now=time.time())
    async with store.read() as transaction:
        assert (await read_store_metadata(transaction)).identity == "this one"
        # The number of updates published since is unknown.
        assert await read_counter(transaction, "updates") > last + MOST_TOLD
    await store.close()
