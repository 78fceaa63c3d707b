"""Starts Sentinels and a Redis Cluster as in production: TLS only, a private CA, ACL users.

Controller and gateways use the users of ``deploy/redis/users.acl``. Servers and Sentinels reach
each
other as users with the rights that Redis' documentation asks for ("ACL rules for Sentinel and
Replicas"). The Sentinels grant Fumarole the rights that docs/proxy-events.md lists.
"""

from __future__ import annotations

import hashlib
import secrets
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from redis.crc import key_slot

from deploy.local.redis import ACL
from shared.bus import Keys
from tests.redis_nodes import Guard, Site, cluster_site, sentinel_site
from tests.redis_tls import Authority, tls_redis_program

_OF_SERVERS = {
    "replica": "+psync +replconf +ping",
    "sentinel": (
        "allchannels +multi +slaveof +ping +exec +subscribe +config|rewrite +role +publish +info "
        "+client|setname +client|kill +script|kill"
    ),
    "test": "~* &* +@all",
}
_OF_SENTINELS = {"fumarole": "+sentinel|masters", "test": "+@all"}


@dataclass(frozen=True)
class Secured:
    """Servers that belong together, their certificate authority, and their users' passwords."""

    site: Site
    authority: Authority
    passwords: dict[str, str]

    def url(
        self,
        user: str,
        *,
        authority: Authority | None = None,
        password: str = "",
        sentinel_password: str = "",
        tls: bool = True,
    ) -> str:
        """Return the URL of *user*, which trusts *authority*."""
        scheme, _, place = self.site.url.partition("://")
        query = []
        if "sentinel" in scheme:
            asked = sentinel_password or self.passwords["fumarole"]
            query += ["sentinel_username=fumarole", f"sentinel_password={asked}"]
        if tls:
            scheme = scheme.replace("redis", "rediss", 1)
            query.append(f"ssl_ca_certs={(authority or self.authority).file}")
        password = password or self.passwords[user]
        return f"{scheme}://{user}:{password}@{place}?{'&'.join(query)}"

    async def set_password(self, user: str, password: str) -> None:
        """Set the only password of *user*, on the servers that hold the table."""
        for node in (self.site.master, self.site.replica):
            await node.ask("ACL", "SETUSER", user, "resetpass", f">{password}")


@asynccontextmanager
async def secured_sentinels(folder: Path, keys: Keys) -> AsyncIterator[Secured]:
    """Run a master, its replica and a Sentinel."""
    authority, passwords = Authority(folder / "good"), _passwords()
    async with sentinel_site(folder, guard=_guard(folder, keys, authority, passwords)) as site:
        yield Secured(site, authority, passwords)


@asynccontextmanager
async def secured_cluster(folder: Path, keys: Keys) -> AsyncIterator[Secured]:
    """Run a master with the slot of *keys*, its replica, and a master with the other slots."""
    authority, passwords = Authority(folder / "good"), _passwords()
    guard = _guard(folder, keys, authority, passwords)
    async with cluster_site(folder, key_slot(keys.head.encode()), guard=guard) as site:
        # The URL also names a node that a gateway can ask after the master's death.
        site.url = f"redis+cluster://127.0.0.1:{site.other.port},127.0.0.1:{site.replica.port}"
        yield Secured(site, authority, passwords)


def _passwords() -> dict[str, str]:
    names = ("controller", "gateway", *_OF_SERVERS, *_OF_SENTINELS)
    return {name: secrets.token_urlsafe(24) for name in names}


def _guard(folder: Path, keys: Keys, authority: Authority, passwords: dict[str, str]) -> Guard:
    program = tls_redis_program()
    assert program is not None
    certificate, key = authority.make("127.0.0.1")
    hashed = {user: hashlib.sha256(one.encode()).hexdigest() for user, one in passwords.items()}
    users = folder / "users.acl"
    ours = ACL.read_text().format(instance=keys.instance, **hashed)
    users.write_text(ours + _lines(_OF_SERVERS, hashed))
    tls = (
        f"tls-cert-file {certificate}\n"
        f"tls-key-file {key}\n"
        f"tls-ca-cert-file {authority.file}\n"
        "tls-auth-clients no\n"
        "tls-replication yes\n"
    )
    return Guard(
        program=program,
        lines=(
            f"{tls}tls-cluster yes\naclfile {users}\n"
            f"masteruser replica\nmasterauth {passwords['replica']}\n"
        ),
        sentinel_lines=(
            f"{tls}sentinel auth-user main sentinel\n"
            f"sentinel auth-pass main {passwords['sentinel']}\n"
            f"user default off\n{_lines(_OF_SENTINELS, hashed)}"
        ),
        client={
            "ssl": True,
            "ssl_ca_certs": str(authority.file),
            "ssl_exclude_verify_flags": [ssl.VERIFY_X509_STRICT],
            "username": "test",
            "password": passwords["test"],
        },
    )


def _lines(users: dict[str, str], hashed: dict[str, str]) -> str:
    return "".join(f"user {name} on #{hashed[name]} {may}\n" for name, may in users.items())
