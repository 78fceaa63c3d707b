"""PostgreSQL: its URL for the driver and for its programs, limits of its sessions, and its locks.

The parameters of a URL have libpq's names (PostgreSQL's documentation, "Parameter Key Words").
asyncpg accepts some of them as arguments and others only in a connection string. ``pg_dump`` and
``psql`` read them from the environment, where no other user of the machine can see the password.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlencode

import asyncpg
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

log = logging.getLogger(__name__)

DRIVER: Final = "postgresql+asyncpg"
SCHEMES: Final = ("postgresql", "postgres")
_ARGUMENTS: Final = {
    "host": "PGHOST",
    "port": "PGPORT",
    "user": "PGUSER",
    "password": "PGPASSWORD",
    "database": "PGDATABASE",
    "passfile": "PGPASSFILE",
    "service": "PGSERVICE",
    "servicefile": "PGSERVICEFILE",
    "ssl": "PGSSLMODE",
    "target_session_attrs": "PGTARGETSESSIONATTRS",
    "krbsrvname": "PGKRBSRVNAME",
    "gsslib": "PGGSSLIB",
}
"""asyncpg's arguments; ``ssl`` is its own name for ``sslmode``."""
_IN_STRING: Final = {
    "sslmode": "PGSSLMODE",
    "sslnegotiation": "PGSSLNEGOTIATION",
    "sslcert": "PGSSLCERT",
    "sslkey": "PGSSLKEY",
    "sslrootcert": "PGSSLROOTCERT",
    "sslcrl": "PGSSLCRL",
    "ssl_min_protocol_version": "PGSSLMINPROTOCOLVERSION",
    "ssl_max_protocol_version": "PGSSLMAXPROTOCOLVERSION",
    "options": "PGOPTIONS",
}
"""Parameters that asyncpg accepts only in a connection string."""
_PREPARED: Final = "prepared_statement_cache_size"
_DRIVERS: Final = frozenset({"async_fallback", "direct_tls", _PREPARED})
"""Parameters that only SQLAlchemy and asyncpg know."""
_MODES: Final = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_VERSIONS: Final = ("TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3")
_FILES: Final = ("sslrootcert", "sslcert", "sslkey", "sslcrl", "passfile")
_CHOICES: Final = {
    "ssl": _MODES,
    "sslmode": _MODES,
    "sslnegotiation": ("postgres", "direct"),
    "ssl_min_protocol_version": _VERSIONS,
    "ssl_max_protocol_version": _VERSIONS,
}
_UNREAD: Final = ("PGSERVICE", "PGHOSTADDR", "PGOPTIONS")
"""Variables that libpq reads and asyncpg does not: they could lead to another database."""


def problem_of(url: str) -> str | None:
    """Return why *url* cannot be used, without its values; None if it can."""
    try:
        parsed = sa.make_url(url)
        _arguments(parsed)
    except (sa.exc.ArgumentError, ValueError):
        return "not a SQLAlchemy URL"
    known = _ARGUMENTS.keys() | _IN_STRING.keys() | _DRIVERS
    if unknown := sorted(parsed.query.keys() - known):
        return f"unknown parameter {unknown[0]}"
    for name, value in parsed.query.items():
        if not isinstance(value, str) and name not in ("host", "port"):
            return f"parameter {name} is given twice"
        # asyncpg also accepts "verify_full".
        if name in _CHOICES and str(value).replace("_", "-") not in _CHOICES[name]:
            return f"parameter {name} must be one of {', '.join(_CHOICES[name])}"
        if name in _FILES and not os.access(str(value), os.R_OK):
            return f"parameter {name} names no file that can be read"
    return None


def is_pooled(url: sa.URL) -> bool:
    """Return whether a pooler may change the session between transactions (PgBouncer).

    That is the case if prepared statements are disabled, as SQLAlchemy's documentation advises.
    """
    return url.query.get(_PREPARED) == "0"


def for_driver(url: sa.URL) -> tuple[sa.URL, dict[str, Any]]:
    """Return the URL for SQLAlchemy, and asyncpg's additional arguments."""
    given = {name: url.query[name] for name in _IN_STRING if name in url.query}
    plain = url.set(drivername=DRIVER).difference_update_query(given)
    return plain, {"dsn": f"postgresql://?{urlencode(given)}"} if given else {}


