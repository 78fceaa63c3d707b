from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
import pytest_asyncio

from controller.store import database, sqlite
from controller.store.database import Store
from controller.store.errors import StoreUnavailable
from controller.store.instance import ensure_position, raise_revision, read_store_metadata
from controller.store.sqlite import InLoopDialect


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest_asyncio.fixture
async def file(path: Path) -> AsyncIterator[Store]:
    store = Store(f"sqlite:///{path}")
    await store.open()
    async with store.write() as transaction:
        await ensure_position(transaction, new_identity="test")
    yield store
    await store.close()


async def raise_it(store: Store) -> int:
    async with store.write() as transaction:
        return await raise_revision(transaction)


async def test_another_processs_write_blocks_neither_loop_nor_readers(
    file: Store, path: Path
) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        writing = asyncio.create_task(raise_it(file))
        await asyncio.sleep(0.1)
        assert not writing.done()
        async with file.read() as transaction:
            assert (await read_store_metadata(transaction)).revision == 0
        other.execute("COMMIT")
        assert await writing == 1


async def test_a_write_that_waited_in_vain_for_another_process_is_unavailable(
    file: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "_PATIENCE", "PRAGMA busy_timeout=100")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="database is locked"):
            await raise_it(file)
        other.execute("COMMIT")
    assert await raise_it(file) == 1


async def test_writes_behind_one_that_waits_are_unavailable_after_a_deadline(
    file: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "WRITER_SECONDS", 0.1)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        first = asyncio.create_task(raise_it(file))
        await asyncio.sleep(0.05)
        with pytest.raises(StoreUnavailable, match="other writes wait"):
            await raise_it(file)
        other.execute("COMMIT")
        assert await first == 1
    assert await raise_it(file) == 2


async def test_a_cancelled_waiting_writer_leaves_no_lock(file: Store, path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        writing = asyncio.create_task(raise_it(file))
        await asyncio.sleep(0.05)
        writing.cancel()
        await asyncio.sleep(0.05)
        other.execute("COMMIT")
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert await raise_it(file) == 1


async def test_a_commit_runs_in_another_thread(
    file: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    waited: list[str] = []
    real = loop.run_in_executor

    def counted(executor: object, call: object) -> object:
        waited.append(getattr(call, "__name__", ""))
        return real(executor, call)  # type: ignore[arg-type]  # passed on

    monkeypatch.setattr(loop, "run_in_executor", counted)
    await raise_it(file)
    assert waited == ["commit"], "nobody else writes"
    async with file.read() as transaction:
        await read_store_metadata(transaction)
    assert len(waited) == 1


async def test_a_file_that_is_no_database_is_an_unavailable_store(path: Path) -> None:
    path.write_text("not a database, and longer than a header of a hundred bytes\n" * 20)
    store = Store(f"sqlite:///{path}")
    with pytest.raises(StoreUnavailable, match="is damaged: file is not a database"):
        await store.open()
    await store.close()


async def test_a_commit_does_not_use_the_default_executor(file: Store) -> None:
    blocked = threading.Event()
    loop = asyncio.get_running_loop()
    slow = [loop.run_in_executor(None, blocked.wait) for _ in range(64)]
    try:
        async with asyncio.timeout(30):
            assert await raise_it(file) == 1
    finally:
        blocked.set()
        await asyncio.gather(*slow)


def test_a_file_that_is_no_database_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"no database" * 1000)
    dialect = InLoopDialect()
    with pytest.raises(sqlite3.DatabaseError) as caught:
        dialect.connect(str(path))
    opened = [os.readlink(one) for one in Path("/proc/self/fd").iterdir() if one.exists()]
    # The frames of the error refer to the connection, so only a call can have closed the file.
    assert caught.tb is not None
    assert str(path) not in opened
