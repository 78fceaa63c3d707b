"""SQLite within the event loop.

SQLite is a library. A query by key takes a few microseconds; handing it to a thread and back costs
many times that, for each cursor, statement and fetch. So queries run in the loop's own thread. Two
operations may block and run in another thread: taking the write lock while another process writes,
and committing, which waits for the disk.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.engine import URL, CursorResult
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.pool import AsyncAdaptedQueuePool, Pool
from sqlalchemy.util import await_only

BUSY_SECONDS: Final = 10.0
DRIVER: Final = "sqlite+inloop"
_PATIENCE: Final = f"PRAGMA busy_timeout={int(BUSY_SECONDS * 1000)}"
_BEGIN_AS_WRITER: Final = "BEGIN IMMEDIATE"
_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_PRIMARY_CODE: Final = 0xFF
"""Masks SQLite's extended result codes (https://sqlite.org/rescode.html)."""


class Connection(sqlite3.Connection):
    """A connection for SQLAlchemy's asyncio extension; only blocking calls leave the loop."""

    waiting: Executor | None = None
    """Runs the calls that wait for locks and the disk."""

    _writes = False

    def begin(self, *, writes: bool) -> None:
        """Begin a transaction; take the write lock if it *writes*."""
        if not writes:
            self.execute("BEGIN")
            return
        # IMMEDIATE: a transaction that begins as a reader and becomes a writer fails with
        # SQLITE_BUSY if another one has written meanwhile, whatever the timeout.
        if not self._begin_at_once():
            await_only(_in_thread(self.waiting, lambda: self.execute(_BEGIN_AS_WRITER)))
        self._writes = True

    def _begin_at_once(self) -> bool:
        """Take the write lock without waiting; return whether it was free."""
        self.execute("PRAGMA busy_timeout=0")
        try:
            self.execute(_BEGIN_AS_WRITER)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & _PRIMARY_CODE != sqlite3.SQLITE_BUSY:
                raise
            return False
        finally:
            self.execute(_PATIENCE)
        return True

    def commit(self) -> None:
        """Commit. The data is then on the disk."""
        if self._writes:
            self._writes = False
            await_only(_in_thread(self.waiting, super().commit))
        else:
            super().commit()

    def rollback(self) -> None:
        """Roll back the transaction, if there is one."""
        self._writes = False
        super().rollback()


class InLoopConnection(AsyncConnection):
    """A connection that executes statements directly, since none of them blocks."""

    async def execute(
        self,
        statement: Any,
        parameters: Any = None,
        *,
        execution_options: Any = None,
    ) -> CursorResult[Any]:
        """Execute *statement* and return its result."""
        return _begun(self).execute(statement, parameters, execution_options=execution_options)

    async def __aexit__(self, *_: object) -> None:
        # SQLAlchemy closes in a shielded task; that is unnecessary, since closing never waits.
        await self.close()


@asynccontextmanager
async def reading(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """Open a transaction that does not write."""
    async with InLoopConnection(engine) as connection:
        with _begun(connection).begin():
            yield connection


def _begun(connection: AsyncConnection) -> sa.Connection:
    if connection.sync_connection is None:
        raise sa.exc.InvalidRequestError("the connection is not open")
    return connection.sync_connection


def begin_explicitly(engine: AsyncEngine) -> None:
    """Begin each transaction of *engine* as a reader or as a writer, by its execution options."""
    sa.event.listen(engine.sync_engine, "begin", _begin)


def _begin(connection: sa.Connection) -> None:
    raw: Any = connection.connection.dbapi_connection
    raw.begin(writes=connection.get_execution_options().get("fumarole_writes", False))


def is_damaged(error: object) -> bool:
    """Return whether *error* says that the file is no database, or is damaged."""
    return (
        isinstance(error, sqlite3.DatabaseError)
        # Errors of the module itself have no code.
        and getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE in _DAMAGED
    )


class InLoopDialect(SQLiteDialect_pysqlite):
    """SQLAlchemy's dialect for :class:`Connection`."""

    driver = "inloop"
    is_async = True
    has_terminate = True
    supports_statement_cache = True

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # One thread suffices: a store has one writer at a time. Not the loop's default executor,
        # whose threads slow name resolution can occupy.
        self._waiting = ThreadPoolExecutor(1, thread_name_prefix="sqlite")

    def connect(self, *args: Any, **options: Any) -> Any:
        """Open the database file, or create it."""
        own = {
            "factory": Connection,
            "check_same_thread": False,
            "isolation_level": None,  # transactions begin explicitly
        }
        connection: Connection = sqlite3.connect(*args, **options | own)
        connection.waiting = self._waiting
        try:
            _prepare(connection)
        except BaseException:  # nobody else knows the connection
            connection.close()
            raise
        return connection

    @classmethod
    def get_pool_class(cls, url: URL) -> type[Pool]:
        """Return a pool for which tasks wait, rather than the loop."""
        return AsyncAdaptedQueuePool

    def do_terminate(self, dbapi_connection: Any) -> None:
        """Close a connection that was not returned to the pool."""
        dbapi_connection.close()


def _prepare(connection: sqlite3.Connection) -> None:
    connection.execute(_PATIENCE).close()
    for pragma in (
        "journal_mode=WAL",
        # Every commit reaches the disk: a power cut loses nothing that was acknowledged.
        "synchronous=FULL",
        "foreign_keys=ON",
    ):
        connection.execute(f"PRAGMA {pragma}").close()


async def _in_thread(executor: Executor | None, call: Callable[[], object]) -> None:
    """Run *call* in a thread to its end, even if cancelled: the connection is in use until then."""
    doing = asyncio.get_running_loop().run_in_executor(executor, call)
    cancelled: asyncio.CancelledError | None = None
    while not doing.done():
        try:
            await asyncio.wait([doing])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        doing.exception()  # retrieved, so that asyncio does not log it
        raise cancelled
    doing.result()


registry.register("sqlite.inloop", __name__, InLoopDialect.__name__)
