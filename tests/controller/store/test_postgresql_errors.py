"""Tests how the store handles PostgreSQL's errors, which the tests make PostgreSQL raise."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
import sqlalchemy as sa

from controller.store import database, probing, tables
from controller.store.database import Store
from controller.store.errors import StoreFull, StoreUnavailable
from controller.store.instance import ensure_position, raise_revision
from controller.store.probing import StoreProbe, database_clock
from controller.store.sessions.revocations import revocation_time
from tests.controller.postgres import Postgres
from tests.controller.running import eventually

pytestmark = pytest.mark.needs("postgres")

RAISES = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'on purpose' USING ERRCODE = TG_ARGV[0]; END $$
"""


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    store = Store(url)
    try:
        await store.open()
        async with store.write() as transaction:
            await ensure_position(transaction, new_identity="me")
        yield store
    finally:
        await store.close()


async def set_default(store: Store, name: str, value: str) -> None:
    """Set another default for new sessions of the store's database."""
    async with store.write() as transaction:
        # An operator's session may write, whatever the default is.
        await transaction.execute(sa.text("SET TRANSACTION READ WRITE"))
        database_name = await transaction.scalar(sa.select(sa.func.current_database()))
        await transaction.execute(sa.text(f'ALTER DATABASE "{database_name}" SET {name} = {value}'))


async def revise(store: Store) -> int:
    async with store.write() as transaction:
        return await raise_revision(transaction)


# A serialization failure, a deadlock, a full disk, no connection left, a standby, a statement
# timeout, a restart, a broken page, a password change, a restore.
@pytest.mark.parametrize(
    "state",
    ["40001", "40P01", "53100", "53300", "25006", "57014", "57P01", "XX001", "28P01", "3D000"],
)
async def test_transient_errors_are_retryable(postgres: Postgres, state: str) -> None:
    async with opened(postgres.new_database()) as store:
        async with store.write() as transaction:
            await transaction.execute(sa.text(RAISES))
            await transaction.execute(
                sa.text(
                    "CREATE TRIGGER refuse BEFORE UPDATE ON position FOR EACH ROW"
                    f" EXECUTE FUNCTION refuse('{state}')"
                )
            )
        with pytest.raises(StoreUnavailable) as refused:
            await revise(store)
        assert isinstance(refused.value, StoreFull) == state.startswith("53")
        assert store.recent_shortages(60) == (
            (str(refused.value),) if state.startswith("53") else ()
        )
        assert store.recent_shortages(0) == ()
        async with store.write() as transaction:
            await transaction.execute(sa.text("DROP TRIGGER refuse ON position"))
        assert await revise(store) == 1


