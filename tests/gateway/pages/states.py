"""Every page of the gateway in every state that users meet, for pictures and checks.

Each state is a context manager that brings a browser's page into the state and keeps it there.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from playwright.async_api import Page, expect
from websockets.asyncio.server import ServerConnection

from deploy.local.apps.painting import Painting
from deploy.local.apps.rfb import RfbServer
from shared.routes.statuses import Status
from tests.gateway.conftest import World
from tests.gateway.pages.users import Person
from tests.gateway.relay.bridge.test_terminal import PATH, hub_of
from tests.gateway.upstreams import listening_on

APP = "Protein folding"
LONG = "A name that somebody gave to a job without a thought for narrow screens-and-without-spaces"
PAGE = b"""<!doctype html><html lang="en"><title>Results</title><style>body{font:16px system-ui;
margin:2rem;background:#fff;color:#222}</style><main><h1>Results</h1><p>This is the app.</p></main>
"""


@dataclass(frozen=True)
class State:
    """A page in a state; every test run checks the *quick* ones."""

    name: str
    about: str
    show: Callable[[World, Person], AbstractAsyncContextManager[None]]
    quick: bool = False


STATES: list[State] = []


Shows = Callable[[World, Person], AbstractAsyncContextManager[None]]


def state(
    name: str, about: str, *, quick: bool = False
) -> Callable[[Callable[[World, Person], AsyncIterator[None]]], Shows]:
    """Register a state, which an asynchronous generator shows."""

    def add(generator: Callable[[World, Person], AsyncIterator[None]]) -> Shows:
        show = asynccontextmanager(generator)
        STATES.append(State(name, about, show, quick))
        return show

    return add


@asynccontextmanager
async def app_of() -> AsyncIterator[int]:
    """Serve an app that is one page; return its port."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A connection that the gateway opened in advance may stay unused.
        with suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n"
                b"Content-Length: %d\r\n\r\n%b" % (len(PAGE), PAGE)
            )
        writer.close()

    async with listening_on(handle) as port:
        yield port


async def heading(page: Page, text: str) -> None:
    """Wait until the page's heading is *text*."""
    await expect(page.get_by_role("heading", level=1)).to_have_text(text)


# Opening


@state("link-incomplete", "the link lost its secret part")
async def _incomplete(world: World, person: Person) -> AsyncIterator[None]:
    sid = await world.publish()
    await person.page.goto(person.url(sid, "/.fumarole/open"))
    await heading(person.page, "This link is incomplete")
    yield


@state("link-used", "the link was used already", quick=True)
async def _used(world: World, person: Person) -> AsyncIterator[None]:
    async with app_of() as port:
        sid = await world.publish(port=port)
        token = world.gateway.signer.token(sid)
        for _ in range(2):
            # A user who is signed in would be led on into the app.
            await person.context.clear_cookies()
            await person.page.goto("about:blank")
            await person.page.goto(person.url(sid, f"/.fumarole/open#token={token}"))
            await person.page.wait_for_load_state()
        await heading(person.page, "This link was already used")
        yield


@state("other-user", "somebody else is signed in")
async def _other_user(world: World, person: Person) -> AsyncIterator[None]:
    async with app_of() as port:
        sid = await world.publish(port=port)
        await person.follow_link(sid)
        await person.page.wait_for_url(person.url(sid))
        await person.follow_link(sid, sub="grace", name="Grace Hopper")
        await heading(person.page, "Someone else is signed in here")
        yield


@state("not-open", "an address without its link")
async def _not_open(world: World, person: Person) -> AsyncIterator[None]:
    sid = await world.publish()
    await person.page.goto(person.url(sid))
    await heading(person.page, "You are not signed in to this session")
    yield


@state("withdrawn", "access was withdrawn")
async def _withdrawn(world: World, person: Person) -> AsyncIterator[None]:
    async with app_of() as port:
        sid = await world.publish(port=port)
        await person.follow_link(sid)
        await person.page.wait_for_url(person.url(sid))
        await world.revoke(sid=sid, sub="ada")
        await person.page.goto(person.url(sid))
        await heading(person.page, "Your access was withdrawn")
        yield


# Starting


def _start(name: str, about: str, *, quick: bool = False, **status: Any) -> None:
    @state(f"start-{name}", about, quick=quick)
    async def show(world: World, person: Person) -> AsyncIterator[None]:
        now = time.time()
        times = [[phase, now - ago] for phase, ago in status.get("times", ())]
        shown = {"app": APP} | status | {"since": now - status["since"], "times": times}
        sid = await world.publish(state="starting", message="older pages say this", status=shown)
        await person.follow_link(sid)
        await expect(person.page.locator("#steps li").first).to_be_visible()
        yield


