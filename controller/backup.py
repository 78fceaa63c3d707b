"""A copy of the store as one file: ``fumarole-controller backup`` and ``restore``.

SQLite is copied by its online backup, PostgreSQL by ``pg_dump`` and ``pg_restore``. A backup of
SQLite can be restored into PostgreSQL, too. A backup may be made while controllers run. A restored
store is older than the cluster and Redis. Therefore:

- Submission is paused: a job that waited at the backup may have run since, and would run again.
- The replaced store's records of what was removed (tombstones, ended sessions, revocations, jobs
  that were to end) are added to the restored one.
- Numbers of updates and of ledger entries continue after those that readers have seen.
- Redis' records of the same are added by the first leader (:mod:`controller.sessions.restored`).

The database may contain other tables: only those of the store are copied and replaced.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import subprocess
import tempfile
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Store, Transaction, insert_if_absent
from controller.store.errors import StoreUnavailable
from controller.store.instance import raise_term_to, read_leadership, set_maintenance
from controller.store.jobs.job_rows import IS_LIVE, find_job, request_end
from controller.store.migrations import VERSION_TABLES, migrate
from controller.store.outbox.update_rows import Series, read_counter, skip_numbers
from controller.store.postgresql import WITHOUT_LIMITS, for_programs, set_locally
from controller.store.sessions.revocations import StoredRevocation, add_revocation
from controller.store.sessions.session_rows import end_session
from controller.store.sqlite import is_damaged
from shared.errors import FumaroleError

_PAUSED: Final = (
    "restored from a backup of {at}: end the waiting jobs that have ended since, then resume"
)
_AT_ONCE: Final = 500
_SQLITE_MAGIC: Final = b"SQLite format 3\0"
_SIDE: Final = ".partial"
_OURS: Final = (*sorted(tables.metadata.tables), *VERSION_TABLES)
_PSQL: Final = ("--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1")
# A table of the same name in another schema belongs to others, even if ours does not exist.
_DROP: Final = f"""DO $$ DECLARE ours record; BEGIN
  FOR ours IN SELECT schemaname, tablename FROM pg_catalog.pg_tables
    WHERE schemaname = current_schema() AND tablename IN ({", ".join(f"'{one}'" for one in _OURS)})
  LOOP EXECUTE format('DROP TABLE %I.%I CASCADE', ours.schemaname, ours.tablename); END LOOP;
END $$"""  # noqa: S608 - the names are our own

log = logging.getLogger(__name__)


class BackupFailed(FumaroleError):
    """The store could not be copied, or a file does not contain a store."""


def back_up(url: str, file: Path) -> None:
    """Write the store at *url* to *file*, completely; on failure the file stays as it was.

    Raises:
        BackupFailed: If it fails.
    """
    side = file.with_name(file.name + _SIDE)
    try:
        side.unlink(missing_ok=True)
        side.touch(mode=0o600)
        parsed = sa.make_url(url)
        if parsed.get_backend_name() == "sqlite":
            _copy_sqlite(Path(parsed.database or ""), side)
            _make_one_file(side)
            # SQLite copies damaged pages without a word, and the last sound backup would be lost.
            if (flaw := _flaw_of(side)) is not None:
                raise BackupFailed(f"cannot copy the store to {file}: {flaw}")
        else:
            _dump_postgresql(parsed, side)
        side.replace(file)
    except (OSError, sqlite3.Error) as error:
        raise BackupFailed(f"cannot copy the store to {file}: {error}") from None
    finally:
        side.unlink(missing_ok=True)


async def restore(url: str, file: Path, *, now: float) -> None:
    """Replace the store at *url* by the one in *file*; controllers must not run.

    Raises:
        BackupFailed: If the file does not contain a store, or it cannot be restored.
        StoreUnavailable: If the database does not respond.
    """
    store = Store(url)
    try:
        removed = await _removed_since(store)
        await store.close()  # the replaced database must not be open
        if not store.is_single_host and _is_sqlite(file):
            await _move_to_postgresql(file, store)
        else:
            await asyncio.to_thread(_put_back, url, file)
        at = _time_of(file)
        if removed is None:
            log.warning(
                "the replaced store could not be read: only Redis knows what was removed since"
            )
            removed = _Removed([], [], [], [])
        await store.open()
        async with store.write() as transaction:
            await removed.keep(transaction, now=now)
            await set_maintenance(transaction, "paused", _PAUSED.format(at=at), now=now)
    finally:
        await store.close()


@dataclass(frozen=True, slots=True)
class _Removed:
    """A store's records of what was removed."""

    tombstones: list[dict[str, Any]]
    revocations: list[StoredRevocation]
    sessions: list[str]
    jobs: list[str]
    term: int = 0
    told: dict[Series, int] | None = None

    async def keep(self, transaction: Transaction, *, now: float) -> None:
        """Add the records to another store."""
        # Redis refuses a leader whose term is lower than that of the last publisher.
        await raise_term_to(transaction, self.term)
        await skip_numbers(transaction, self.told)
        if self.tombstones:
            await insert_if_absent(transaction, tables.tombstones, self.tombstones)
        for revocation in self.revocations:
            await add_revocation(transaction, revocation)
        for sid in await _still(transaction, tables.sessions.c.sid, self.sessions, _OPEN):
            await end_session(transaction, sid, reason="ended", now=now)
        gone = {*self.jobs, *(one["job_id"] for one in self.tombstones)}
        for job_id in await _still(transaction, tables.jobs.c.id, sorted(gone), IS_LIVE):
            record = await find_job(transaction, job_id)
            if record is not None:
                await request_end(transaction, record, now=now)


