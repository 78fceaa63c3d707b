"""The gateway itself: a process with a real Redis, real routes, and a grant for every visitor."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import sys
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from jwt.algorithms import OKPAlgorithm
from redis.asyncio import Redis

from benchmarks.peers import Certificate, Ground, Peer, Proxy
from benchmarks.programs import START_SECONDS, Ended, cores, running
from benchmarks.requests import Visitor
from deploy.local.redis import redis_program
from gateway.core.access.grants import Grant, GrantKeys
from gateway.core.access.site import Site
from gateway.core.http.cookies import HTTP_COOKIE_NAME, HTTPS_COOKIE_NAME
from shared.bus import Keys, Publisher, connect
from shared.routes.route import Route, Target

ROOT: Final = Path(__file__).parents[2]
BASE: Final = "localhost:4180"
"""The public URL for browsers; nothing listens there."""
INSTANCE: Final = "bench"
ISSUER: Final = "https://orchestrator.example.com"
BEAT_SECONDS: Final = 2.0
WEB_SESSIONS: Final = 500
DESK_SESSIONS: Final = 8

_encode = msgspec.json.Encoder().encode


def make_site() -> Site:
    """Return the site whose sessions have hosts below :data:`BASE`."""
    host, _, port = BASE.partition(":")
    return Site(scheme="http", base=host, port=int(port))


def new_sid() -> str:
    """Return a session identifier: 128 random bits in lower-case base32."""
    return base64.b32encode(secrets.token_bytes(16)).decode().lower().rstrip("=")


def make_route(sid: str, port: int, *, kind: str = "web") -> Route:
    """Return a ready route to *port* on this machine."""
    web = kind == "web"
    return Route(
        sid=sid,
        rev=1,
        job=f"job-{sid[:6]}",
        rank=0,
        kind="web" if web else "vnc",
        owner="ada",
        hosts=(f"{sid}.{BASE.partition(':')[0]}",),
        target=Target(
            scheme="http" if web else "tcp", host="127.0.0.1", port=port, id=f"pod-{sid}"
        ),
        state="ready",
    )


class Orchestrator:
    """Publishes routes and signs tokens, as controller and orchestrator do in production."""

    def __init__(self, redis: Redis, folder: Path, *, tls: bool = False) -> None:
        self._tls = tls
        self.publisher = Publisher(redis, Keys(INSTANCE), term=1)
        self._key = Ed25519PrivateKey.generate()
        self.routes: dict[str, bytes] = {}
        public = json.loads(OKPAlgorithm.to_jwk(self._key.public_key()))
        keys = {"keys": [public | {"kid": "k1", "alg": "EdDSA", "use": "sig"}]}
        (folder / "jwks.json").write_text(json.dumps(keys))
        grant_key = secrets.token_bytes(32)
        for name, key in (("grant", grant_key), ("link", secrets.token_bytes(32))):
            (folder / f"{name}.key").write_bytes(base64.b64encode(key) + b"\n")
        self._grants = GrantKeys([grant_key])

    async def rebuild(self, routes: Iterable[Route]) -> None:
        """Replace the whole table."""
        self.routes = {route.sid: _encode(route) for route in routes}
        await self.publisher.rebuild(self.routes, {}, epoch=secrets.token_hex(8), now=time.time())

    async def publish(self, route: Route) -> None:
        """Publish one route."""
        await self.publisher.upsert(route.sid, _encode(route), now=time.time())

    def visitor(self, sid: str, sub: str) -> Visitor:
        """Return a browser in which *sub* has opened *sid*."""
        now = time.time()
        grant = Grant(
            sid=sid,
            jti=secrets.token_urlsafe(16),
            kid="k1",
            sub=sub,
            mode="control",
            issued_at=now - 5,
            ends_at=now + 43200,
        )
        cookie = (HTTPS_COOKIE_NAME if self._tls else HTTP_COOKIE_NAME).decode()
        return Visitor(
            f"{sid}.{BASE}",
            f"{cookie}={self._grants.sign(grant)}",
            scheme="https" if self._tls else "http",
        )

    def jti_of(self, visitor: Visitor) -> str:
        """Return the name of *visitor*'s grant."""
        return self._grants.verify(visitor.cookie.partition("=")[2], time.time()).jti

    def token(self, sid: str) -> str:
        """Return a session token, for the clients that use one as a bearer."""
        now = int(time.time())
        claims: dict[str, Any] = {"iss": ISSUER, "aud": "fumarole-gateway", "sub": "ada"}
        claims |= {"iat": now, "exp": now + 60, "jti": secrets.token_urlsafe(16), "sid": sid}
        claims |= {"job": f"job-{sid[:6]}", "rank": 0, "kind": "web"}
        return jwt.encode(claims, self._key, algorithm="EdDSA", headers={"kid": "k1"})

    async def beat_for_good(self) -> None:
        """Publish heartbeats until cancelled."""
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            await self.publisher.beat(now=time.time())


@asynccontextmanager
async def running_redis(folder: Path) -> AsyncIterator[Redis]:
    """Run a separate Redis for this run on a Unix socket, on the load's core."""
    socket = folder / "redis.sock"
    command = [redis_program(), "--port", "0", "--unixsocket", str(socket), "--save", ""]
    command += ["--appendonly", "no", "--maxmemory-policy", "noeviction"]
    async with running(command, core=cores()[1], log=folder / "redis.log"):
        async with asyncio.timeout(START_SECONDS):
            while not await _listens(socket):
                await asyncio.sleep(0.02)
        redis = connect(f"unix://{socket}")
        try:
            yield redis
        finally:
            await redis.aclose()