_start(
    "queued", "in the queue", phase="queued", since=75, detail="2 of 4 GPUs are free", position=3
)
_start(
    "preparing",
    "the image is pulled",
    phase="preparing",
    since=9,
    detail="registry.example.org/science/folding:2026.11",
    times=[("queued", 90)],
)
_start(
    "silent",
    "the program does not answer",
    quick=True,
    phase="starting",
    since=200,
    port=8888,
    app=LONG,
    times=[("queued", 320), ("preparing", 260)],
)
_start("suspended", "suspended", phase="suspended", since=600)


# Ended


def _end(name: str, about: str, *, quick: bool = False, **status: Any) -> None:
    @state(f"ended-{name}", about, quick=quick)
    async def show(world: World, person: Person) -> AsyncIterator[None]:
        async with app_of() as port:
            sid = await world.publish(port=port)
            await person.follow_link(sid)
            await person.page.wait_for_url(person.url(sid))
            await world.remove(sid, Status(**({"app": APP} | status)))
            await person.page.reload()
            await expect(person.page.get_by_role("status")).to_contain_text("has ended")
            yield


_end("finished", "the job has finished", phase="finished")
_end("stopped", "the job was stopped", phase="stopped")
_end(
    "failed",
    "the job has failed",
    quick=True,
    phase="failed",
    reason="exit_code",
    detail="job 0 ended with exit code 137: it took more than its 2Gi of memory",
)
_end("expired", "out of time", phase="expired")
_end("funds", "out of funds", phase="out_of_funds")
_end("evicted", "evicted", phase="evicted", detail="the node was low on disk")
_end("closed", "the session was closed, its job goes on", phase="closed")


# Errors


@state("app-silent", "the app does not answer")
async def _silent(world: World, person: Person) -> AsyncIterator[None]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        sid = await world.publish(port=taken.getsockname()[1])
        # The page retries after a second; here the retry never happens.
        await person.page.add_init_script(
            "const later = setTimeout; window.setTimeout = (f, ms) => !(ms >= 1000) && later(f, ms)"
        )
        await person.follow_link(sid)
        await heading(person.page, "The app does not respond")
        yield


@state("ends-soon", "its time is nearly over", quick=True)
async def _ends_soon(world: World, person: Person) -> AsyncIterator[None]:
    async with app_of() as port:
        status = {"phase": "ready", "app": APP, "since": time.time() - 3600}
        sid = await world.publish(port=port, status=status, expires_at=time.time() + 475)
        await person.follow_link(sid)
        await heading(person.page, f"{APP} ends soon")
        await expect(person.page.get_by_role("status")).to_contain_text("in 7 min")
        yield


@state("nothing-here", "an unknown address")
async def _nothing(world: World, person: Person) -> AsyncIterator[None]:
    await person.page.goto(person.url("a" * 26))
    await heading(person.page, "There is nothing here")
    yield


# Signing out


@state("sign-out", "before signing out", quick=True)
async def _sign_out(world: World, person: Person) -> AsyncIterator[None]:
    async with app_of() as port:
        sid = await world.publish(port=port)
        await person.follow_link(sid)
        await person.page.wait_for_url(person.url(sid))
        await person.page.goto(person.url(sid, "/.fumarole/sign-out"))
        await heading(person.page, "Sign out of this session?")
        yield


@state("signed-out", "after signing out")
async def _signed_out(world: World, person: Person) -> AsyncIterator[None]:
    async with _sign_out(world, person):
        await person.page.get_by_role("button").click()
        await heading(person.page, "You are signed out")
        yield


# A bar above an app


@asynccontextmanager
async def framed(world: World, person: Person, **changes: Any) -> AsyncIterator[str]:
    """Open an app beneath a bar; return its sid."""
    async with app_of() as port:
        status = {"phase": "ready", "app": APP}
        about: dict[str, Any] = {"port": port, "frame": True, "status": status}
        sid = await world.publish(**(about | changes))
        await person.follow_link(sid)
        inside = person.page.frame_locator("iframe")
        await expect(inside.get_by_text("This is the app.")).to_be_visible()
        yield sid


@state("bar", "an app beneath the bar")
async def _bar(world: World, person: Person) -> AsyncIterator[None]:
    async with framed(world, person, expires_at=time.time() + 3 * 3600 + 90):
        await expect(person.page.get_by_role("status")).to_contain_text("3 h")
        yield


@state("bar-soon", "its time is nearly over", quick=True)
async def _bar_soon(world: World, person: Person) -> AsyncIterator[None]:
    async with framed(world, person, expires_at=time.time() + 555):
        await expect(person.page.get_by_role("status")).to_contain_text("Save your work")
        yield


@state("bar-ended", "it has ended")
async def _bar_ended(world: World, person: Person) -> AsyncIterator[None]:
    async with framed(world, person) as sid:
        await world.remove(sid, Status(phase="evicted", app=APP))
        await expect(person.page.get_by_role("status")).to_contain_text("ended by the cluster")
        yield


@state("bar-offline", "its network is gone")
async def _bar_offline(world: World, person: Person) -> AsyncIterator[None]:
    async with framed(world, person):
        await person.context.set_offline(True)
        await expect(person.page.get_by_role("status")).to_contain_text("No connection")
        yield
        await person.context.set_offline(False)