_OPEN: Final = tables.sessions.c.ended_at.is_(None)
_OVER: Final = sa.or_(sa.not_(IS_LIVE), tables.jobs.c.desired == "ended")


async def _still(
    transaction: Transaction, key: sa.Column[str], names: list[str], live: sa.ColumnElement[bool]
) -> list[str]:
    """Return those of *names* whose rows are *live*."""
    found: list[str] = []
    for first in range(0, len(names), _AT_ONCE):
        some = key.in_(names[first : first + _AT_ONCE])
        found += (await transaction.scalars(sa.select(key).where(some, live))).all()
    return found


async def _removed_since(store: Store) -> _Removed | None:
    """Return the records of the store that is replaced; None if it cannot be read."""
    revoked = sa.select(*(tables.revocations.c[name] for name in StoredRevocation.__slots__))
    try:
        async with store.read() as transaction:
            stones = await transaction.execute(tables.tombstones.select())
            revocations = await transaction.execute(revoked)
            sessions = await transaction.scalars(sa.select(tables.sessions.c.sid).where(~_OPEN))
            jobs = await transaction.scalars(sa.select(tables.jobs.c.id).where(_OVER))
            return _Removed(
                [dict(row._mapping) for row in stones],
                [StoredRevocation(**row._mapping) for row in revocations],
                list(sessions),
                list(jobs),
                (await read_leadership(transaction)).term,
                {
                    "updates": await read_counter(transaction, "updates"),
                    "usage": await read_counter(transaction, "usage"),
                },
            )
    except (StoreUnavailable, sa.exc.SQLAlchemyError):
        # Lost, damaged, empty or of an older version: the reasons for a restore.
        return None


def _time_of(file: Path) -> str:
    return datetime.fromtimestamp(file.stat().st_mtime, UTC).isoformat(timespec="seconds")


def _is_sqlite(file: Path) -> bool:
    with suppress(OSError), file.open("rb") as opened:
        return opened.read(len(_SQLITE_MAGIC)) == _SQLITE_MAGIC
    return False


