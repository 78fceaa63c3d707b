"""Starts a gateway process with a Redis of its own, and offers operations on both to tests."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from redis.asyncio import Redis
from redis.exceptions import RedisError

from tests.contract import frames
from tests.contract.bus import Bus, Raw
from tests.contract.messages import Response, read_response, request
from tests.contract.process import Process
from tests.contract.streams import Stream
from tests.contract.tokens import ISSUER, Key, Orchestrator
from tests.contract.upstream import App
from tests.programs import RedisServer, redis_program

BEAT_SECONDS = 2.0
SETTLE_SECONDS = 5.0
# A gateway polls the head every 2 s, and repairs its table then.
REPAIR_SECONDS = 4.0
# Nothing listens on this port: the public URL is the one that browsers see.
LOCAL_URL = "http://localhost:4180"
Pairs = Iterable[tuple[str, str]]


def new_sid() -> str:
    """Return a session identifier: 128 random bits in lower-case base32."""
    return base64.b32encode(secrets.token_bytes(16)).decode().lower().rstrip("=")


def new_source() -> str:
    """Return a loopback address that no other client uses, because limits count per address."""
    return f"127.{random.randrange(16, 255)}.{random.randrange(256)}.{random.randrange(1, 255)}"


@dataclass
class Session:
    """One session: its route as last published, and its address for browsers."""

    route: dict[str, Any]
    host: str
    origin: str

    @property
    def sid(self) -> str:
        """The session identifier."""
        return str(self.route["sid"])

    @property
    def sub(self) -> str:
        """The user who opens the session, unless a test names another one."""
        return f"ada-{self.sid[:8]}"


class Rig:
    """Redis, bus, orchestrator and gateway together."""

    def __init__(self, process: Process, server: RedisServer, bus: Bus, keys: Orchestrator) -> None:
        self.process = process
        self.server = server
        self.bus = bus
        self.keys = keys
        self.beating = True
        self.streams: list[Stream] = []
        self.url = urlsplit(process.settings["FUMAROLE_GATEWAY_PUBLIC_URL"])
        self.workers = int(process.settings.get("FUMAROLE_GATEWAY_WORKERS", "1"))
        self.cookie_name = "fumarole" if self.url.scheme == "http" else "__Host-fumarole"

    # Sessions

    def host_of(self, name: str) -> str:
        """Return the Host that browsers send for *name*."""
        return name if self.url.port is None else f"{name}:{self.url.port}"

    def make_session(self, app: App | None = None, **fields: Any) -> Session:
        """Return a session that was not published; ``target`` is merged, ``links`` are hosts."""
        sid = fields.pop("sid", None) or new_sid()
        name = f"{sid}.{self.url.hostname}"
        target: dict[str, Any] = {"scheme": "http", "host": app.host if app else "127.0.0.1"}
        target |= {"port": app.port if app else 1, "base_path": "/", "id": f"pod-{sid[:8]}"}
        hosts = [name, *fields.pop("links", ())]
        route: dict[str, Any] = {
            "sid": sid,
            "rev": 1,
            "job": f"job-{sid[:6]}",
            "rank": 0,
            "kind": "web",
        }
        route |= {"owner": "ada", "hosts": hosts, "target": target | fields.pop("target", {})}
        route |= {"state": "ready", "message": None, "expires_at": None, "public": False}
        route |= {"sealed": None} | fields
        host = self.host_of(name)
        return Session(route=route, host=host, origin=f"{self.url.scheme}://{host}")

    async def session(self, app: App | None = None, **fields: Any) -> Session:
        """Return a session that the gateway serves."""
        session = self.make_session(app, **fields)
        await self.bus.upsert(session.sid, session.route)
        await self.settled()
        return session

    async def change(self, session: Session, **fields: Any) -> None:
        """Publish *session* again with other *fields*; wait until the gateway has applied it."""
        await self.announce_change(session, **fields)
        await self.settled()

    async def announce_change(self, session: Session, **fields: Any) -> None:
        """Publish *session* again with other *fields*."""
        target = session.route["target"] | fields.pop("target", {})
        session.route |= {"rev": session.route["rev"] + 1, "target": target} | fields
        await self.bus.upsert(session.sid, session.route)

    async def end(self, session: Session, change: str) -> None:
        """Publish the *change* that ends the connections of *session*, by its name."""
        match change:
            case "revoke":
                await self.bus.revoke(sid=session.sid, sub=session.sub)
            case "remove":
                await self.bus.remove(session.sid)
            case "starting":
                await self.announce_change(session, state="starting")
            case "target":
                await self.announce_change(session, target={"id": "another target"})
            case "expired":
                await self.announce_change(session, expires_at=1)
            case _:
                raise ValueError(change)

    async def publish_text(self, session: Session, text: str) -> None:
        """Publish *text* in place of the route, and wait until the gateway has applied it."""
        await self.bus.upsert(session.sid, Raw(text))
        await self.settled()

    async def settled(self) -> None:
        """Wait until the gateway has applied everything that was published.

        Events apply in order, so the effect of one more event is enough: the response for a host
        that
        was unknown changes from 404 to 401 (a credential is needed). Each worker reports its
        position.
        """
        if self.workers > 1:
            await self.applied()
            return
        marker = self.make_session()
        await self.bus.upsert(marker.sid, marker.route)
        deadline = time.monotonic() + SETTLE_SECONDS
        while (await self.get(marker)).status == 404:
            assert time.monotonic() < deadline, f"not applied\n{self.process.tail()}"
            await asyncio.sleep(0.01)

    async def applied(self) -> None:
        """Wait likewise, by the ops listener: for several workers, and for TLS."""
        wanted = (self.bus.epoch, self.bus.seq)
        deadline = time.monotonic() + SETTLE_SECONDS
        while True:
            state = await self.debug()
            found = [(one.get("epoch"), one.get("seq")) for one in state.get("workers", [state])]
            if found == [wanted] * self.workers:
                return
            assert time.monotonic() < deadline, f"not applied: {state}\n{self.process.tail()}"
            await asyncio.sleep(0.01)

    async def debug(self, query: str = "") -> Any:
        """Return the content of ``/debug/routes``."""
        return json.loads((await self.process.ops_response(f"/debug/routes{query}")).body)

    # Clients

    async def connect(self, source: str | None = None) -> Stream:
        """Return a connection to the gateway from a source address of its own."""
        stream = await self.process.connect_public(source or new_source())
        self.streams.append(stream)
        return stream

    async def ask(
        self, data: bytes, *, method: str = "GET", source: str | None = None, seconds: float = 5.0
    ) -> Response:
        """Send exactly *data* on a new connection, and return the response."""
        stream = await self.connect(source)
        stream.send(data)
        try:
            return await read_response(stream, method, seconds)
        finally:
            stream.close()

    async def get(
        self,
        session: Session,
        target: str = "/",
        fields: Pairs = (),
        *,
        method: str = "GET",
        body: bytes | None = None,
        host: str | None = None,
        source: str | None = None,
    ) -> Response:
        """Send one request to *session*, and return the response."""
        data = request(method, target, host=host or session.host, fields=fields, body=body)
        return await self.ask(data, method=method, source=source)

    async def upgrade(
        self, session: Session, target: str = "/", fields: Pairs = (), *, host: str | None = None
    ) -> tuple[Stream, Response]:
        """Ask *session* for a WebSocket; return the connection and the response."""
        stream = await self.connect()
        everything = [*frames.HANDSHAKE, *fields]
        stream.send(request("GET", target, host=host or session.host, fields=everything))
        return stream, await read_response(stream)

    async def tunnel(self, session: Session, cookie: str) -> Stream:
        """Return a WebSocket that *cookie* opened from the session's own page."""
        own = [("Origin", session.origin), ("Cookie", cookie)]
        stream, response = await self.upgrade(session, "/", own)
        assert response.status == 101, response
        return stream

    # Opening

    def token(self, session: Session, key: Key | None = None, **claims: Any) -> str:
        """Return a token that opens *session*, unless *claims* make it invalid."""
        route = session.route
        good = {name: route[name] for name in ("sid", "job", "rank", "kind")}
        return self.keys.token(key, **({"sub": session.sub} | good | claims))

    async def post_open(
        self,
        session: Session,
        token: str | None,
        fields: Pairs = (),
        *,
        source: str | None = None,
        **form: str,
    ) -> Response:
        """Post the form of the open page, and return the response."""
        values = ({} if token is None else {"token": token}) | form
        kind = ("Content-Type", "application/x-www-form-urlencoded")
        body = urlencode(values).encode()
        return await self.get(
            session, "/.fumarole/open", [kind, *fields], method="POST", body=body, source=source
        )

    async def opened(self, session: Session, key: Key | None = None, **claims: Any) -> str:
        """Return the cookie (name=value) for a token with *claims*."""
        response = await self.post_open(session, self.token(session, key, **claims))
        assert response.status == 303, (response.status, response.body)
        return self.cookie_of(response)

    def cookie_of(self, response: Response) -> str:
        """Return the gateway's cookie in *response*, as a browser sends it back."""
        begin = f"{self.cookie_name}="
        # One that is removed has no value.
        own = [
            v for v in response.all("Set-Cookie") if v.startswith(begin) and v[len(begin)] != ";"
        ]
        assert len(own) == 1, response.all("Set-Cookie")
        return own[0].partition(";")[0]

    def own(self, session: Session, cookie: str) -> list[tuple[str, str]]:
        """Return the request fields of a script on the session's own page."""
        return [("Origin", session.origin), ("Cookie", cookie)]

    async def entered(self, app: App, **fields: Any) -> tuple[Session, list[tuple[str, str]]]:
        """Return a session of *app*, and the request fields of a script on its own page."""
        session = await self.session(app, **fields)
        return session, self.own(session, await self.opened(session))

    async def opened_with_tunnel(self, app: App) -> tuple[Session, str, Stream]:
        """Return a session of *app*, its cookie, and a tunnel that the cookie opened."""
        session = await self.session(app)
        cookie = await self.opened(session, iat=int(time.time()) - 2)
        return session, cookie, await self.tunnel(session, cookie)

    # Requests with a cookie

    async def status(self, session: Session, cookie: str) -> int:
        """Return the status of a request with *cookie*."""
        return (await self.get(session, fields=[("Cookie", cookie)])).status

    async def becomes(self, session: Session, cookie: str, wanted: int) -> None:
        """Wait until a request with *cookie* gets *wanted*, as long as a repair may take."""
        deadline = time.monotonic() + REPAIR_SECONDS
        while (found := await self.status(session, cookie)) != wanted:
            assert time.monotonic() < deadline, f"still {found}"
            await asyncio.sleep(0.05)

    async def stays(self, session: Session, cookie: str, wanted: int, seconds: float) -> None:
        """Assert that every request with *cookie* gets *wanted*, for the given seconds."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert await self.status(session, cookie) == wanted
            await asyncio.sleep(0.1)

    def close_streams(self) -> None:
        """End every connection that a test made."""
        for stream in self.streams:
            stream.close()
        self.streams.clear()

    async def keep_beating(self) -> None:
        """Publish the controller's heartbeats."""
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            if self.beating:
                with suppress(RedisError, OSError):
                    await self.bus.beat()


