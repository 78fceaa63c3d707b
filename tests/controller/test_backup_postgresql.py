"""Tests backup and restore of a store in a shared, secured PostgreSQL, over its connection."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

from controller.store.database import Store
from controller.store.instance import ensure_position, read_store_metadata
from tests.controller.postgres import Postgres, find_programs, running_postgres
from tests.controller.running import Controller
from tests.controller.test_backup import command
from tests.redis_nodes import free_ports
from tests.redis_tls import Authority

PASSWORD = "p@ss word/%"
# Foreign tables: one with the name of a product table, and one beside them.
FOREIGN = """
ALTER ROLE fumarole PASSWORD 'p@ss word/%';
CREATE SCHEMA shelf;
CREATE TABLE public.jobs (mine text); INSERT INTO public.jobs VALUES ('kept');
CREATE TABLE shelf.notes (mine text); INSERT INTO shelf.notes VALUES ('kept');
"""
# Environment variables that the driver ignores must not redirect the PostgreSQL programs.
ELSEWHERE = {"PGSERVICE": "elsewhere", "PGHOSTADDR": "127.0.0.2", "PGOPTIONS": "-csearch_path=none"}

pytestmark = pytest.mark.needs("postgres")


class Shared:
    """A database with foreign tables, reached over TLS with a password and a certificate."""

    def __init__(self, server: Postgres, authority: Authority) -> None:
        self.local = server.new_database()
        self.server = server
        self.certificate, self.key = authority.make("fumarole")
        self.key.chmod(0o600)
        self.authority = authority
        self.sql(FOREIGN)

    def sql(self, script: str) -> str:
        """Run *script* as the server's administrator."""
        name = self.local.partition("@/")[2].partition("?")[0]
        done = subprocess.run(
            [self.server.programs / "psql", "-h", str(self.server.folder), "-U", "fumarole",
             "-p", str(self.server.port), "-d", name, "-qAt", "-v", "ON_ERROR_STOP=1"],
            input=script, text=True, check=True, timeout=60, capture_output=True,
        )  # fmt: skip
        return done.stdout

    def url(self, **changed: str) -> str:
        """Return the store's URL."""
        name = self.local.partition("@/")[2].partition("?")[0]
        query = {
            "sslmode": "verify-full", "sslrootcert": str(self.authority.file),
            "sslcert": str(self.certificate), "sslkey": str(self.key),
            "options": "-csearch_path=shelf",
        } | changed  # fmt: skip
        where = f"fumarole:{quote(PASSWORD, safe='')}@127.0.0.1:{self.server.port}/{name}"
        return f"postgresql://{where}?{urlencode(query, quote_via=quote)}"


def programs_that_note(folder: Path) -> Path:
    """Return a folder with wrappers of PostgreSQL's programs that first record their arguments."""
    folder.mkdir()
    for name in ("pg_dump", "pg_restore", "psql"):
        real = shutil.which(name, path=str(find_programs()))
        script = folder / name
        script.write_text(
            f'#!/bin/sh\nprintf "%s\\n" "$0" "$@" >> {folder}/noted\nexec {real} "$@"\n'
        )
        script.chmod(0o700)
    return folder


async def test_only_fumaroles_tables_are_backed_up_and_restored_over_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path / "authority")
    (port,) = free_ports(1)
    with running_postgres(port=port, authority=authority) as server:
        shared = Shared(server, authority)
        noting = programs_that_note(tmp_path / "programs")
        monkeypatch.setenv("PATH", f"{noting}:{os.environ['PATH']}")
        settings = Controller(
            tmp_path / "controller", redis_url="redis://127.0.0.1:1",
            FUMAROLE_CONTROLLER_STORE_URL=shared.url(),
        ).settings | ELSEWHERE  # fmt: skip
        file = tmp_path / "backup"
        await keep_identity(shared.url(), "this one")
        done = command(settings, "backup", str(file))
        assert (done.returncode, done.stderr) == (0, "")
        held = subprocess.run(
            [server.programs / "pg_restore", "--list", file], capture_output=True, check=True
        ).stdout.decode()
        assert "TABLE shelf jobs" in held
        assert "shelf notes" not in held
        assert "public" not in held
        shared.sql("UPDATE shelf.position SET identity = 'another'; INSERT INTO shelf.notes "
                   "VALUES ('since')")  # fmt: skip
        # Another user's schema of this database holds no store: everything stays as it was.
        elsewhere = settings | {
            "FUMAROLE_CONTROLLER_STORE_URL": shared.url(options="-csearch_path=public")
        }
        refused = command(elsewhere, "restore", str(file))
        assert refused.returncode == 1
        assert "error: psql:" in refused.stderr
        assert shared.sql("SELECT identity FROM shelf.position") == "another\n"
        done = command(settings, "restore", str(file))
        assert (done.returncode, done.stderr) == (0, "")
        assert await identity_in(shared.url()) == "this one"
        assert shared.sql("TABLE public.jobs; TABLE shelf.notes") == "kept\nkept\nsince\n"
        noted = (noting / "noted").read_text()
        assert {"pg_dump", "pg_restore", "psql"} <= {Path(one).name for one in noted.split()}
        assert PASSWORD not in noted
        assert quote(PASSWORD, safe="") not in noted
        # Each program verifies the server's identity.
        wrong = settings | {
            "FUMAROLE_CONTROLLER_STORE_URL": shared.url(
                sslrootcert=str(Authority(tmp_path / "other").file)
            )
        }
        refused = command(wrong, "backup", str(tmp_path / "none"))
        assert refused.returncode == 1
        assert "certificate verify failed" in refused.stderr
        assert not (tmp_path / "none").exists()


async def keep_identity(url: str, identity: str) -> None:
    store = Store(url)
    await store.open()
    async with store.write() as transaction:
        await ensure_position(transaction, new_identity=identity)
    await store.close()


async def identity_in(url: str) -> str:
    store = Store(url)
    try:
        async with store.read() as transaction:
            return (await read_store_metadata(transaction)).identity
    finally:
        await store.close()
