"""The store's PostgreSQL URL in the forms that the driver and PostgreSQL's programs need.

The parameters of a URL have libpq's names (PostgreSQL's documentation, "Parameter Key Words").
asyncpg accepts some of them as arguments and others only in a connection string. ``pg_dump`` and
``psql`` read them from the environment, where no other user of the machine can see the password.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlencode

import sqlalchemy as sa

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
