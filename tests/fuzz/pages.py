"""Checks the promises for the pages, in a real Chromium behind a running gateway.

Inputs are the data of a hub or a desktop, and pasted text. They cross the gateway's bridges as
usual. One system serves all inputs; each input begins with a page in good order.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Coroutine, Hashable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Self, TypeVar

from playwright.async_api import Page, async_playwright
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from shared.bus import connect
from tests.conftest import chromium
from tests.fuzz.mutation import Target
from tests.gateway.bus.following import published
from tests.gateway.conftest import World
from tests.gateway.pages.test_clipboard import PASTE, server_init
from tests.gateway.pages.users import FLAGS, Person
from tests.gateway.process import GatewayProcess
from tests.gateway.relay.bridge.test_terminal import PATH, hub_of
from tests.gateway.upstreams import listening_on
from tests.programs import RedisServer, redis_program

T = TypeVar("T")

WAIT_SECONDS: Final = 60.0
PIECES: Final = 32
MINE: Final = "mine"

_WATCH: Final = """
globalThis.fuzz = { probe: 0, received: 0, closed: 0 };
globalThis.WebSocket = new Proxy(WebSocket, {
  construct(real, words) {
    const socket = new real(...words);
    socket.addEventListener("close", () => (fuzz.closed += 1));
    socket.addEventListener("message", ({ data }) => {
      if (typeof data !== "string") fuzz.received += data.byteLength;
      else if (/^{"type": "probe-[0-9]+"}$/.test(data)) fuzz.probe = Number(data.slice(16, -2));
    });
    return socket;
  },
});
"""
_STATE: Final = """async () => {
  const t = fumaroleTerminal;
  await new Promise((done) => t.write("", done));
  return [t.cols, t.rows, t.buffer.active.type, JSON.stringify(t.modes),
    document.title !== document.body.dataset.title, document.querySelector("#revoked").hidden,
    t.buffer.active.cursorX > 0, t.buffer.active.baseY > 0];
}"""
_WORLD: Final = """async () => [location.href, document.scripts.length, window.frames.length,
  document.querySelectorAll("iframe, object, embed, link").length,
  document.hasFocus() ? await navigator.clipboard.readText() : null]"""
_SHOWS: Final = """text => {
  const buffer = fumaroleTerminal.buffer.active;
  for (let y = 0; y < buffer.length; y++)
    if (buffer.getLine(y).translateToString(true).includes(text)) return true;
  return false;
}"""
_CLOSE_QUESTION: Final = """() => {
  const question = document.querySelector("#paste-question");
  const asked = question.open;
  question.close();
  return asked;
}"""

# A terminal's automatic replies: escape sequences of visible characters, never a line.
_ANSWERS: Final = re.compile(rb"[\x1b\x07 -~]*")
_PASTED: Final = re.compile("[^\x00-\x08\x0a-\x0c\x0e-\x1f\x7f-\x9f]*")


class Pages:
    """The system, a context manager. Its checks are called from outside its loop."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._exits = AsyncExitStack()
        self._hub: ServerConnection | None = None
        self._attached = asyncio.Event()
        self._typed = bytearray()
        self._texts = 0
        self._number = 0
        self._desktop: list[bytes] = []
        self._sent = 0

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._run(self._start())
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_exception: object) -> None:
        self._run(self._exits.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, what: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(WAIT_SECONDS * 3)

    async def _start(self) -> None:
        enter = self._exits.enter_async_context
        folder = Path(self._exits.enter_context(TemporaryDirectory()))
        redis = self._exits.enter_context(RedisServer(redis_program(), folder))
        client = connect(redis.url)
        self._exits.push_async_callback(client.aclose)
        publisher = await published(client)
        settings = {"FUMAROLE_GATEWAY_CONTROLLER_GRACE_SECONDS": "86400"}
        gateway = await enter(GatewayProcess(folder, redis.url, **settings))
        world = World(gateway, publisher)
        hub = await enter(hub_of(world, self._talk))
        desktop = await enter(listening_on(self._be_a_desktop))
        host, port = gateway.public
        browser = await (await enter(async_playwright())).chromium.launch(
            executable_path=chromium(),
            args=[*FLAGS, f"--host-resolver-rules=MAP *.localhost {host}:{port}"],
        )
        self._exits.push_async_callback(browser.close)
        context = await browser.new_context()
        await context.add_init_script(_WATCH)
        sids = [
            await world.publish(kind="terminal", port=hub.port, target={"base_path": PATH}),
            await world.publish(kind="vnc", port=desktop),
            await world.publish(kind="vnc", port=desktop, clipboard="none"),
        ]
        self._people: list[Person] = []
        for sid, kind in zip(sids, ("terminal", "vnc", "vnc"), strict=True):
            await context.grant_permissions(
                ["clipboard-read", "clipboard-write"], origin=gateway.origin(sid)
            )
            person = Person(world, context, await context.new_page())
            await person.follow_link(sid, kind=kind)
            self._people.append(person)
        self._before = [await self._settled(person.page) for person in self._people]

    async def _settled(self, page: Page) -> list[Any]:
        await page.wait_for_selector("canvas, .xterm-rows", state="attached")
        await page.bring_to_front()
        await page.evaluate(f"navigator.clipboard.writeText({json.dumps(MINE)})")
        state: list[Any] = await page.evaluate(_WORLD)
        return state

    async def _same_world(self, which: int) -> None:
        """The page is at the same address, unchanged, without a script error and without a copy."""
        person = self._people[which]
        async with asyncio.timeout(WAIT_SECONDS):
            now = await person.page.evaluate(_WORLD)
        assert now == self._before[which], now
        complaints = person.complaints[:]
        person.complaints.clear()
        assert complaints == [], complaints

    # Terminals: pieces after 0xff; below "b" output of the shell, from there on a message of the
    # hub

    async def _talk(self, socket: ServerConnection) -> None:
        self._hub = socket
        await socket.send('{"type": "attached", "mode": "control", "resumed": false}')
        self._attached.set()
        with suppress(ConnectionClosed):
            async for message in socket:
                if isinstance(message, bytes):
                    self._typed += message
                else:
                    self._texts += 1
        if self._hub is socket:
            self._hub = None
            self._attached.clear()

    async def _connected(self) -> ServerConnection:
        page = self._people[0].page
        await page.bring_to_front()
        if self._hub is None:
            await page.reload()
        async with asyncio.timeout(WAIT_SECONDS):
            await self._attached.wait()
        assert self._hub is not None
        return self._hub

    async def _fresh(self, socket: ServerConnection) -> None:
        """Attach the page anew; wait until it has sent its first messages and shows the output."""
        self._number += 1
        reported, shell = self._texts, f"shell-{self._number}$"
        await socket.send('{"type": "attached", "mode": "control", "resumed": false}')
        await socket.send(f"\r\n{shell} ".encode())
        page = self._people[0].page
        await page.wait_for_function(_SHOWS, arg=shell, timeout=WAIT_SECONDS * 1000)
        async with asyncio.timeout(WAIT_SECONDS):
            while self._texts == reported:  # its size, which follows all typed input
                await asyncio.sleep(0.005)

    async def _probe(self, socket: ServerConnection) -> None:
        self._number += 1
        await socket.send(json.dumps({"type": f"probe-{self._number}"}))
        await self._people[0].page.wait_for_function(
            "number => fuzz.probe === number", arg=self._number, timeout=WAIT_SECONDS * 1000
        )

    def terminal(self, data: bytes) -> Hashable:
        """No output or message types a line, and the next shell is shown as usual."""
        return self._run(self._terminal(data))

    async def _terminal(self, data: bytes) -> Hashable:
        socket = await self._connected()
        self._typed.clear()
        for piece in data.split(b"\xff")[:PIECES]:
            shown = piece[:1] < b"b"
            await socket.send(piece[1:] if shown else piece[1:].decode("utf-8", "replace"))
        await self._probe(socket)
        state = await self._people[0].page.evaluate(_STATE)
        await self._fresh(socket)
        assert _ANSWERS.fullmatch(self._typed), bytes(self._typed)
        assert len(self._typed) <= 1024 + 64 * len(data)
        await self._same_world(0)
        return (*state, min(len(self._typed), 4))

    def paste(self, data: bytes) -> Hashable:
        """Pasted text stays one paste, and only a click types a line."""
        return self._run(self._paste(data))

    async def _paste(self, data: bytes) -> Hashable:
        socket, page = await self._connected(), self._people[0].page
        bracketed, text = data[:1] < b"a", data[1:].decode("utf-8", "surrogateescape")
        text = "".join(chr(ord(one) - 0xDC00) if one >= "\udc80" and one <= "\udcff" else one
                       for one in text)  # fmt: skip
        await socket.send(b"\x1b[?2004h" if bracketed else b"\x1b[?2004l")
        await self._probe(socket)
        await page.evaluate(_STATE)
        self._typed.clear()
        await page.evaluate(PASTE, text)
        asked = await page.evaluate(_CLOSE_QUESTION)
        await self._fresh(socket)
        typed = self._typed.decode()
        if bracketed and typed:
            assert typed.startswith("\x1b[200~"), typed
            assert typed.endswith("\x1b[201~"), typed
            typed = typed[6:-6]
        assert _PASTED.fullmatch(typed), typed
        assert bracketed or "\r" not in typed, typed
        assert not (bracketed and asked)
        await self._same_world(0)
        return bracketed, asked, "\r" in typed, "\t" in typed, typed.isascii(), not typed

    # Desktops: the bytes after ServerInit, in pieces after 0xfe 0xff

    async def _be_a_desktop(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            writer.write(b"RFB 003.008\n")
            await reader.readexactly(12)
            writer.write(b"\1\1")
            await reader.readexactly(1)
            writer.write(bytes(4))
            await reader.readexactly(1)
            for piece in (server_init(), *self._desktop):
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            self._sent += 1
            while await reader.read(65536):
                pass

    def desktop(self, data: bytes) -> Hashable:
        """No data of a desktop changes the page or writes to the clipboard."""
        return self._run(self._show_desktop(data, 1))

    def guarded_desktop(self, data: bytes) -> Hashable:
        """The same if the gateway inspects the stream, because no text may leave the session."""
        return self._run(self._show_desktop(data, 2))

    async def _show_desktop(self, data: bytes, which: int) -> Hashable:
        page, sent = self._people[which].page, self._sent
        self._desktop = data.split(b"\xfe\xff")[:PIECES]
        await page.bring_to_front()
        await page.reload()
        async with asyncio.timeout(WAIT_SECONDS):
            while self._sent == sent:
                await asyncio.sleep(0.005)
        whole = 12 + 2 + 4 + len(server_init()) + sum(map(len, self._desktop))
        guarded = which == 2
        await page.wait_for_function(
            "([bytes, guarded]) => fuzz.closed || fuzz.received >= bytes || guarded",
            arg=[whole, guarded],
            timeout=WAIT_SECONDS * 1000,
        )
        # Two turns of the page: the first draws the new data, the second reads noVNC's queue.
        await page.evaluate(
            "() => new Promise((done) => setTimeout(() => setTimeout(done, 30), 0))"
        )
        closed, copies = await page.evaluate(
            "() => [fuzz.closed > 0, !document.querySelector('#copy').disabled]"
        )
        assert not (guarded and copies)
        status = await page.inner_text(".state span")
        await self._same_world(which)
        return closed, copies, status[:12]


_SHOWN: Final = (
    b"a\x1b]0;title\x07\x1b]52;c;cm0gLXJmIC8K\x07\x1b[31mred\x1b[0m\xffa\x1b[6n\x1b[c\x1b[>c\x1b[=c",
    b"a\x1b]8;;javascript:alert(1)\x07link\x1b]8;;\x07 https://x.example/\xffa\x1bP$qm\x1b\\\x1b[18t\x1b[21t",
    b'b{"type":"resized","cols":132,"rows":43}\xffb{"type":"skipped","bytes":7}\xffa\x18\x1b[m$ ',
    b'b{"type":"attached","mode":"view","resumed":true,"cols":80,"rows":24}\xffa\x1b[?1049h\x1b[2J',
    b'b{"type":"revoked_input"}\xffa\x1b[?1000h\x1b[?1004h\x1b[?2004h\x1b]4;1;?\x07\x1b]10;?\x07',
    "a\u4f60\u597d \U0001f600\u0301\x1b[5b\x1b[?25l\x1b(0qqq\x1b(B\x1b7\x1b8\x1bD\x1bM".encode(),
)
_SHOWN_WORDS: Final = (
    *b"\x1b[|\x1b]|\x1bP|\x1b\\|\x07|\x18|\x9b|\x1b_|\x1b^|?|;|999999999|65536|-1|\xc2|\xe2\x82|\r\n"
    b"|\x1b[6n|\x1b[c|\x1b]52;c;|\x1b]8;;|\x1b]0;|h|l|m|J|b|t|@|X|L|M|S|T".split(b"|"),
    *b'\xffa|\xffb|{"type":"resized","cols":|{"type":"exit","code":|"cols":1e9|null|[]|{}|true'
    b'|"type":"attached"|__proto__|"mode":"control"|"rows":0.5'.split(b"|"),
)
_PASTES: Final = (
    b"0a\x1b[2\x1b[201~01~b\x1b[201~rm -rf ~\r\n\x00\x7f\xc2\x9b201~",
    b"zfirst\r\nsecond\n",
    "0\u2028\u2029\u202etxt\ufeff\t\U0001f600".encode(),
    b"zone line",
)
_PASTE_WORDS: Final = tuple(
    b"\x1b[201~|\x1b[200~|\xc2\x9b201~|\xc2\x9b|\x1b[|\x1b|201~|20|\r|\n|\r\n|\t|\x03|\x04|\x85|0|z"
    .split(b"|")
)  # fmt: skip
_RECT: Final = b"\0\0\0\1\0\0\0\0\0\2\0\2"
_DRAWN: Final = (
    _RECT + bytes(20) + b"\2" + b"\3\0\0\0\0\0\0\4text",
    _RECT + b"\0\0\0\1\0\0\0\0" + _RECT + b"\xff\xff\xff\x21",
    _RECT + b"\xff\xff\xfe\xcd\0\0\0\4name" + _RECT + b"\xff\xff\xff\x11" + bytes(18),
    _RECT + b"\0\0\0\7\x80\3\3\3" + _RECT + b"\0\0\0\7\x90\5jpeg!",
    _RECT + b"\0\0\0\x10\0\0\0\7\3\0\0\0\0\0\1" + _RECT + b"\0\0\0\6\0\0\0\2\3\3",
    b"\3\0\0\0\xff\xff\xff\xf8\x01\0\0\1\0\0\0\0\xf8\0\0\0\x80\0\0\1\1x\x96",
    b"\1\0\0\0\0\1" + bytes(6) + _RECT + b"\xff\xff\xfe\xcc\1\0\0\0" + bytes(16),
    _RECT + b"\xff\xff\xfe\xc6" + b"\xfe\xff" + _RECT + bytes(8),
)
_DRAWN_WORDS: Final = (
    _RECT,
    b"\xfe\xff",
    b"\3\0\0\0",
    b"\0\0\0\1",
    b"\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xfe\xcd",
    b"\0\0\0\7",
    b"\0\0\0\5",
    b"\0\0\0\2",
    b"\x40\0",
)


PAGE_TARGETS: Final = ("terminals", "pastes", "desktop_pages", "guarded_desktop_pages")


def page_targets(pages: Pages) -> tuple[Target, ...]:
    """Return the fuzz targets of *pages*, in the order of the names."""
    shown: dict[str, Any] = {"seeds": _SHOWN, "words": _SHOWN_WORDS}
    pasted: dict[str, Any] = {"seeds": _PASTES, "words": _PASTE_WORDS}
    drawn: dict[str, Any] = {"seeds": _DRAWN, "words": _DRAWN_WORDS}
    checks = (
        (pages.terminal, shown),
        (pages.paste, pasted),
        (pages.desktop, drawn),
        (pages.guarded_desktop, drawn),
    )
    # A case takes 0.1 s or 0.3 s, and a failing one as long as its timeout.
    return tuple(
        Target(name=name, check=check, turn=2, reductions=20, **more)
        for name, (check, more) in zip(PAGE_TARGETS, checks, strict=True)
    )
