"""Provides a real PostgreSQL, on a Unix socket in a private folder, removed after the tests."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import quote, urlsplit
from uuid import uuid4

import sqlalchemy as sa

from controller.store.database import Store
from tests.redis_tls import Authority

START_SECONDS = 60
PORT = 5432
_USER = "fumarole"


@dataclass(frozen=True)
class Postgres:
    """A running server."""

    folder: Path
    programs: Path
    port: int = PORT

    def new_database(self) -> str:
        """Return the URL of a new, empty database."""
        return self._url(self._create())

    def new_store(self) -> str:
        """Return the URL of a new database with a store's tables, for fixtures that do not await.

        Migrations take time, so they make one database, and the others are copies of it.
        """
        return self._url(self._create("-T", self._migrated, "-S", "file_copy"))

    @cached_property
    def _migrated(self) -> str:
        name = self._create()

        async def migrate() -> None:
            store = Store(self._url(name))
            await store.open()
            await store.close()

        asyncio.run(migrate())
        return name

    def drop(self, url: str) -> None:
        """Drop the database of *url*, despite open connections."""
        self._call("dropdb", "--force", urlsplit(url).path.removeprefix("/"))

    def _create(self, *options: str) -> str:
        name = f"t{uuid4().hex}"
        self._call("createdb", *options, name)
        return name

    def _call(self, program: str, *arguments: str) -> None:
        where = ["-h", str(self.folder), "-p", str(self.port), "-U", _USER]
        subprocess.run(
            [self.programs / program, *where, *arguments], check=True, timeout=START_SECONDS
        )

    def _url(self, name: str) -> str:
        port = "" if self.port == PORT else f"&port={self.port}"
        return f"postgresql://{_USER}@/{name}?host={quote(str(self.folder), safe='')}{port}"

    def psql(self, url: sa.URL, statement: str) -> None:
        """Execute *statement* in the database of *url*, as the owner."""
        self._call("psql", "-q", "-v", "ON_ERROR_STOP=1", "-c", statement, str(url.database))

    def ask_for_password(self, role: str) -> None:
        """Require a password of *role* for each new connection."""
        rules = self.folder / "data/pg_hba.conf"
        rules.write_text(f"local all {role} scram-sha-256\n{rules.read_text()}")
        _control(self.programs, self.folder, "reload")

    def restart(self) -> None:
        """End all connections at once and restart."""
        _control(self.programs, self.folder, "restart", "-m", "immediate", "-w")


@contextmanager
def running_postgres(*, port: int = PORT, authority: Authority | None = None) -> Iterator[Postgres]:
    """Run a server without waiting for the disk: none of its data is kept.

    With an *authority*, the server also listens at 127.0.0.1, with TLS, password and certificate.
    """
    programs = find_programs()
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    try:
        if os.geteuid() == 0:
            account = pwd.getpwnam(_account() or "nobody")
            os.chown(folder, account.pw_uid, account.pw_gid)
        _run(programs / "initdb", "-D", str(folder / "data"), "-U", _USER, "-A", "trust",
             "--no-sync", "-E", "UTF8", "--locale=C")  # fmt: skip
        options = (
            f"-c unix_socket_directories={folder} -c port={port} -c fsync=off "
            f"{_secured(folder, authority) if authority else '-c listen_addresses='} "
            # Autovacuum takes turns through all databases: a hundred are a hundred runs a minute.
            "-c full_page_writes=off -c autovacuum=off "
            "-c shared_buffers=16MB -c max_connections=100"
        )
        _control(programs, folder, "start", "-w", "-o", options, "-l", str(folder / "log"))
        try:
            yield Postgres(folder, programs, port)
        finally:
            _control(programs, folder, "stop", "-m", "immediate", "-w")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _secured(folder: Path, authority: Authority) -> str:
    """Make the server require certificates of *authority*; return its options."""
    certificate, key = authority.make("127.0.0.1")
    for file in (certificate, key, authority.file):
        shutil.copy(file, folder)
        (folder / file.name).chmod(0o600)
        if account := _account():
            shutil.chown(folder / file.name, account)
    (folder / "data/pg_hba.conf").write_text(
        "local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256 clientcert=verify-full\n"
    )
    return (
        f"-c listen_addresses=127.0.0.1 -c ssl=on -c ssl_cert_file={folder / certificate.name} "
        f"-c ssl_key_file={folder / key.name} -c ssl_ca_file={folder / authority.file.name}"
    )


def find_programs() -> Path:
    """Return the folder of initdb and pg_ctl: from the PATH, or a distribution's hidden folder."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    versions = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    return max(versions, key=lambda path: int(path.parts[-3])).parent


def _control(programs: Path, folder: Path, *arguments: str) -> None:
    _run(programs / "pg_ctl", "-D", str(folder / "data"), "-t", str(START_SECONDS), *arguments)


def _run(program: Path, *arguments: str) -> None:
    # The server refuses to run as root.
    subprocess.run(
        [program, *arguments], check=True, timeout=2 * START_SECONDS, user=_account(),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
    )  # fmt: skip


def _account() -> str | None:
    if os.geteuid() != 0:
        return None
    names = {one.pw_name for one in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"