def write_keys(folder: Path, keys: Orchestrator) -> dict[str, str]:
    """Write the key files of a gateway, and return the settings that name them."""
    (folder / "jwks.json").write_bytes(keys.key_set())
    for name in ("link", "grant"):
        (folder / f"{name}.key").write_bytes(base64.b64encode(secrets.token_bytes(32)) + b"\n")
    return {
        "FUMAROLE_GATEWAY_TOKEN_ISSUER": ISSUER,
        "FUMAROLE_GATEWAY_TOKEN_JWKS": str(folder / "jwks.json"),
        "FUMAROLE_GATEWAY_GRANT_KEY_FILE": str(folder / "grant.key"),
        "FUMAROLE_LINK_KEY_FILE": str(folder / "link.key"),
    }


def make_settings(folder: Path, keys: Orchestrator, redis_url: str) -> dict[str, str]:
    """Return the settings of a gateway on ``localhost``."""
    return write_keys(folder, keys) | {
        "FUMAROLE_INSTANCE": "exam",
        "FUMAROLE_REDIS_URL": redis_url,
        "FUMAROLE_GATEWAY_LISTEN": "127.0.0.1:0",
        "FUMAROLE_GATEWAY_OPS_LISTEN": "127.0.0.1:0",
        "FUMAROLE_GATEWAY_PUBLIC_URL": LOCAL_URL,
        "FUMAROLE_GATEWAY_UPSTREAM_NETWORKS": "127.0.0.0/8",
        "FUMAROLE_GATEWAY_DRAIN_SECONDS": "1",
    }


