"""Tests that a PostgreSQL that hangs delays no transaction until its statement's own limit."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from controller.store import probing
from controller.store.database import Store
from controller.store.errors import StoreUnavailable
from controller.store.postgresql import CONNECT_ARGUMENTS
from controller.store.probing import StoreProbe
from tests.controller.postgres import running_postgres

pytestmark = [pytest.mark.needs("postgres"), pytest.mark.timeout(120)]


@contextmanager
def hung(folder: Path) -> Iterator[None]:
    """Stop the server's processes, as a suspended machine or a stuck disk does."""
    main = (folder / "data/postmaster.pid").read_text().split()[0]
    children = Path(f"/proc/{main}/task/{main}/children").read_text().split()
    for process in (main, *children):
        os.kill(int(process), signal.SIGSTOP)
    try:
        yield
    finally:
        for process in (*children, main):
            os.kill(int(process), signal.SIGCONT)


@pytest.fixture
def quick_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROUND_SECONDS", "PROBE_SECONDS", "AGAIN_SECONDS"):
        monkeypatch.setattr(probing, name, 0.5)


@pytest.mark.usefixtures("quick_probes")
async def test_transactions_are_given_up_once_two_probes_are_not_answered() -> None:
    with running_postgres() as postgres:
        store = Store(postgres.new_database())
        await store.open()
        async with store.read() as transaction:
            await transaction.scalar(sa.select(1))
        probe = asyncio.create_task(StoreProbe(store).run())
        with hung(postgres.folder):
            began = time.monotonic()
            for opened in (store.read, store.write):
                with pytest.raises(StoreUnavailable):
                    async with opened() as transaction:
                        await transaction.scalar(sa.select(1))
            assert time.monotonic() - began < CONNECT_ARGUMENTS["command_timeout"]
        probe.cancel()

        async def is_back() -> bool:
            try:
                async with store.write() as transaction:
                    await transaction.scalar(sa.select(1))
            except StoreUnavailable:
                return False
            return True

        async with asyncio.timeout(30):
            while not await is_back():
                await asyncio.sleep(0.1)
        await store.close()


@pytest.mark.usefixtures("quick_probes")
async def test_reads_that_keep_all_connections_busy_are_not_given_up() -> None:
    """No connection is left for a write, nor for a probe that would wait for one of theirs."""
    with running_postgres() as postgres:
        store = Store(postgres.new_database())
        await store.open()

        async def read() -> None:
            async with store.read() as transaction:
                await transaction.scalar(sa.select(sa.func.pg_sleep(4)))

        probe = asyncio.create_task(StoreProbe(store).run())
        # SQLAlchemy's pool has fifteen connections.
        await asyncio.gather(*(read() for _ in range(20)))
        probe.cancel()
        await store.close()


async def test_a_transaction_whose_end_takes_long_is_given_up_once() -> None:
    with running_postgres() as postgres:
        store = Store(postgres.new_database())
        await store.open()

        async def read() -> None:
            async with store.read() as transaction:
                await transaction.scalar(sa.select(sa.func.pg_sleep(60)))

        reading = asyncio.create_task(read())
        await asyncio.sleep(0.5)
        with hung(postgres.folder):
            while not reading.done():
                store.give_up_pending()
                await asyncio.sleep(0.01)
        with pytest.raises(StoreUnavailable):
            await reading
        await store.close()
