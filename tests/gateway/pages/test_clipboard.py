"""Tests the clipboard in a real Chromium: a hostile desktop, hostile text, and the policy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from playwright.async_api import expect
from websockets.asyncio.server import ServerConnection

from tests.deploy.local.apps.test_desktop import desktop as real_desktop
from tests.gateway.browser import ClientConnection, open_socket
from tests.gateway.conftest import World
from tests.gateway.pages.users import Person
from tests.gateway.relay.bridge.test_terminal import PATH, Hub, hub_of
from tests.gateway.upstreams import listening_on

pytestmark = pytest.mark.needs("chromium")

BRACKETED = b"\x1b[?2004h"
END = "\x1b[201~"


async def typed(hub: Hub, until: Callable[[bytes], bool]) -> bytes:
    """Return the bytes that the shell received, once *wanted* accepts them."""
    async with asyncio.timeout(20):
        while True:
            sent = b"".join(one for one in hub.received if isinstance(one, bytes))
            if until(sent):
                return sent
            await asyncio.sleep(0.05)


@asynccontextmanager
async def terminal(
    world: World, person: Person, *, says: bytes = b"", **route: Any
) -> AsyncIterator[Hub]:
    """Provide an open terminal whose shell has written *says*."""
    held: list[Hub] = []

    async def talk(socket: ServerConnection) -> None:
        await socket.send('{"type":"attached","mode":"control","resumed":false}')
        await socket.send(says + b"ready$ ")
        async for message in socket:
            held[0].received.append(message)

    async with hub_of(world, talk) as hub:
        held.append(hub)
        target = {"base_path": PATH}
        sid = await world.publish(kind="terminal", port=hub.port, target=target, **route)
        await person.context.grant_permissions(
            ["clipboard-read", "clipboard-write"], origin=world.gateway.origin(sid)
        )
        await person.follow_link(sid, kind="terminal")
        await expect(person.page.get_by_role("status")).to_have_text("Connected")
        await expect(person.page.locator(".xterm-rows")).to_contain_text("ready$")
        yield hub


async def put(person: Person, text: str) -> None:
    await person.page.evaluate("text => navigator.clipboard.writeText(text)", text)


async def clipboard_of(person: Person) -> str:
    text: str = await person.page.evaluate("() => navigator.clipboard.readText()")
    return text


PASTE = """text => {
    const data = new DataTransfer();
    data.setData("text/plain", text);
    const options = {bubbles: true, cancelable: true};
    const event = new ClipboardEvent("paste", {clipboardData: data, ...options});
    document.querySelector(".xterm-helper-textarea").dispatchEvent(event);
}"""
DROP = PASTE.replace("new ClipboardEvent", "new DragEvent").replace(
    '"paste", {clipboardData: data,', '"drop", {dataTransfer: data,'
)

COPY = """() => {
    const data = new DataTransfer();
    const options = {clipboardData: data, bubbles: true, cancelable: true};
    const event = new ClipboardEvent("copy", options);
    document.querySelector(".xterm-helper-textarea").dispatchEvent(event);
    return data.getData("text/plain");
}"""


@pytest.mark.parametrize("way", ["button", PASTE, DROP], ids=["button", "keys", "drop"])
async def test_pasted_text_cannot_end_the_bracketed_paste(
    world: World, person: Person, way: str
) -> None:
    hostile = f"a\x1b[2\x1b[201~01~{END}\x9b201~\x07b\tc\r\nrm -rf ~\x00\x7f\x85"
    async with terminal(world, person, says=BRACKETED) as hub:
        if way == "button":
            await put(person, hostile)
            await person.page.get_by_role("button", name="Paste", exact=True).click()
        else:
            await person.page.evaluate(way, hostile)
        sent = await typed(hub, lambda sent: sent.endswith(END.encode()))
        assert sent == b"\x1b[200~ab\tc\rrm -rf ~\x1b[201~"


async def test_a_multi_line_paste_is_confirmed_if_a_shell_would_run_it(
    world: World, person: Person
) -> None:
    question = person.page.get_by_role("dialog")
    async with terminal(world, person) as hub:
        await person.page.evaluate(PASTE, "first\nsecond\n")
        await expect(question).to_contain_text("first\nsecond")
        await question.get_by_role("button", name="Cancel").click()
        await expect(question).to_be_hidden()
        await person.page.evaluate(PASTE, "first\nsecond\n")
        await question.get_by_role("button", name="Paste").click()
        assert await typed(hub, lambda sent: b"second\r" in sent) == b"first\rsecond\r"
        await person.page.evaluate(PASTE, "one line")
        assert (await typed(hub, lambda sent: b"line" in sent)).endswith(b"one line")


@pytest.mark.parametrize(
    ("clipboard", "pastes", "copies"),
    [("both", True, True), ("in", True, False), ("out", False, True), ("none", False, False)],
)
async def test_a_terminal_obeys_its_clipboard_policy(
    world: World, person: Person, clipboard: str, pastes: bool, copies: bool
) -> None:
    async with terminal(world, person, clipboard=clipboard) as hub:
        await put(person, "before")
        paste = person.page.get_by_role("button", name="Paste", exact=True)
        copy = person.page.get_by_role("button", name="Copy", exact=True)
        await expect(paste).to_be_visible(visible=pastes)
        await expect(copy).to_be_visible(visible=copies)
        await person.page.evaluate(PASTE, "pasted")
        await person.page.keyboard.type("typed")
        sent = await typed(hub, lambda sent: sent.endswith(b"typed"))
        assert (b"pasted" in sent) is pastes
        await person.page.evaluate("() => fumaroleTerminal.selectAll()")
        await person.page.keyboard.press("Control+Shift+C")
        assert ("ready$" in await person.page.evaluate(COPY)) is copies
        await asyncio.sleep(0.3)
        assert ("ready$" in await clipboard_of(person)) is copies


async def test_a_program_in_the_shell_cannot_write_the_clipboard(
    world: World, person: Person
) -> None:
    osc52 = b"\x1b]52;c;cm0gLXJmIC8K\x07"
    async with terminal(world, person) as hub:
        await put(person, "mine")
        await person.page.evaluate(PASTE, "x")
        await typed(hub, lambda sent: sent == b"x")
    async with terminal(world, person, says=osc52):
        await put(person, "mine")
        await asyncio.sleep(0.3)
        assert await clipboard_of(person) == "mine"


async def test_colours_and_selection_are_visible(world: World, person: Person) -> None:
    async with terminal(world, person, says=b"\x1b[38;2;1;2;3mpainted\x1b[0m "):
        painted = person.page.locator(".xterm-rows span", has_text="painted")
        await expect(painted).to_have_css("color", "rgb(1, 2, 3)")
        await person.page.evaluate("() => fumaroleTerminal.selectAll()")


# Desktops


def server_init() -> bytes:
    form = bytes((32, 24, 0, 1)) + b"\0\xff\0\xff\0\xff" + b"\x10\x08\0" + bytes(3)
    return b"\0\x40\0\x30" + form + (4).to_bytes(4, "big") + b"desk"


@asynccontextmanager
async def desktop(text: bytes) -> AsyncIterator[tuple[int, list[bytes]]]:
    """Provide a desktop that puts *text* on the browser's clipboard as soon as it can."""
    received: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            writer.write(b"RFB 003.008\n")
            await reader.readexactly(12)
            writer.write(b"\1\1")
            await reader.readexactly(1)
            writer.write(bytes(4))
            await reader.readexactly(1)
            writer.write(server_init())
            while data := await reader.read(4096):
                received.append(data)
                # noVNC processes the bytes after ServerInit only when more bytes arrive.
                writer.write(b"\3\0\0\0" + len(text).to_bytes(4, "big") + text + b"\2")

    async with listening_on(handle) as port:
        yield port, received