async def _move_to_postgresql(file: Path, store: Store) -> None:
    """Replace *store* by the backup of an SQLite store, in one transaction."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/store.db"
        await asyncio.to_thread(_put_back, url, file)
        moved = Store(url)
        try:
            await moved.open()  # the backup may be of an older version
            async with moved.read() as old, store.write() as new:
                await new.execute(set_locally(WITHOUT_LIMITS))
                await new.execute(sa.text(_DROP))
                await new.run_sync(migrate)
                for table in tables.metadata.sorted_tables:
                    await new.execute(table.delete())
                    for rows in (await old.execute(table.select())).mappings().partitions(_AT_ONCE):
                        await new.execute(table.insert(), [dict(row) for row in rows])
        except sa.exc.SQLAlchemyError as error:
            raise BackupFailed(f"cannot restore {file}: {error}") from None
        finally:
            await moved.close()


def _put_back(url: str, file: Path) -> None:
    """Replace the store by a backup of the same kind of database."""
    parsed = sa.make_url(url)
    try:
        if parsed.get_backend_name() == "sqlite":
            if (flaw := _flaw_of(file)) is not None:
                raise BackupFailed(f"{file} does not contain a complete store: {flaw}")
            _replace_sqlite(file, Path(parsed.database or ""))
        else:
            _restore_postgresql(parsed, file)
    except (OSError, sqlite3.Error) as error:
        raise BackupFailed(f"cannot restore {file}: {error}") from None


def _flaw_of(file: Path) -> str | None:
    """Return why *file* does not contain a complete store; None if it does."""
    with closing(_open_sqlite(file)) as copy:
        (found,) = copy.execute("PRAGMA integrity_check(1)").fetchone()
        if found != "ok":
            return f"it is damaged: {' '.join(str(found).split())}"
        if copy.execute("SELECT identity FROM position").fetchone() is None:
            return "no controller has used it yet"
    return None


def _copy_sqlite(source: Path, target: Path) -> None:
    # In one step under SQLite's own locks: readers see either the old or the new state.
    with closing(_open_sqlite(source)) as origin, closing(sqlite3.connect(target)) as copy:
        origin.backup(copy)


def _replace_sqlite(file: Path, target: Path) -> None:
    try:
        _copy_sqlite(file, target)
    except sqlite3.DatabaseError as error:
        if not is_damaged(error):
            raise
        # The backup is sound. SQLite does not write into a database that it cannot read.
        raise BackupFailed(
            f"the store {target} is damaged ({error}): move it, {target.name}-wal and "
            f"{target.name}-shm away, if they exist, and restore again"
        ) from None


def _make_one_file(copy: Path) -> None:
    # Readers of a database with a write-ahead log create files beside it. On a read-only disk they
    # cannot.
    with closing(sqlite3.connect(copy)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE").close()


def _open_sqlite(file: Path) -> sqlite3.Connection:
    if not file.is_file():
        raise BackupFailed(f"{file} does not exist")
    return sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)


def _dump_postgresql(url: sa.URL, file: Path) -> None:
    asked = "--command=SELECT quote_ident(current_schema())"
    schema = _run_postgresql(url, "psql", *_PSQL, "--tuples-only", "--no-align", asked).strip()
    if not schema:
        raise BackupFailed("the database has no schema that its user may read")
    ours = [f"--table={schema}.{name}" for name in _OURS]
    _run_postgresql(url, "pg_dump", "--format=custom", "--no-owner", f"--file={file}", *ours)


def _restore_postgresql(url: sa.URL, file: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "store.sql")
        _run_postgresql(url, "pg_restore", "--no-owner", f"--file={script}", str(file))
        # All tables of the store, also those of a later version than the backup's: all or nothing.
        _run_postgresql(
            url, "psql", *_PSQL, "--single-transaction", f"--command={_DROP}", f"--file={script}",
            # The script sets no search path. A backup of another schema is not of this store.
            "--command=RESET search_path", '--command=SELECT identity FROM "position"',
        )  # fmt: skip


def _run_postgresql(url: sa.URL, program: str, *arguments: str) -> str:
    """Return the output of one of PostgreSQL's programs; no argument contains the password."""
    environment = for_programs(url, os.environ)
    try:
        command = [program, *arguments]
        done = subprocess.run(command, env=environment, capture_output=True)  # noqa: S603 - no shell
    except FileNotFoundError:
        raise BackupFailed(f"{program} is required, but not on the PATH") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or [str(done.returncode)]
        # psql prints the statement below its error.
        raise BackupFailed(f"{program}: {next((s for s in said if 'ERROR:' in s), said[-1])}")
    return done.stdout.decode(errors="replace")
