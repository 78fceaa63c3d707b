"""Every kind of connection, brought to the point where its work is under way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.contract import frames
from tests.contract.messages import request
from tests.contract.rig import Session
from tests.contract.test_vnc import KEY, SERVER_INIT
from tests.contract.upstream import App, Script
from tests.pressure import apps
from tests.pressure.apps import Mode
from tests.pressure.browser import Browser
from tests.pressure.gateway_under_test import SETUP_SECONDS, SMALL_WINDOW, PressureRig

TERMINAL = ("Sec-WebSocket-Protocol", "fumarole.terminal.v1")
DESKTOP = ("Sec-WebSocket-Protocol", "binary")
CONNECT = "/.fumarole/connect"
UPLOAD_BYTES = 64 << 20
PIECE = apps.PIECE[: 16 << 10]
CHUNK = b"%x\r\n%s\r\n" % (len(PIECE), PIECE)
FRAME = frames.encode(frames.BINARY, PIECE, mask=frames.MASK)
Fields = list[tuple[str, str]]


@dataclass
class OpenConnection:
    """A connection under way: both of its ends, and the bytes that the browser could still send."""

    browser: Browser
    app: App | None
    session: Session
    more: bytes


@dataclass
class Scene:
    """Where a connection is made, and the behaviour of its app."""

    ground: PressureRig
    mode: Mode
    where: str = "near"
    claims: Mapping[str, Any] = field(default_factory=dict)
    """Of the token that opens its session."""
    first: bytes = b""
    piece: bytes = b""
    """What an app that talks says first, and then again and again, instead of what is usual."""

    @asynccontextmanager
    async def playing(self, script: Script) -> AsyncIterator[App]:
        """Return the script of the connection's app."""
        async with self.ground.app(script, where=self.where, window=SMALL_WINDOW) as app:
            yield app

    async def until_asked(self, app: App) -> None:
        """Wait until *app* has a connection, and has read a request if it reads at all."""
        async with asyncio.timeout(SETUP_SECONDS):
            while not app.connections or (self.mode != "deaf" and not app.requests):
                await asyncio.sleep(0.01)


@dataclass(frozen=True)
class Kind:
    """A kind of connection."""

    name: str
    begin: Callable[[Scene], Any]
    """Returns a context manager of a Held."""


Begin = Callable[[Scene], AsyncIterator[OpenConnection]]
KINDS: dict[str, Kind] = {}


def kind(name: str) -> Callable[[Begin], Begin]:
    """Register a function that starts connections of the kind *name*."""

    def note(begin: Begin) -> Begin:
        KINDS[name] = Kind(name, asynccontextmanager(begin))
        return begin

    return note


async def _asked(
    scene: Scene, app: App, data: Callable[[Session, Fields], bytes]
) -> OpenConnection:
    """Return a connection on which *data* was sent to a session of *app*."""
    session, own = await scene.ground.entered(app)
    browser = await scene.ground.browser(window=SMALL_WINDOW)
    await browser.send(data(session, own))
    await scene.until_asked(app)
    return OpenConnection(browser, app, session, b"")


# Requests


@kind("request")
async def _request(scene: Scene) -> AsyncIterator[OpenConnection]:
    """A POST that waits for its response, and a pipelined GET behind it."""

    def data(session: Session, own: Fields) -> bytes:
        first = request("POST", "/", host=session.host, fields=own, body=b"hello")
        return first + request("GET", "/second", host=session.host, fields=own)

    script = apps.pipelined if scene.mode == "talks" else apps.web(scene.mode)
    async with scene.playing(script) as app:
        held = await _asked(scene, app, data)
        own = scene.ground.rig.own(held.session, await scene.ground.rig.opened(held.session))
        if scene.mode == "talks":
            held.more = request("GET", "/", host=held.session.host, fields=own) * 50
        yield held


@kind("long poll")
async def _long_poll(scene: Scene) -> AsyncIterator[OpenConnection]:
    """A GET whose app sends no response."""

    def data(session: Session, own: Fields) -> bytes:
        return request("GET", "/", host=session.host, fields=own)

    async with scene.playing(apps.web(scene.mode)) as app:
        yield await _asked(scene, app, data)


@kind("upload")
async def _upload(scene: Scene) -> AsyncIterator[OpenConnection]:
    """A PUT with a length, large enough for the kernel to splice; a part has been sent."""
    async with _uploading(scene, ("Content-Length", str(UPLOAD_BYTES)), PIECE * 160) as held:
        yield held


@kind("chunked upload")
async def _chunked_upload(scene: Scene) -> AsyncIterator[OpenConnection]:
    """A chunked PUT of which some chunks have been sent."""
    async with _uploading(scene, ("Transfer-Encoding", "chunked"), CHUNK) as held:
        yield held


@asynccontextmanager
async def _uploading(
    scene: Scene, framing: tuple[str, str], first: bytes
) -> AsyncIterator[OpenConnection]:
    def data(session: Session, own: Fields) -> bytes:
        return request("PUT", "/", host=session.host, fields=[*own, framing])

    async with scene.playing(apps.web(scene.mode, _early(scene), apps.PIECE)) as app:
        held = await _asked(scene, app, data)
        if scene.mode == "silent":
            await held.browser.send(first)
        held.more = CHUNK if framing[1] == "chunked" else PIECE
        yield held