async def test_desktop_text_reaches_the_clipboard_only_by_a_click(
    world: World, person: Person
) -> None:
    async with desktop(b"rm -rf ~") as (port, _):
        sid = await world.publish(kind="vnc", port=port)
        await person.context.grant_permissions(
            ["clipboard-read", "clipboard-write"], origin=world.gateway.origin(sid)
        )
        await person.follow_link(sid, kind="vnc")
        copy = person.page.get_by_role("button", name="Copy from desktop")
        await expect(copy).to_be_enabled()
        await put(person, "mine")
        await asyncio.sleep(0.3)
        assert await clipboard_of(person) == "mine"
        await copy.click()
        await expect(person.page.get_by_role("status")).to_have_text("Copied")
        assert await clipboard_of(person) == "rm -rf ~"


@pytest.mark.parametrize(
    ("clipboard", "copies", "pastes"),
    [("in", False, True), ("out", True, False), ("none", False, False)],
)
async def test_a_desktop_obeys_its_clipboard_policy(
    world: World, person: Person, clipboard: str, copies: bool, pastes: bool
) -> None:
    async with desktop(b"secret") as (port, received):
        sid = await world.publish(kind="vnc", port=port, clipboard=clipboard)
        await person.context.grant_permissions(
            ["clipboard-read", "clipboard-write"], origin=world.gateway.origin(sid)
        )
        await person.follow_link(sid, kind="vnc")
        await expect(person.page.get_by_role("status")).to_have_text("Connected")
        copy = person.page.get_by_role("button", name="Copy from desktop")
        paste = person.page.get_by_role("button", name="Paste clipboard")
        await expect(copy).to_be_visible(visible=copies)
        await expect(paste).to_be_visible(visible=pastes)
        # The gateway decides, whatever a forged page sends.
        cookie = "; ".join(
            f"{one['name']}={one['value']}" for one in await person.context.cookies()
        )
        received.clear()
        async with open_socket(world.gateway, sid, cookie=cookie, protocol="binary") as socket:
            got = await shake_hands(socket)
            await socket.send(b"\6\0\0\0" + (5).to_bytes(4, "big") + b"paste" + UPDATE)
            async with asyncio.timeout(20):
                while UPDATE not in b"".join(received):
                    await asyncio.sleep(0.05)
                while not got.endswith(b"\2"):
                    got += await socket.recv(decode=False)
        assert (b"paste" in b"".join(received)) is pastes
        assert (b"secret" in got) is copies, got
        if copies:
            await expect(copy).to_be_enabled()