async def _listens(socket: Path) -> bool:
    """Return whether a program accepts at *socket*; the file exists earlier."""
    try:
        _, writer = await asyncio.open_unix_connection(socket)
    except OSError:
        return False
    writer.close()
    return True


def settings(
    folder: Path,
    *,
    workers: int = 1,
    tree: Path = ROOT,
    certificate: Certificate | None = None,
) -> dict[str, str]:
    """Return the environment of a gateway on this ground, run from the source in *tree*."""
    tls = {}
    if certificate is not None:
        tls["FUMAROLE_GATEWAY_TLS_CERT_FILE"] = str(certificate.chain)
        tls["FUMAROLE_GATEWAY_TLS_KEY_FILE"] = str(certificate.key)
    return tls | {
        "PYTHONPATH": str(tree),
        "FUMAROLE_INSTANCE": INSTANCE,
        "FUMAROLE_REDIS_URL": f"unix://{folder / 'redis.sock'}",
        "FUMAROLE_LINK_KEY_FILE": str(folder / "link.key"),
        "FUMAROLE_GATEWAY_LISTEN": "127.0.0.1:0",
        "FUMAROLE_GATEWAY_OPS_LISTEN": "127.0.0.1:0",
        "FUMAROLE_GATEWAY_PUBLIC_URL": f"http{'s' if tls else ''}://{BASE}",
        "FUMAROLE_GATEWAY_TOKEN_ISSUER": ISSUER,
        "FUMAROLE_GATEWAY_TOKEN_JWKS": str(folder / "jwks.json"),
        "FUMAROLE_GATEWAY_GRANT_KEY_FILE": str(folder / "grant.key"),
        "FUMAROLE_GATEWAY_UPSTREAM_NETWORKS": "127.0.0.0/8",
        "FUMAROLE_GATEWAY_WORKERS": str(workers),
        "FUMAROLE_GATEWAY_DRAIN_SECONDS": "1",
        "FUMAROLE_GATEWAY_ADDRESS_FILE": str(folder / "addresses.json"),
    }


@asynccontextmanager
async def running_gateway(
    folder: Path,
    routes: Iterable[Route],
    *,
    workers: int = 1,
    tree: Path = ROOT,
    certificate: Certificate | None = None,
) -> AsyncIterator[tuple[Proxy, Orchestrator]]:
    """Run a gateway of *workers* that serves *routes*, with its Redis and keys."""
    log = folder / "log"
    async with running_redis(folder) as redis:
        orchestrator = Orchestrator(redis, folder, tls=certificate is not None)
        await orchestrator.rebuild(routes)
        command = [sys.executable, "-m", "gateway"]
        env = settings(folder, workers=workers, tree=tree, certificate=certificate)
        async with running(command, core=cores()[0], log=log, env=env, cwd=folder) as process:
            beats = asyncio.create_task(orchestrator.beat_for_good())
            try:
                port = await _until_ready(folder, log)
                yield Proxy(name="fumarole", port=port, group=process.pid), orchestrator
            finally:
                beats.cancel()
                with suppress(asyncio.CancelledError):
                    await beats


async def _until_ready(folder: Path, log: Path) -> int:
    """Return the public port once ``/readyz`` says yes."""
    try:
        async with asyncio.timeout(START_SECONDS):
            while not (folder / "addresses.json").exists():
                await asyncio.sleep(0.05)
            addresses = json.loads((folder / "addresses.json").read_text())
            ops = int(addresses["ops"].rpartition(":")[2])
            while not await answers(ops):
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise Ended(log.read_text(errors="replace")[-1000:]) from None
    return int(addresses["public"].rpartition(":")[2])


async def answers(port: int) -> bool:
    """Return whether the gateway with the ops listener at *port* is ready."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /readyz HTTP/1.1\r\nHost: ops\r\nConnection: close\r\n\r\n")
    line = await reader.readline()
    writer.close()
    return line.split()[1] == b"200"


@asynccontextmanager
async def _start(
    ground: Ground, tree: Path = ROOT, certificate: Certificate | None = None
) -> AsyncIterator[Proxy]:
    web = [make_route(new_sid(), ground.backend.port) for _ in range(WEB_SESSIONS)]
    desks = [
        make_route(new_sid(), ground.backend.rfb_port, kind="vnc") for _ in range(DESK_SESSIONS)
    ]
    async with running_gateway(
        ground.folder, (*web, *desks), tree=tree, certificate=certificate
    ) as (proxy, orchestrator):
        yield Proxy(
            name=proxy.name,
            port=proxy.port,
            group=proxy.group,
            visitors=tuple(orchestrator.visitor(r.sid, f"ada-{n}") for n, r in enumerate(web)),
            desks=tuple(orchestrator.visitor(r.sid, f"ada-{n}") for n, r in enumerate(desks)),
            desk_path="/.fumarole/connect",
        )


GATEWAY = Peer(
    name="fumarole",
    label="**Fumarole**",
    program="python",
    start=_start,
    authorises=True,
    grows=True,
    notes="every request with a grant from a cookie, 500 users with a session each",
)


def start_tls(ground: Ground, certificate: Certificate) -> AbstractAsyncContextManager[Proxy]:
    """Start a gateway that ends TLS."""
    return _start(ground, certificate=certificate)


def peer_of(tree: Path) -> Peer:
    """Return the gateway of the source in *tree* as a peer."""
    return replace(GATEWAY, start=partial(_start, tree=tree))