@asynccontextmanager
async def running_rig(
    folder: Path,
    settings: Mapping[str, str] | None = None,
    *,
    start: bool = True,
    make_process: Callable[[Path, Mapping[str, str]], Process] = Process,
) -> AsyncIterator[Rig]:
    """Run a rig in *folder*, with further *settings* (named without their prefix)."""
    keys = Orchestrator()
    more = {f"FUMAROLE_GATEWAY_{name}": value for name, value in (settings or {}).items()}
    with RedisServer(redis_program(), folder) as server:
        process = make_process(folder, make_settings(folder, keys, server.url) | more)
        redis = Redis.from_url(server.url, protocol=2)
        bus = Bus(redis, process.settings["FUMAROLE_INSTANCE"])
        rig = Rig(process, server, bus, keys)
        await bus.rebuild()
        beats = asyncio.create_task(rig.keep_beating())
        try:
            if start:
                await process.start()
            yield rig
        except BaseException:
            print(process.tail())  # pytest shows it beside the failure
            raise
        finally:
            rig.close_streams()
            while not beats.done():
                # A client in the middle of a command may turn one cancellation into a timeout.
                beats.cancel()
                await asyncio.wait([beats], timeout=1.0)
            await process.stop()
            await redis.aclose()
    crashes = process.crashes()
    assert not crashes, process.log.read_text(errors="replace")[-3000:]
