"""Connections to the database, and transactions."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Any, Final

import asyncpg
import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import Insert as PostgreSQLInsert
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import Insert as SQLiteInsert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from controller.loop_turn import LoopTurn
from controller.store import postgresql, tables
from controller.store import sqlite as sqlite_driver
from controller.store.errors import LeadershipLost, StoreFull, StoreUnavailable
from controller.store.migrations import migrate, migrate_postgresql

Transaction = AsyncConnection
Json = Mapping[str, Any]

_TERM: Final = sa.select(tables.leadership.c.term)
# A lock that only a writable server grants, and that nobody waits for. SQLite grants its write lock
# even if the disk is full, so there a row is written.
_TOUCH: Final = sa.update(tables.leadership).values(term=tables.leadership.c.term)
_PROBE: Final = sa.select(tables.leadership.c.term).with_for_update(read=True, key_share=True)
# By default each statement of a PostgreSQL transaction sees a newer state: a revision that is read
# after the rows could belong to a change that the rows lack.
_ONE_STATE: Final[Json] = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}

REVISION_CHANNEL: Final = "fumarole_changed"
"""PostgreSQL's channel for raised revisions; the payload names the writer."""
UPDATES_CHANNEL: Final = "fumarole_updated"
"""PostgreSQL's channel for new updates; the payload names the writer."""
_TELL: Final = sa.select(
    sa.func.pg_notify(UPDATES_CHANNEL, sa.bindparam("writer", type_=sa.String))
)

WRITER_SECONDS: Final = 20.0
"""Longest wait for the process' other writes to SQLite, each of which may wait for the file."""

log = logging.getLogger(__name__)