def _early(scene: Scene) -> bytes:
    """Return the early response of an app that sends before it has read a body."""
    return apps.LARGE_HEAD if scene.mode == "talks" else b""


@kind("download")
async def _download(scene: Scene) -> AsyncIterator[OpenConnection]:
    """A GET of one GiB with a length: the kernel moves the bytes once they flow."""
    async with _downloading(scene, apps.LARGE_HEAD, apps.PIECE) as held:
        yield held


@kind("chunked download")
async def _chunked_download(scene: Scene) -> AsyncIterator[OpenConnection]:
    """A GET of endless chunks."""
    async with _downloading(scene, apps.STREAM_HEAD, apps.CHUNK) as held:
        yield held


@kind("event stream")
async def _event_stream(scene: Scene) -> AsyncIterator[OpenConnection]:
    """A GET of an event stream, of which one event has arrived."""
    async with _downloading(scene, apps.FIRST_EVENT, apps.CHUNK) as held:
        yield held


@asynccontextmanager
async def _downloading(scene: Scene, first: bytes, piece: bytes) -> AsyncIterator[OpenConnection]:
    def data(session: Session, own: Fields) -> bytes:
        return request("GET", "/", host=session.host, fields=own)

    async with scene.playing(apps.web(scene.mode, first, piece)) as app:
        held = await _asked(scene, app, data)
        assert await held.browser.status() == 200
        yield held


@kind("public link")
async def _public_link(scene: Scene) -> AsyncIterator[OpenConnection]:
    """A download without a credential."""
    async with scene.playing(apps.web(scene.mode, apps.LARGE_HEAD, apps.PIECE)) as app:
        rig = scene.ground.rig
        name = f"link-{app.port}.{rig.url.hostname}"
        session = await rig.session(app, links=[name], public=True)
        browser = await scene.ground.browser(window=SMALL_WINDOW)
        await browser.send(request("GET", "/", host=rig.host_of(name)))
        assert await browser.status() == 200
        yield OpenConnection(browser, app, session, b"")


# Tunnels and bridges


async def upgraded(
    scene: Scene, app: App, path: str, *fields: tuple[str, str], **told: Any
) -> OpenConnection:
    """Return a tunnel to *app*."""
    rig = scene.ground.rig
    session = await rig.session(app, **told)
    own = rig.own(session, await rig.opened(session, **scene.claims))
    browser = await scene.ground.browser(window=SMALL_WINDOW)
    everything = [*frames.HANDSHAKE, *own, *fields]
    await browser.send(request("GET", path, host=session.host, fields=everything))
    assert await browser.status() == 101
    return OpenConnection(browser, app, session, FRAME)


@kind("WebSocket")
async def _websocket(scene: Scene) -> AsyncIterator[OpenConnection]:
    """A tunnel to an app."""
    async with scene.playing(
        apps.switching(scene.mode, scene.first, scene.piece or apps.FRAME)
    ) as app:
        yield await upgraded(scene, app, "/")


@kind("terminal")
async def _terminal(scene: Scene) -> AsyncIterator[OpenConnection]:
    """A terminal; the app plays the hub."""
    script = apps.switching(scene.mode, scene.first, scene.piece or apps.FRAME, ": ".join(TERMINAL))
    target = {"scheme": "ws", "base_path": "/terminals/x"}
    async with scene.playing(script) as app:
        yield await upgraded(scene, app, CONNECT, TERMINAL, kind="terminal", target=target)


@kind("desktop")
async def _desktop(scene: Scene) -> AsyncIterator[OpenConnection]:
    """A desktop after its handshake."""
    async with scene.playing(apps.desktop(scene.mode, scene.piece or apps.PIECE)) as app:
        held = await upgraded(scene, app, CONNECT, DESKTOP, kind="vnc", target={"scheme": "tcp"})
        await shake(held.browser)
        held.more = frames.encode(frames.BINARY, KEY * 2000, mask=frames.MASK)
        yield held


async def shake(browser: Browser) -> None:
    """Do the browser's part of the RFB handshake."""
    for said, count in ((b"RFB 003.008\n", 14), (b"\x01", 4), (b"\x01", len(SERVER_INIT))):
        await browser.send(frames.encode(frames.BINARY, said, mask=frames.MASK))
        heard = b""
        wanted = count
        while len(heard) < wanted:
            heard += (await frames.read_frame(browser)).payload


# The gateway's own responses


@kind("page")
async def _page(scene: Scene) -> AsyncIterator[OpenConnection]:
    """The form that opens a session, of which a part has been sent."""
    rig = scene.ground.rig
    session = await rig.session()
    browser = await scene.ground.browser(window=SMALL_WINDOW)
    fields = [("Content-Type", "application/json"), ("Content-Length", "16000")]
    head = request("POST", "/.fumarole/open", host=session.host, fields=fields)
    await browser.send(head + b'{"token":"')
    yield OpenConnection(browser, None, session, b"")


@kind("refused")
async def _refused(scene: Scene) -> AsyncIterator[OpenConnection]:
    """Pipelined requests without a credential."""
    session = await scene.ground.rig.session()
    browser = await scene.ground.browser(window=SMALL_WINDOW)
    more = request("GET", "/", host=session.host) * 200
    await browser.send(more)
    yield OpenConnection(browser, None, session, more)