def for_programs(url: sa.URL, environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which PostgreSQL's programs connect as the driver does.

    Args:
        url: The store's URL.
        environment: This process' environment, of which the driver reads variables too.
    """
    given = _arguments(url)
    kept = {name: value for name, value in environment.items() if name not in _UNREAD}
    names = _IN_STRING | _ARGUMENTS  # the driver prefers "ssl" to "sslmode"
    return kept | {variable: _text(given[k]) for k, variable in names.items() if given.get(k)}


def _arguments(url: sa.URL) -> dict[str, Any]:
    """Return the arguments that SQLAlchemy gives the driver; several hosts and ports are lists."""
    dialect = url.set(drivername=DRIVER).get_dialect()()
    _, arguments = dialect.create_connect_args(url)
    return dict(arguments)


def _text(value: object) -> str:
    """Return a value in libpq's form: several hosts or ports are separated by commas."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        return str(value)
    return ",".join("" if one is None else str(one) for one in value)


# Sessions and locks


# Transient SQLSTATE classes: connection, a password that is being changed, resources, operator
# intervention, system error, internal error (PostgreSQL's documentation, appendix "Error Codes").
_RESOURCES: Final = "53"
_PASSING_CLASSES: Final = ("08", "28", _RESOURCES, "57", "58", "XX")
# Transient SQLSTATEs: serialization failure, deadlock, lock not available, a database that is being
# restored, a transaction that the server's limits have ended, read-only (a standby).
_LOCK_NOT_AVAILABLE: Final = "55P03"
_READ_ONLY: Final = "25006"
_PASSING_STATES: Final = frozenset(
    {"40001", "40P01", _LOCK_NOT_AVAILABLE, "3D000", "25P03", "25P04", _READ_ONLY}
)

# By the kernel's defaults, a peer that disappeared keeps its locks for hours.
_NOTICE_DEAD_PEERS: Final[Mapping[str, Any]] = {
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
}
# A process that is suspended within a transaction keeps its locks. The lock on leadership must not
# block another leader. A transaction contains nothing but queries, so these limits are ample.
CONNECT_ARGUMENTS: Final[Mapping[str, Any]] = {
    "timeout": 10,
    "command_timeout": 30,
    "server_settings": {
        "idle_in_transaction_session_timeout": "5000",
        "lock_timeout": "10000",
        # Instead of the server's default.
        "statement_timeout": "30000",
        "application_name": "fumarole",
        **_NOTICE_DEAD_PEERS,
    },
}
# A pooler gives the session to others between two transactions, and accepts no session settings.
FOR_POOLERS: Final[Mapping[str, Any]] = {
    "statement_cache_size": 0,
    "server_settings": {"application_name": "fumarole"},
}

LIMITS: Final[Mapping[str, Any]] = {
    name: value
    for name, value in CONNECT_ARGUMENTS["server_settings"].items()
    if name.endswith("_timeout")
}

# Any number that nothing else uses in this database.
LOCK_MIGRATION: Final = sa.select(sa.func.pg_advisory_xact_lock(0x66756D61))
# Changing a table of millions of rows may take minutes, while other processes wait.
FOR_MIGRATIONS: Final[Mapping[str, Any]] = {
    "timeout": 10,
    "command_timeout": None,
    "server_settings": {"application_name": "fumarole", **_NOTICE_DEAD_PEERS},
}
WITHOUT_LIMITS: Final[Mapping[str, Any]] = {
    "idle_in_transaction_session_timeout": "0",
    "lock_timeout": "0",
    "statement_timeout": "0",
}
# Whoever waits for a table lock blocks everybody behind it: wait briefly, and try several times.
WAIT_BRIEFLY: Final = sa.text("SET LOCAL lock_timeout = '5s'")

# Every transaction of a leader holds this advisory lock shared; raising the term takes it
# exclusively, so that no write of an earlier leader can follow it. It is not a row lock: shared
# holders do not wait for each other, nor for the leader's heartbeat. A leader only tries to take
# it: the lock is refused as soon as somebody waits to raise the term, so that a busy leader cannot
# delay its successor.
_FENCE: Final = (0x66756D61, 1)  # any two numbers that nothing else uses in this database
HOLD_FENCE: Final = sa.select(sa.func.pg_try_advisory_xact_lock_shared(*_FENCE))
_CLOSE_FENCE: Final = sa.select(sa.func.pg_advisory_xact_lock(*_FENCE))
# A leader that loses its connection between parsing and executing a statement does not count as
# idle, so that no timeout ends its transaction. This is longer than the limit for idle ones.
_WAIT_FOR_FENCE: Final = sa.text("SET LOCAL lock_timeout = '7s'")
# ``objsubid`` is 2 for locks of two numbers (PostgreSQL's documentation, "pg_locks").
_END_HOLDERS: Final = sa.text(
    "SELECT pg_terminate_backend(pid) FROM pg_locks"
    " WHERE locktype = 'advisory' AND granted AND pid <> pg_backend_pid()"
    # Terminating another role's backend would fail, and this transaction with it.
    " AND pid IN (SELECT pid FROM pg_stat_activity WHERE usename = current_user)"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND classid = :one AND objid = :other AND objsubid = 2"
).bindparams(one=_FENCE[0], other=_FENCE[1])


async def close_fence(transaction: AsyncConnection) -> None:
    """Wait for the leader's open transactions, and let none begin until this one ends.

    Transactions that do not end in time are terminated; nothing of them is committed.
    """
    if transaction.dialect.name != "postgresql":
        return
    try:
        async with transaction.begin_nested():
            await transaction.execute(_WAIT_FOR_FENCE)
            await transaction.execute(_CLOSE_FENCE)
    except DBAPIError as error:
        if not waited_in_vain(error):
            raise
        log.warning("terminating the previous leader's transactions: they did not end in time")
        await transaction.execute(_END_HOLDERS)
        await transaction.execute(_CLOSE_FENCE)


def set_locally(settings: Mapping[str, Any]) -> sa.Select[Any]:
    """Return the statement that applies *settings* until the transaction ends."""
    return sa.select(*(sa.func.set_config(name, value, True) for name, value in settings.items()))


def waited_in_vain(error: DBAPIError) -> bool:
    """Return whether a lock was not available in time."""
    return _state_of(error.orig) == _LOCK_NOT_AVAILABLE


def is_full(cause: object) -> bool:
    """Return whether the server lacks space, memory or connections."""
    return _state_of(cause).startswith(_RESOURCES)


def is_passing(cause: BaseException | None) -> bool:
    """Return whether another try may succeed."""
    # A certificate file that the URL names or implies does not exist (yet).
    if cause is not None and isinstance(cause.__cause__, asyncpg.ClientConfigurationError):
        return True
    state = _state_of(cause)
    return state.startswith(_PASSING_CLASSES) or state in _PASSING_STATES


def _state_of(cause: object) -> str:
    return getattr(cause, "sqlstate", None) or ""


def leave_standby(context: sa.ExceptionContext) -> None:
    """Drop all connections if one leads to a standby: new ones may reach the primary."""
    if _state_of(context.original_exception) == _READ_ONLY:
        context.is_disconnect = True