class Store:
    """The database. Call :meth:`open` before use and :meth:`close` at the end.

    Args:
        url: A SQLAlchemy URL for SQLite or PostgreSQL, without a driver.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._engine = _make_engine(url)
        self._apart = _make_engine(url, poolclass=sa.NullPool)
        self._sqlite = self._engine.dialect.name == "sqlite"
        self._pooled = not self._sqlite and postgresql.is_pooled(sa.make_url(url))
        self.name = secrets.token_hex(8)
        """Distinguishes this process' writes from those of others."""
        self._pending: set[asyncio.Timeout] = set()
        self._wrote_at: float | None = None
        self._shortage: tuple[float, str] | None = None
        self.followers: list[Callable[[], None]] = []
        """Called after a transaction of this process has committed updates for orchestrators."""
        self._turn = LoopTurn()
        # SQLite has one writer; waiting on this lock is cheaper than on the file lock.
        self._writing = asyncio.Lock()

    @property
    def is_single_host(self) -> bool:
        """Whether all processes share one machine (SQLite), so that one controller suffices."""
        return self._sqlite

    @property
    def has_notifications(self) -> bool:
        """Whether other processes' writes are notified: not with SQLite, nor behind a pooler."""
        return not self._sqlite and not self._pooled

    async def open(self) -> None:
        """Migrate the schema to this version's; one process at a time does so.

        Without a deadline: changing large tables takes long, and nothing can be served meanwhile.

        Raises:
            StoreUnavailable: If the database cannot be reached.
            ValueError: If the schema is of a version that this one cannot use.
        """
        if self._sqlite:
            async with self.write() as transaction:
                await transaction.run_sync(migrate)
            return
        engine = _make_engine(self._url, limits=postgresql.FOR_MIGRATIONS)
        try:
            with _translated():
                await migrate_postgresql(engine)
        finally:
            await engine.dispose()

    async def close(self) -> None:
        """Close all connections."""
        await self._engine.dispose()
        await self._apart.dispose()

    def _connection(self) -> AsyncConnection:
        return (
            sqlite_driver.InLoopConnection(self._engine) if self._sqlite else self._engine.connect()
        )

    @asynccontextmanager
    async def read(self) -> AsyncIterator[Transaction]:
        """Open a transaction that sees one state of the store and must not write.

        Raises:
            StoreUnavailable: If the database does not respond.
        """
        with _translated():
            if self._sqlite:
                async with sqlite_driver.reading(self._engine) as transaction:
                    yield transaction
                # SQLite's reads never yield: a loop of reads would starve all other tasks.
                await self._turn.rest()
                return
            async with self._pending_transaction(), self._engine.connect() as connection:
                await connection.execution_options(**_ONE_STATE)
                async with connection.begin():
                    yield connection

    @asynccontextmanager
    async def write(self) -> AsyncIterator[Transaction]:
        """Open a transaction that is committed when the block ends without an error.

        Raises:
            StoreUnavailable: If the database does not respond; nothing was written.
        """
        updates: list[bool] = []
        with self._recording_shortages(), _translated():
            async with (
                self._pending_transaction(),
                self._one_writer(),
                self._connection() as connection,
            ):
                await connection.execution_options(
                    fumarole_writes=True, fumarole_writer=self.name, fumarole_updates=updates
                )
                async with connection.begin():
                    if self._pooled:
                        await connection.execute(postgresql.set_locally(postgresql.LIMITS))
                    yield connection
        self._wrote_at = time.monotonic()
        if updates:
            for follower in self.followers:
                follower()

    @asynccontextmanager
    async def _pending_transaction(self) -> AsyncIterator[None]:
        """End the transaction within by a TimeoutError if it is given up; never with SQLite.

        A probe of SQLite waits for this process' own writes, however healthy the file is.
        """
        if self._sqlite:
            yield
            return
        async with asyncio.timeout(None) as deadline:
            self._pending.add(deadline)
            try:
                yield
            finally:
                self._pending.discard(deadline)

    def give_up_pending(self) -> None:
        """End all open transactions with StoreUnavailable: PostgreSQL has stopped responding.

        Otherwise each waits for its own statement's limit, which allows for the longest statements.
        """
        now = asyncio.get_running_loop().time()
        # Once each: the end of one may take until the next call, and must not be cut off.
        while self._pending:
            self._pending.pop().reschedule(now)

    @property
    def seconds_since_write(self) -> float:
        """Seconds since the last successful writing transaction; infinite before the first one."""
        return inf if self._wrote_at is None else time.monotonic() - self._wrote_at

    def recent_shortages(self, seconds: float) -> tuple[str, ...]:
        """Return the resource that the store lacked during the last *seconds*, if any."""
        if self._shortage is None or time.monotonic() - self._shortage[0] >= seconds:
            return ()
        return (self._shortage[1],)

    @contextmanager
    def _recording_shortages(self) -> Iterator[None]:
        try:
            yield
        except StoreFull as error:
            self._shortage = time.monotonic(), str(error)
            raise

    async def probe(self) -> None:
        """Check that the store is writable, without a change.

        Raises:
            StoreUnavailable: If it is not.
        """
        async with self.write() as transaction:
            await transaction.execute(_TOUCH if self._sqlite else _PROBE)

    async def probe_apart(self) -> None:
        """Do the same over a new connection, so that a busy pool is not taken for a hung server.

        Raises:
            StoreUnavailable: If it is not writable, or has no connection left.
        """
        if self._sqlite:
            await self.probe()
            return
        with _translated():
            async with self._apart.begin() as connection:
                await connection.execute(_PROBE)

    def fenced(self, term: int) -> FencedStore:
        """Return this store as the leader of *term* writes to it."""
        return FencedStore(self, term)

    @asynccontextmanager
    async def listening(
        self, heard: Callable[[Any, int, str, str], None], *, channel: str = REVISION_CHANNEL
    ) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """Call *heard* with the payload of each notification on *channel*; PostgreSQL only.

        Yields a function that checks whether the connection is still alive.

        Raises:
            StoreUnavailable: If the database does not respond.
        """
        with _translated():
            async with self._engine.connect() as connection:
                driver: Any = (await connection.get_raw_connection()).driver_connection
                try:
                    await driver.add_listener(channel, heard)
                    yield lambda: driver.execute("SELECT 1")
                except (asyncpg.InterfaceError, asyncpg.PostgresError) as error:
                    raise StoreUnavailable(f"the database does not respond: {error}") from error
                finally:
                    # A connection that listens must not return to the pool.
                    await connection.invalidate()

    @asynccontextmanager
    async def _one_writer(self) -> AsyncIterator[None]:
        if not self._sqlite:
            yield
            return
        try:
            async with asyncio.timeout(WRITER_SECONDS):
                await self._writing.acquire()
        except TimeoutError:
            raise StoreUnavailable("the database does not respond: other writes wait") from None
        try:
            yield
        finally:
            self._writing.release()


@dataclass(frozen=True, slots=True)
class FencedStore:
    """The store of the leader of one term, who can write until another leader is elected.

    Work for the leader alone takes this store: then it cannot write without the fence.
    """

    unfenced: Store
    term: int

    def read(self) -> AbstractAsyncContextManager[Transaction]:
        """Open a reading transaction, as :meth:`Store.read` does."""
        return self.unfenced.read()

    @asynccontextmanager
    async def write(self) -> AsyncIterator[Transaction]:
        """Open a writing transaction, as :meth:`Store.write` does.

        Raises:
            LeadershipLost: If another controller leads; nothing was written.
            StoreUnavailable: If the database does not respond; nothing was written.
        """
        async with self.unfenced.write() as transaction:
            fence = None if self.unfenced.is_single_host else postgresql.HOLD_FENCE
            if fence is not None and not await transaction.scalar(fence):
                raise StoreUnavailable("another controller is becoming the leader")
            await self.check(transaction)
            yield transaction

    async def check(self, transaction: Transaction) -> None:
        """Check that the term goes on.

        Raises:
            LeadershipLost: If another controller leads.
        """
        current = await transaction.scalar(_TERM)
        if current != self.term:
            raise LeadershipLost(f"the term is {current}, not {self.term}")


