"""SQLite within the event loop.

SQLite is a library: a query by a key takes some microseconds, and handing it to a thread and back
costs many times that, for each cursor, statement and fetch. So queries are done in the loop's own
thread. Two things may wait, and are done in another thread: to become the writer while another
process writes, and to commit, for the disk.
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
_PRIMARY_CODE: Final = 0xFF
"""Of SQLite's codes: the rest says why (https://sqlite.org/rescode.html)."""


class Connection(sqlite3.Connection):
    """A connection of SQLAlchemy's asyncio extension; all but waiting is done at once."""

    waiting: Executor | None = None
    """Whose thread waits for locks and the disk."""

    _writes = False

    def begin(self, *, writes: bool) -> None:
        """Begin a transaction, as the only writer if it *writes*."""
        if not writes:
            self.execute("BEGIN")
            return
        # At once: a transaction that begins as a reader and finds that another one has written
        # meanwhile fails with SQLITE_BUSY, which no timeout helps against.
        if not self._begin_at_once():
            await_only(_in_thread(self.waiting, lambda: self.execute(_BEGIN_AS_WRITER)))
        self._writes = True

    def _begin_at_once(self) -> bool:
        """Become the writer if nobody else is, and say whether that is so."""
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
        """Commit; what was written is on the disk then."""
        if self._writes:
            self._writes = False
            await_only(_in_thread(self.waiting, super().commit))
        else:
            super().commit()

    def rollback(self) -> None:
        """Undo the transaction, if there is one."""
        self._writes = False
        super().rollback()


class InLoopConnection(AsyncConnection):
    """A connection whose statements are carried out at once: none of them waits for anything."""

    async def execute(
        self,
        statement: Any,
        parameters: Any = None,
        *,
        execution_options: Any = None,
    ) -> CursorResult[Any]:
        """Return what *statement* gives."""
        return _begun(self).execute(statement, parameters, execution_options=execution_options)

    async def __aexit__(self, *_: object) -> None:
        # SQLAlchemy's own does it in a task, lest it be cancelled: here nothing waits meanwhile.
        await self.close()


@asynccontextmanager
async def reading(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """Give a transaction that does not write."""
    async with InLoopConnection(engine) as connection:
        with _begun(connection).begin():
            yield connection


def _begun(connection: AsyncConnection) -> sa.Connection:
    if connection.sync_connection is None:
        raise sa.exc.InvalidRequestError("the connection is not open")
    return connection.sync_connection


def begin_where_told(engine: AsyncEngine) -> None:
    """Have each transaction of *engine* begin as what it is: a reader's, or the only writer's."""
    sa.event.listen(engine.sync_engine, "begin", _begin)


def _begin(connection: sa.Connection) -> None:
    raw: Any = connection.connection.dbapi_connection
    raw.begin(writes=connection.get_execution_options().get("fumarole_writes", False))


class InLoopDialect(SQLiteDialect_pysqlite):
    """SQLAlchemy's dialect for the connection above."""

    driver = "inloop"
    is_async = True
    has_terminate = True
    supports_statement_cache = True

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # One is enough: a store has one writer at a time. Not the loop's own threads, all of which
        # a name that does not resolve can keep from whoever has to commit.
        self._waiting = ThreadPoolExecutor(1, thread_name_prefix="sqlite")

    def connect(self, *args: Any, **options: Any) -> Any:
        """Open the file, or make it."""
        own = {
            "factory": Connection,
            "check_same_thread": False,
            "isolation_level": None,  # transactions begin where we say so
        }
        connection: Connection = sqlite3.connect(*args, **options | own)
        connection.waiting = self._waiting
        _prepare(connection)
        return connection

    @classmethod
    def get_pool_class(cls, url: URL) -> type[Pool]:
        """Return a pool that makes tasks wait, and not the loop."""
        return AsyncAdaptedQueuePool

    def do_terminate(self, dbapi_connection: Any) -> None:
        """Close a connection that nobody has given back."""
        dbapi_connection.close()


def _prepare(connection: sqlite3.Connection) -> None:
    connection.execute(_PATIENCE).close()
    for pragma in (
        "journal_mode=WAL",
        # Every commit reaches the disk: an answered call is not forgotten by a power cut.
        "synchronous=FULL",
        "foreign_keys=ON",
    ):
        connection.execute(f"PRAGMA {pragma}").close()


async def _in_thread(executor: Executor | None, call: Callable[[], object]) -> None:
    """Do *call* in a thread, to its end: nobody else may use the connection before."""
    doing = asyncio.get_running_loop().run_in_executor(executor, call)
    cancelled: asyncio.CancelledError | None = None
    while not doing.done():
        try:
            await asyncio.wait([doing])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        doing.exception()  # if there was one, it is nobody's any more
        raise cancelled
    doing.result()


registry.register("sqlite.inloop", __name__, InLoopDialect.__name__)
