"""A data path on loopback with a real route table, raw apps and raw browsers."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from ipaddress import ip_network
from typing import Any, cast

import msgspec

from gateway.bus.holder import RouteTableHolder
from gateway.core.access.assertions import Assertions
from gateway.core.access.grants import Grant, GrantKeys
from gateway.core.access.opening import OpeningRefused
from gateway.core.access.site import Site
from gateway.core.limits.rates import RefusalRate
from gateway.core.limits.values import Limits
from gateway.credentials.session_tokens import BearerTokens
from gateway.live import ConnectionRegistry
from gateway.observers.audit_log import AuditLog
from gateway.observers.reporter import RecentFailures
from gateway.relay.background_tasks import BackgroundTasks
from gateway.relay.context import BridgeFactory
from gateway.relay.dial import Dialler, make_upstream_tls
from gateway.relay.gateway import DataPath
from gateway.relay.http.downstream import DownstreamConnection
from gateway.relay.listening import Listener
from gateway.relay.transports import reset
from shared.events import GrantRevoked, Head, RouteRemoved, RouteUpserted
from shared.routes.route import Kind, RouteReader
from shared.routes.table import RouteTable
from shared.runtime.listeners import listen
from shared.tokens import SessionClaims

SID = "a" * 26
OTHER_SID = "b" * 26
BASE = "apps.localhost"
PORT = 8443
HOST = f"{SID}.{BASE}:{PORT}"
ORIGIN = f"http://{HOST}"
FROM_HERE = f"Origin: {ORIGIN}"
KEYS = GrantKeys([bytes(range(32))])
GRANT = Grant(SID, "t1", "k1", "ada", "control", time.time() - 5, time.time() + 3600)
COOKIE = f"fumarole={KEYS.sign(GRANT)}"
UPGRADE = (
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
ACCEPT = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
SWITCH = (
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    f"Sec-WebSocket-Accept: {ACCEPT}\r\n\r\n"
).encode()
READ_SECONDS = 30.0
"""For what comes at once, on a machine that may be busy."""
NETWORKS = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
TRUST = make_upstream_tls(None)


def cookie(**changes: Any) -> str:
    """Return a cookie whose grant differs from the usual one."""
    return f"fumarole={KEYS.sign(msgspec.structs.replace(GRANT, **changes))}"


def request(
    target: str = "/",
    *fields: str,
    method: str = "GET",
    host: str = HOST,
    body: bytes = b"",
    credential: str | None = f"Cookie: {COOKIE}",
) -> bytes:
    """Return a request's bytes; with *body* also its length."""
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}"]
    lines += [credential] if credential else []
    lines += [f"Content-Length: {len(body)}"] if body else []
    return "\r\n".join((*lines, *fields, "", "")).encode("latin-1") + body


def upgrade(target: str = "/ws", *fields: str, origin: str | None = ORIGIN, **named: Any) -> bytes:
    """Return a valid upgrade."""
    said = (f"Origin: {origin}",) if origin else ()
    return request(target, *UPGRADE.strip().split("\r\n"), *said, *fields, **named)


def answer(body: bytes = b"ok", *fields: str, status: str = "200 OK") -> bytes:
    """Return a response with a length."""
    lines = (f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *fields, "", "")
    return "\r\n".join(lines).encode() + body


@dataclass
class Peer:
    """One end of a connection, at the level of bytes."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def stall(self) -> None:
        """Stop reading until :meth:`go_on`."""
        self.writer.transport.pause_reading()  # type: ignore[attr-defined]  # it is a transport

    def go_on(self) -> None:
        """Read again."""
        self.writer.transport.resume_reading()  # type: ignore[attr-defined]  # it is a transport

    async def head(self) -> bytes:
        """Return the bytes up to an empty line."""
        return await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), READ_SECONDS)

    async def exactly(self, size: int) -> bytes:
        return await asyncio.wait_for(self.reader.readexactly(size), READ_SECONDS)

    async def until(self, end: bytes) -> bytes:
        return await asyncio.wait_for(self.reader.readuntil(end), READ_SECONDS)

    async def rest(self, seconds: float = READ_SECONDS) -> bytes:
        """Return all until the other end closes."""
        return await asyncio.wait_for(self.reader.read(), seconds)

    async def gone(self) -> bytes:
        """Return the bytes before the other end closed, in whatever way."""
        data = b""
        try:
            while piece := await asyncio.wait_for(self.reader.read(65536), READ_SECONDS):
                data += piece
        except ConnectionResetError:
            pass
        return data

    def unread(self) -> bytes:
        """Return the received bytes that a StreamReader no longer returns after a reset."""
        return bytes(self.reader._buffer)  # type: ignore[attr-defined]  # it has no other way

    async def answer(self) -> tuple[bytes, bytes]:
        """Return the head of a response and its body, by its length."""
        head = await self.head()
        return head, await self.exactly(length_of(head))

    async def silent(self, seconds: float = 0.05) -> bool:
        """Return whether no bytes arrive for a while."""
        try:
            data = await asyncio.wait_for(self.reader.read(1), seconds)
        except TimeoutError:
            return True
        return not data

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        """Close with a real reset."""
        reset(cast(asyncio.Transport, self.writer.transport))


def length_of(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


def status_of(head: bytes) -> int:
    return int(head.split(b" ", 2)[1])


def code_of(body: bytes) -> str:
    return str(json.loads(body)["code"])


def reason_of(body: bytes) -> str:
    """Return what the gateway says of an app's response; empty if it says nothing."""
    return str(json.loads(body).get("reason", ""))