async def test_server_defaults_of_timeouts_and_isolation_are_overridden(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres.new_database()
    async with opened(url) as store:
        await set_default(store, "statement_timeout", "100")
        await set_default(store, "default_transaction_isolation", "'serializable'")

    def slow(connection: sa.Connection) -> None:
        connection.execute(sa.text("SELECT pg_sleep(0.3)"))

    monkeypatch.setattr(database, "migrate", slow)
    async with opened(url) as store:
        async with store.write() as transaction:
            assert await transaction.scalar(sa.text("SHOW statement_timeout")) == "30s"
            level = await transaction.scalar(sa.text("SHOW transaction_isolation"))
            assert level == "read committed"
        async with store.read() as transaction:
            level = await transaction.scalar(sa.text("SHOW transaction_isolation"))
            assert level == "repeatable read"
        # Each transaction waits for the previous one, and reads what it wrote.
        revisions = await asyncio.gather(*(revise(store) for _ in range(8)))
        assert sorted(revisions) == list(range(1, 9))


async def test_behind_a_pooler_no_session_feature_is_used(postgres: Postgres) -> None:
    # The next transaction may not find session state of the previous one. A pooler also refuses
    # some of it: settings in the startup message.
    async with opened(postgres.new_database() + "&prepared_statement_cache_size=0") as store:
        assert not store.has_notifications
        for _ in range(2):
            await revise(store)
        async with store.write() as transaction:
            assert await transaction.scalar(sa.text("SHOW lock_timeout")) == "10s"
            assert await transaction.scalar(sa.text("SHOW statement_timeout")) == "30s"
            assert await transaction.scalar(sa.text("SHOW transaction_isolation")) == (
                "read committed"
            )
        async with store.read() as transaction:
            sent = sa.text("SELECT name FROM pg_settings WHERE source = 'client' ORDER BY name")
            assert set(await transaction.scalars(sent)) <= {"application_name", "client_encoding"}
            names = sa.text("SELECT name FROM pg_prepared_statements")
            assert list(await transaction.scalars(names)) == []
            heard = sa.text("SELECT pg_listening_channels()")
            assert list(await transaction.scalars(heard)) == []


async def test_connections_to_a_demoted_server_are_closed(postgres: Postgres) -> None:
    url = postgres.new_database()
    async with opened(url) as operator:
        await set_default(operator, "default_transaction_read_only", "on")
        store = Store(url)
        with pytest.raises(StoreUnavailable, match="read-only"):
            await revise(store)
        # The connections were good, but led to the wrong server.
        await set_default(operator, "default_transaction_read_only", "off")
        assert await revise(store) == 1
        await store.close()


async def test_a_process_is_ready_while_its_store_takes_writes(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(probing, "ROUND_SECONDS", 0.02)
    monkeypatch.setattr(probing, "SILENT_SECONDS", 0.5)
    url = postgres.new_database()
    async with opened(url) as operator:
        store = Store(url)
        probe = StoreProbe(store)
        assert probe.problems() == ("the store is not writable: nothing was written yet",)
        running = asyncio.create_task(probe.run())

        async def problem() -> str | None:
            return next(iter(probe.problems()), None)

        async def is_ready() -> bool:
            return await problem() is None

        try:
            await eventually(is_ready)
            await set_default(operator, "default_transaction_read_only", "on")
            async with operator.read() as transaction:
                await transaction.execute(
                    sa.text(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                    )
                )
            assert "read-only" in await eventually(problem)
            await set_default(operator, "default_transaction_read_only", "off")
            await eventually(is_ready)
            async with store.read() as transaction:
                assert await transaction.scalar(sa.select(tables.leadership.c.term)) == 0
            logged = [one.getMessage() for one in caplog.records if one.name == probing.__name__]
            assert logged == ["the store is not writable", "the store is writable again"]
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await store.close()


@pytest.mark.parametrize(
    ("ahead", "told"),
    [
        (3600, "s ahead of the database's"),
        (-60, "s behind the database's"),
        (0, None),
    ],
)
async def test_a_clock_skew_to_the_database_is_reported(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch, ahead: int, told: str | None
) -> None:
    monkeypatch.setattr(probing, "ROUND_SECONDS", 0.02)
    clock = SimpleNamespace(ahead=ahead, looks=0)

    def now() -> float:
        clock.looks += 1
        return time.time() + float(clock.ahead)

    async with opened(postgres.new_database()) as store:
        probe = StoreProbe(store, clock=now)
        running = asyncio.create_task(probe.run())

        async def polled_again() -> bool:
            return bool(clock.looks > 4)

        async def is_in_step() -> bool:
            return not probe.degraded()

        try:
            await eventually(polled_again)
            assert [one[-len(told or "") :] for one in probe.degraded()] == ([told] if told else [])
            clock.ahead = 0
            await eventually(is_in_step)
            assert probe.problems() == ()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def test_a_revocation_by_a_slow_clock_gets_the_databases_time(
    postgres: Postgres,
) -> None:
    async with opened(postgres.new_database()) as store, store.write() as transaction:
        before = await database_clock(transaction)
        assert before is not None
        # Otherwise grants of the last minute would outlive the revocation.
        assert await revocation_time(transaction, now=before - 60) >= before
        assert await revocation_time(transaction, now=before + 600) == before + 600