UPDATE = b"\3\0\0\0\0\0\0\x40\0\x30"


async def shake_hands(socket: ClientConnection) -> bytes:
    """Return the bytes after the handshake that have arrived so far."""
    got, sent = b"", 0
    answers = [(12, b"RFB 003.008\n"), (14, b"\1"), (18, b"\1")]
    async with asyncio.timeout(20):
        while sent < len(answers):
            got += await socket.recv(decode=False)
            while sent < len(answers) and len(got) >= answers[sent][0]:
                await socket.send(answers[sent][1])
                sent += 1
    return got[18:]


@pytest.mark.needs("xvnc")
async def test_messages_of_a_real_desktop_are_measured_correctly(
    world: World, person: Person
) -> None:
    async with real_desktop() as port:
        sid = await world.publish(kind="vnc", port=port, clipboard="none")
        await person.follow_link(sid, kind="vnc")
        await expect(person.page.get_by_role("status")).to_have_text("Connected")
        async with asyncio.timeout(30):
            while await person.page.evaluate(COLOURS) < 50:
                await asyncio.sleep(0.1)
        canvas = person.page.locator("canvas").first
        await canvas.hover()
        for _ in range(20):
            await person.page.mouse.wheel(0, 10)
        await expect(person.page.get_by_role("status")).to_have_text("Connected")


COLOURS = """() => {
    const canvas = document.querySelector("canvas");
    const context = canvas?.getContext("2d");
    if (!canvas?.width) return 0;
    const pixels = new Uint32Array(
        context.getImageData(0, 0, canvas.width, canvas.height).data.buffer);
    return new Set(pixels).size;
}"""