def writer_of(transaction: Transaction) -> str:
    """Return the name of the store that opened this writing transaction."""
    sync = transaction.sync_connection
    name: str = sync.get_execution_options()["fumarole_writer"] if sync is not None else ""
    return name


async def notify_of_updates(transaction: Transaction) -> None:
    """Notify followers in this process and in others, once *transaction* is committed."""
    sync = transaction.sync_connection
    noted: list[bool] = sync.get_execution_options()["fumarole_updates"] if sync is not None else []
    if noted:
        return
    noted.append(True)
    if transaction.dialect.name == "postgresql":
        await transaction.execute(_TELL, {"writer": writer_of(transaction)})


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    # SQLAlchemy does not wrap what its listeners raise, and SQLite's transactions begin in one.
    except (DBAPIError, sa.exc.TimeoutError, OSError, sqlite3.DatabaseError) as error:
        # Only the cause: the statement's parameters hold secrets.
        cause = error.orig if isinstance(error, DBAPIError) else error
        if sqlite_driver.is_damaged(cause):
            raise StoreUnavailable(f"the database's file is damaged: {cause}") from None
        if isinstance(error, (DBAPIError, sqlite3.Error)) and not _is_worth_another_try(error):
            raise
        if _is_full(cause):
            raise StoreFull(f"the database is out of resources: {cause}") from None
        raise StoreUnavailable(f"the database does not respond: {cause}") from None


def _is_full(cause: object) -> bool:
    full = getattr(cause, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
    return full or postgresql.is_full(cause)


def _is_worth_another_try(error: DBAPIError | sqlite3.Error) -> bool:
    if isinstance(error, sqlite3.Error):
        return isinstance(error, sqlite3.OperationalError)
    if isinstance(error, OperationalError) or error.connection_invalidated:
        return True
    # asyncpg's errors are not mapped to DBAPI classes.
    return postgresql.is_passing(error.orig)


def _make_engine(
    url: str,
    *,
    limits: Json = postgresql.CONNECT_ARGUMENTS,
    poolclass: type[sa.Pool] | None = None,
) -> AsyncEngine:
    parsed = sa.make_url(url)
    if parsed.drivername == "sqlite":
        parsed = parsed.set(drivername=sqlite_driver.DRIVER)
    arguments: dict[str, Any] = {}
    options: dict[str, Any] = {}
    if parsed.get_backend_name() in postgresql.SCHEMES:
        pooled = postgresql.is_pooled(parsed)
        parsed, arguments = postgresql.for_driver(parsed)
        arguments |= {**limits, **postgresql.FOR_POOLERS} if pooled else limits
        # Instead of the server's default: writes are protected by locks.
        options["isolation_level"] = "READ COMMITTED"
    # Parameters hold specs and sealed secrets: they must not appear in logs or errors.
    engine = create_async_engine(
        parsed,
        hide_parameters=True,
        json_deserializer=_read_json,
        connect_args=arguments,
        poolclass=poolclass,
        **options,
    )
    if parsed.get_backend_name() == "sqlite":
        sqlite_driver.begin_explicitly(engine)
    else:
        sa.event.listen(engine.sync_engine, "handle_error", postgresql.leave_standby)
    return engine


def _read_json(text: str) -> Any:
    """Return the value, or None for invalid JSON: one bad row must not hide all others."""
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):
        pass
    try:
        return json.loads(text)  # slower, but accepts NaN and lone surrogates
    except (ValueError, RecursionError):
        return None


async def insert_if_absent(transaction: Transaction, table: sa.Table, rows: Sequence[Json]) -> None:
    """Insert *rows*; rows whose primary key exists are left alone."""
    await transaction.execute(_insert_if_absent(transaction.dialect.name, table), rows)


async def upsert(
    transaction: Transaction,
    table: sa.Table,
    rows: Sequence[Json],
    *,
    keep: tuple[str, ...] = (),
) -> None:
    """Insert *rows*; of rows whose primary key exists, set all values except those in *keep*."""
    if rows:
        changed = tuple(name for name in rows[0] if name not in keep)
        statement = _insert_or_change(transaction.dialect.name, table, changed)
        await transaction.execute(statement, rows)


# Building a statement takes longer than executing it.


@cache
def _insert_if_absent(dialect: str, table: sa.Table) -> sa.Insert:
    return _insert(dialect, table).on_conflict_do_nothing()


@cache
def _insert_or_change(dialect: str, table: sa.Table, names: tuple[str, ...]) -> sa.Insert:
    new, keys = _insert(dialect, table), table.primary_key.columns
    changed = {name: new.excluded[name] for name in names if name not in keys}
    return new.on_conflict_do_update(index_elements=keys, set_=changed)


def _insert(dialect: str, table: sa.Table) -> SQLiteInsert | PostgreSQLInsert:
    return (sqlite_insert if dialect == "sqlite" else postgresql_insert)(table)