class App:
    """A server of raw bytes: the test gets each connection."""

    def __init__(self) -> None:
        self.connections: asyncio.Queue[Peer] = asyncio.Queue()
        self.count = 0
        self.port = 0
        self._peers: list[Peer] = []

    @asynccontextmanager
    async def running(self, host: str = "127.0.0.1") -> AsyncIterator[App]:
        server = await asyncio.start_server(self._accept, host, 0, limit=1 << 22)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            await asyncio.sleep(0.01)  # for those that are being accepted
            for peer in self._peers:
                peer.reset()
            await asyncio.sleep(0.01)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.count += 1
        peer = Peer(reader, writer)
        self._peers.append(peer)
        self.connections.put_nowait(peer)

    async def connection(self) -> Peer:
        """Return the next connection that the gateway makes."""
        return await asyncio.wait_for(self.connections.get(), READ_SECONDS)


@dataclass
class FakeWorld:
    """Stands for the follower: a real table, changed by real events."""

    table: RouteTable | None = None
    serving: bool = True
    dialling: bool = True
    stale: bool = False
    repairs: int = 0
    repaired: Callable[[], None] = lambda: None
    live: ConnectionRegistry | None = None

    @property
    def usable_table(self) -> RouteTable | None:
        return self.table if self.serving and not self.stale else None

    async def repair(self) -> None:
        self.repairs += 1
        await asyncio.sleep(0)
        self.repaired()

    def _applied(self, event: Any) -> None:
        assert self.table is not None
        self.table.apply(event)
        if self.live is not None:
            self.live.review((event.sid,) if event.sid else None)

    def _position(self) -> dict[str, Any]:
        assert self.table is not None
        return {"epoch": "e", "seq": self.table.seq + 1, "at": datetime.now(UTC)}

    def upsert(self, route: Mapping[str, Any]) -> None:
        raw = msgspec.Raw(json.dumps(route).encode())
        self._applied(RouteUpserted(sid=route["sid"], route=raw, **self._position()))

    def remove(self, sid: str = SID) -> None:
        self._applied(RouteRemoved(sid=sid, **self._position()))

    def revoke(self, **what: Any) -> None:
        self._applied(GrantRevoked(**what, **self._position()))


def route(port: int, **changes: Any) -> dict[str, Any]:
    """Return a route as it is published."""
    sid = changes.get("sid", SID)
    target = {"scheme": "http", "host": "127.0.0.1", "port": port, "base_path": "/", "id": "pod1"}
    target |= changes.pop("target", {})
    return {
        "sid": sid,
        "rev": 1,
        "job": "j1",
        "rank": 0,
        "kind": "web",
        "owner": "ada",
        "hosts": [f"{sid}.{BASE}"],
        "target": target,
        "state": "ready",
    } | changes


def table_of(*routes: Mapping[str, Any]) -> RouteTable:
    """Return a table with *routes*."""
    head = Head(epoch="e", seq=1, term=1, routes=len(routes), revoked=0)
    table = RouteTable(head, RouteReader())
    for one in routes:
        table.load_route(one["sid"], json.dumps(one).encode())
    table.complete()
    return table


@dataclass
class FakeGate:
    """Knows tokens by name; `test_bearer` covers their signatures."""

    tokens: dict[str, SessionClaims] = field(default_factory=dict)
    marks: list[str] = field(default_factory=list)
    refuse_mark: str | None = None

    def remembered(self, token: str) -> SessionClaims | None:
        return None

    async def verify(self, token: str, *, address: str) -> SessionClaims:
        await asyncio.sleep(0)
        if token not in self.tokens:
            raise OpeningRefused("bad_credential")
        return self.tokens[token]

    async def mark(self, claims: SessionClaims) -> None:
        await asyncio.sleep(0)
        if self.refuse_mark:
            raise OpeningRefused(self.refuse_mark)
        self.marks.append(claims.jti)