# Desktops


@asynccontextmanager
async def desktop(
    world: World, person: Person, *, mode: str = "control", name: str = "Desktop", **changes: Any
) -> AsyncIterator[str]:
    server = RfbServer(Painting("A desktop"), "A desktop")
    async with listening_on(server.handle) as port:
        status = {"phase": "ready", "app": name, "since": time.time() - 3600}
        sid = await world.publish(kind="vnc", port=port, status=status, **changes)
        await person.follow_link(sid, kind="vnc", mode=mode)
        await expect(person.page.get_by_role("status")).to_contain_text("Connected")
        await expect(person.page.locator("#notice")).to_be_hidden()
        yield sid


@state("desktop", "a desktop", quick=True)
async def _shown(world: World, person: Person) -> AsyncIterator[None]:
    async with desktop(world, person):
        yield


@state("desktop-view", "a view-only desktop, with a long name")
async def _view(world: World, person: Person) -> AsyncIterator[None]:
    async with desktop(world, person, mode="view", name=LONG):
        yield


@state("desktop-ends-soon", "its time is nearly over", quick=True)
async def _desktop_soon(world: World, person: Person) -> AsyncIterator[None]:
    async with desktop(world, person, expires_at=time.time() + 475):
        await expect(person.page.get_by_text("7 min left")).to_be_visible()
        yield


@state("desktop-ended", "its session has ended")
async def _desktop_ended(world: World, person: Person) -> AsyncIterator[None]:
    async with desktop(world, person) as sid:
        await world.remove(sid, Status(phase="stopped", app="Desktop", by="Grace Hopper"))
        await expect(person.page.locator("#notice h2")).to_have_text("Desktop was stopped")
        await expect(person.page.locator("#notice")).to_contain_text("Grace Hopper")
        yield


@state("desktop-lost", "the connection was lost")
async def _desktop_lost(world: World, person: Person) -> AsyncIterator[None]:
    async with desktop(world, person) as sid:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            nobody = {"id": "pod-2"}
            await world.change(sid, kind="vnc", port=taken.getsockname()[1], target=nobody)
            await expect(person.page.locator("#notice h2")).to_have_text("The connection was lost")
            await expect(person.page.get_by_role("button", name="Try now")).to_be_visible()
            yield


async def _asks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Ask every client for a password, and accept none (RFC 6143, section 7.2.2)."""
    writer.write(b"RFB 003.008\n")
    await reader.readexactly(12)
    writer.write(b"\x01\x02")
    await reader.readexactly(1)
    writer.write(b"0123456789abcdef")
    await reader.readexactly(16)
    writer.write(b"\x00\x00\x00\x01\x00\x00\x00\x00")
    await reader.read()


@state("desktop-password", "it asks for its password", quick=True)
async def _password(world: World, person: Person) -> AsyncIterator[None]:
    async with listening_on(_asks) as port:
        status = {"phase": "ready", "app": "Desktop"}
        sid = await world.publish(kind="vnc", port=port, status=status)
        await person.follow_link(sid, kind="vnc")
        await expect(person.page.get_by_label("Password")).to_be_focused()
        yield


@state("desktop-password-wrong", "the password was wrong")
async def _wrong(world: World, person: Person) -> AsyncIterator[None]:
    async with _password(world, person):
        await person.page.keyboard.type("wrong")
        await person.page.keyboard.press("Enter")
        await expect(person.page.get_by_role("alert")).to_contain_text("did not accept")
        await expect(person.page.get_by_label("Password")).to_be_focused()
        yield


# Terminals


@asynccontextmanager
async def _terminal(world: World, person: Person, **changes: Any) -> AsyncIterator[None]:
    async def talk(socket: ServerConnection) -> None:
        await socket.send('{"type":"attached","mode":"control","resumed":false}')
        await socket.send(b"ada@job-0:/work$ ")
        async for _ in socket:
            pass

    async with hub_of(world, talk) as hub:
        where: dict[str, Any] = {"port": hub.port, "target": {"base_path": PATH}}
        status = {"phase": "ready", "app": "Shell", "since": time.time() - 3600}
        sid = await world.publish(kind="terminal", status=status, **where, **changes)
        await person.follow_link(sid, kind="terminal")
        await expect(person.page.locator(".xterm-rows")).to_contain_text("ada@job-0")
        yield


@state("terminal", "a terminal", quick=True)
async def _prompt(world: World, person: Person) -> AsyncIterator[None]:
    async with _terminal(world, person):
        yield


@state("terminal-ends-soon", "its time is nearly over", quick=True)
async def _terminal_soon(world: World, person: Person) -> AsyncIterator[None]:
    async with _terminal(world, person, expires_at=time.time() + 475):
        await expect(person.page.get_by_text("7 min left")).to_be_visible()
        yield
