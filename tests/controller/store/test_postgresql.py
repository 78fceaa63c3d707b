from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from controller.store.database import Store
from controller.store.errors import StoreUnavailable
from controller.store.postgresql import DRIVER, for_driver, for_programs, problem_of
from tests.controller.postgres import Postgres
from tests.controller.running import eventually


def test_connection_options_reach_the_driver_in_its_url() -> None:
    url = sa.make_url(
        "postgres://u:p@h:1/d?sslmode=verify-ca&sslrootcert=/a%20b&prepared_statement_cache_size=0"
    )
    plain, given = for_driver(url)
    assert plain.drivername == DRIVER
    assert dict(plain.query) == {"prepared_statement_cache_size": "0"}
    assert plain.password == "p"
    assert given == {"dsn": "postgresql://?sslmode=verify-ca&sslrootcert=%2Fa+b"}
    assert for_driver(sa.make_url("postgresql://h/d"))[1] == {}


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("u:p%40%25@h:1/d", {"USER": "u", "PASSWORD": "p@%", "HOST": "h", "PORT": "1",
                             "DATABASE": "d"}),
        ("u@/d?host=/run/x&port=7", {"USER": "u", "HOST": "/run/x", "PORT": "7", "DATABASE": "d"}),
        ("/d?host=a:1&host=b:2&target_session_attrs=primary",
         {"HOST": "a,b", "PORT": "1,2", "TARGETSESSIONATTRS": "primary", "DATABASE": "d"}),
        ("h/d?ssl=require", {"HOST": "h", "DATABASE": "d", "SSLMODE": "require"}),
        ("h/d?sslmode=disable&ssl=require", {"HOST": "h", "DATABASE": "d", "SSLMODE": "require"}),
        ("h/d?sslmode=verify-full&sslcert=c&sslkey=k&sslrootcert=r&sslcrl=l&options=-cx%3D1"
         "&ssl_min_protocol_version=TLSv1.3&passfile=f&prepared_statement_cache_size=0",
         {"HOST": "h", "DATABASE": "d", "SSLMODE": "verify-full", "SSLCERT": "c", "SSLKEY": "k",
          "SSLROOTCERT": "r", "SSLCRL": "l", "OPTIONS": "-cx=1", "PASSFILE": "f",
          "SSLMINPROTOCOLVERSION": "TLSv1.3"}),
    ],
)  # fmt: skip
def test_pg_dump_gets_the_same_options_by_environment(url: str, expected: dict[str, str]) -> None:
    found = for_programs(sa.make_url(f"postgresql://{url}"), {})
    assert found == {f"PG{name}": value for name, value in expected.items()}


def test_pg_dump_gets_the_environment_that_the_driver_reads() -> None:
    own = {"PATH": "/bin", "PGSSLROOTCERT": "r", "PGPASSWORD": "old", "PGSERVICE": "elsewhere",
           "PGHOSTADDR": "192.0.2.1", "PGOPTIONS": "-cx=1"}  # fmt: skip
    found = for_programs(sa.make_url("postgresql://u:new@h/d"), own)
    assert found == {"PATH": "/bin", "PGSSLROOTCERT": "r", "PGPASSWORD": "new", "PGUSER": "u",
                     "PGHOST": "h", "PGDATABASE": "d"}  # fmt: skip


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("postgresql://u:canary@h/d?sslmode=require", None),
        ("postgresql+asyncpg://h/d?host=a,b&port=1,2", None),
        ("postgresql://h/d?channel_binding=canary", "unknown parameter channel_binding"),
        ("postgresql://h/d?sslmode=a&sslmode=canary", "parameter sslmode is given twice"),
        (
            "postgresql://h/d?sslmode=canary",
            "parameter sslmode must be one of "
            "disable, allow, prefer, require, verify-ca, verify-full",
        ),
        ("postgresql://h/d?ssl=verify_full&ssl_min_protocol_version=TLSv1.2", None),
        (
            "postgresql://h/d?ssl_min_protocol_version=canary",
            "parameter ssl_min_protocol_version must be one of TLSv1, TLSv1.1, TLSv1.2, TLSv1.3",
        ),
        (
            "postgresql://h/d?sslrootcert=/no/canary",
            "parameter sslrootcert names no file that can be read",
        ),
        ("postgresql://h/d?sslrootcert=/dev/null&passfile=/dev/null", None),
        ("postgresql://h:canary/d", "not a SQLAlchemy URL"),
        ("postgresql://h/d?host=a,canary&port=1,2,3", "not a SQLAlchemy URL"),
    ],
)
def test_a_problem_is_reported_without_its_value(url: str, problem: str | None) -> None:
    assert problem_of(url) == problem


async def test_a_missing_root_certificate_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    store = Store("postgresql://u:canary@127.0.0.1:1/d?sslmode=verify-full")
    with pytest.raises(StoreUnavailable, match=r"root certificate file .* does not") as raised:
        await store.open()
    assert "canary" not in str(raised.value)
    await store.close()


@pytest.mark.needs("postgres")
async def test_a_changed_password_file_is_read_with_the_next_connection(
    postgres: Postgres, tmp_path: Path
) -> None:
    """docs/how-to/keys.md promises that no process must be restarted for it."""
    url = sa.make_url(postgres.new_database())
    role, file = f"r{url.database}", tmp_path / "pgpass"

    def set_password(password: str) -> None:
        file.write_text(f"*:*:*:{role}:{password}\n")
        file.chmod(0o600)
        postgres.psql(url, f"ALTER ROLE {role} PASSWORD '{password}'")

    postgres.psql(url, f"CREATE ROLE {role} LOGIN IN ROLE fumarole")
    postgres.ask_for_password(role)
    set_password("old")
    asked = url.set(username=role).update_query_dict({"passfile": str(file)})
    store = Store(asked.render_as_string(hide_password=False))
    try:
        await store.open()
        set_password("new")
        postgres.psql(
            url, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'"
        )
        await eventually(lambda: answers(store), what="it is not connected again")
        file.write_text(f"*:*:*:{role}:old\n")
        wrong = Store(asked.render_as_string(hide_password=False))
        with pytest.raises(StoreUnavailable, match="password authentication failed"):
            await wrong.open()
        await wrong.close()
    finally:
        await store.close()


async def answers(store: Store) -> bool:
    """Return whether the database responds: a pool notices a dead connection when it uses it."""
    try:
        async with store.read() as transaction:
            return bool(await transaction.scalar(sa.text("SELECT 1")))
    except StoreUnavailable:
        return False