def _no_pages() -> asyncio.Protocol:
    raise AssertionError("no page was to be asked")


@dataclass
class Rig:
    """The listening data path under test, and its app."""

    path: DataPath
    world: FakeWorld
    gate: FakeGate
    app: App
    listener: Listener
    live: ConnectionRegistry
    peers: list[Peer]

    @property
    def connections(self) -> list[DownstreamConnection]:
        """Downstream connections that carry HTTP."""
        return [one for one in self.path.connections if isinstance(one, DownstreamConnection)]

    @property
    def address(self) -> tuple[str, int]:
        return self.listener.address

    async def browser(self, source: str | None = None) -> Peer:
        """Return a new connection to the gateway, from the address *source*."""
        local = (source, 0) if source else None
        reader, writer = await asyncio.open_connection(
            *self.address, limit=1 << 22, local_addr=local
        )
        peer = Peer(reader, writer)
        self.peers.append(peer)
        return peer

    async def ask(self, raw: bytes) -> tuple[int, bytes]:
        """Send *raw* on a new connection; return the status and all bytes received."""
        browser = await self.browser()
        browser.send(raw)
        if raw.startswith(b"HEAD "):
            head, body = await browser.head(), b""
        else:
            head, body = await browser.answer()
        browser.close()
        return status_of(head), head + body

    async def joined(self, raw: bytes) -> tuple[Peer, Peer, bytes]:
        """Send *raw*; return browser, app and the head that the app got."""
        browser = await self.browser()
        browser.send(raw)
        app = await self.app.connection()
        return browser, app, await app.head()

    async def tunnel(self, raw: bytes | None = None) -> tuple[Peer, Peer]:
        """Return the two ends of an open tunnel."""
        browser, app, _ = await self.joined(raw or upgrade())
        app.send(SWITCH)
        assert status_of(await browser.head()) == 101
        return browser, app


@asynccontextmanager
async def rig(
    *,
    limits: Limits | None = None,
    pages: Callable[[], asyncio.Protocol] = _no_pages,
    bridges: Mapping[Kind, BridgeFactory] | None = None,
    site: Site | None = None,
    networks: Any = NETWORKS,
    wall: Callable[[], float] = time.time,
    route_changes: Mapping[str, Any] | None = None,
    descriptors: int | None = None,
    assertions: Assertions | None = None,
    audit: AuditLog | None = None,
    end_notice_seconds: float = 0.0,
    trust: ssl.SSLContext | None = None,
) -> AsyncIterator[Rig]:
    """Run a data path in front of one app, with one route to it."""
    loop = asyncio.get_running_loop()
    app, world, fake_gate = App(), FakeWorld(), FakeGate()
    most = limits or Limits()
    live = ConnectionRegistry(
        table=lambda: world.table,
        wall=wall,
        loop=loop,
        max_per_session=most.session_connections,
        max_per_user=most.user_connections,
        max_per_address=most.address_connections,
    )
    world.live = live
    async with app.running():
        world.table = table_of(route(app.port, **(route_changes or {})))
        path = DataPath(
            loop=loop,
            site=site or Site(scheme="http", base=BASE, port=PORT),
            holder=cast(RouteTableHolder, world),
            grants=KEYS,
            bearer=cast(BearerTokens, fake_gate),
            live=live,
            background_tasks=BackgroundTasks(),
            dialler=Dialler(networks=networks, loop=loop, dial_seconds=5.0, trust=trust or TRUST),
            make_page=pages,
            bridges=bridges or {},
            assertions=assertions,
            audit=audit or AuditLog(issuer="", process="", wall=wall, write=lambda _record: None),
            failures=RecentFailures(wall=wall),
            limits=most,
            refusals=RefusalRate(most.address_refusals_per_second, clock=time.monotonic),
            wall=wall,
            end_notice_seconds=end_notice_seconds,
        )
        listener = Listener(path, listen("127.0.0.1", 0), descriptors=descriptors)
        peers: list[Peer] = []
        try:
            yield Rig(path, world, fake_gate, app, listener, live, peers)
        finally:
            listener.close()
            for peer in peers:
                peer.reset()
            await path.close()
            await asyncio.sleep(0.01)
