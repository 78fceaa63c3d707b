"""Runs a real Xvnc, and an X client on its display that records the input of viewers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from Xlib import X, Xatom, display
from Xlib.protocol import event as x_event

from deploy.local.apps.x11 import Xvnc, start_xvnc
from deploy.local.apps.x11 import xvnc as find_xvnc
from deploy.local.ports import Ports

PORTS: Final = Ports()
WAIT_SECONDS: Final = 30


@asynccontextmanager
async def xvnc(*options: str) -> AsyncIterator[Xvnc]:
    """Run an Xvnc of 640 by 480 pixels."""
    program = find_xvnc()
    assert program is not None
    size = ("-geometry", "640x480", "-depth", "24")
    server = await start_xvnc(program, PORTS.take(), *size, *options)
    try:
        yield server
    finally:
        if server.process.returncode is None:
            server.process.kill()
        await server.process.wait()


class Screen:
    """A focused window over the whole display that records events, with a clipboard."""

    def __init__(self, connection: display.Display) -> None:
        self._display: Any = connection
        self.root = self._display.screen().root
        mask = X.KeyPressMask | X.ButtonPressMask | X.PointerMotionMask
        self._window = self.root.create_window(
            0, 0, 4000, 4000, 0, self._display.screen().root_depth,
            event_mask=mask, override_redirect=1, background_pixel=0x336699,
        )  # fmt: skip
        self._window.map()
        self._window.set_input_focus(X.RevertToParent, X.CurrentTime)
        self._names = {
            name: self._display.intern_atom(name)
            for name in ("CLIPBOARD", "UTF8_STRING", "TARGETS", "FETCHED")
        }
        self._text: bytes | None = None
        self._fetched: Any = None
        self.typed = ""
        self.seen: list[int] = []
        """Types of all events that viewers caused."""
        self._display.sync()

    @property
    def size(self) -> tuple[int, int]:
        """The current size of the display."""
        geometry = self.root.get_geometry()
        return geometry.width, geometry.height

    @property
    def clipboard_is_empty(self) -> bool:
        """Whether the clipboard has no owner."""
        return bool(self._display.get_selection_owner(self._names["CLIPBOARD"]) == X.NONE)

    def paint(self, colour: int) -> None:
        """Fill the window with one colour."""
        self._window.change_attributes(background_pixel=colour)
        self._window.clear_area()
        self._display.sync()

    def own_clipboard(self, text: str) -> None:
        """Put *text* on the clipboard, as a program does."""
        self._text = text.encode()
        self._window.set_selection_owner(self._names["CLIPBOARD"], X.CurrentTime)
        self._display.flush()

    async def clipboard(self) -> str:
        """Return the clipboard's text, as a program gets it."""
        self._fetched = None
        names = self._names
        self._window.convert_selection(
            names["CLIPBOARD"], names["UTF8_STRING"], names["FETCHED"], X.CurrentTime
        )
        await self.until(lambda: self._fetched is not None)
        if self._fetched.property == X.NONE:
            return ""
        held = self._window.get_full_property(names["FETCHED"], X.AnyPropertyType)
        return bytes(held.value).decode()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Process events until *condition* holds."""
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                self.take()
                if condition():
                    return
                await asyncio.sleep(0.02)

    def take(self) -> None:
        """Process the events that have arrived."""
        while self._display.pending_events():
            event = self._display.next_event()
            if event.type == X.SelectionNotify:
                self._fetched = event
            elif event.type == X.SelectionRequest:
                self._give(event)
            elif event.type == X.MappingNotify:
                self._display.refresh_keyboard_mapping(event)
            else:
                self._note(event)

    def _note(self, event: Any) -> None:
        if event.type in (X.KeyPress, X.ButtonPress, X.MotionNotify):
            self.seen.append(event.type)
        if event.type == X.KeyPress:
            self.typed += chr(self._display.keycode_to_keysym(event.detail, 0) & 0xFF)

    def _give(self, event: Any) -> None:
        names, asked = self._names, event.property or event.target
        if event.target == names["TARGETS"]:
            targets = [names["TARGETS"], names["UTF8_STRING"]]
            event.requestor.change_property(asked, Xatom.ATOM, 32, targets)
        elif event.target == names["UTF8_STRING"] and self._text is not None:
            event.requestor.change_property(asked, names["UTF8_STRING"], 8, self._text)
        else:
            asked = X.NONE
        response = x_event.SelectionNotify(
            time=event.time,
            requestor=event.requestor,
            selection=event.selection,
            target=event.target,
            property=asked,
        )
        event.requestor.send_event(response)
        self._display.flush()

    def close(self) -> None:
        """Close the connection to the display."""
        self._display.close()


@asynccontextmanager
async def screen_of(server: Xvnc) -> AsyncIterator[Screen]:
    """Return a client on the display of *server*."""
    screen = Screen(await server.connect())
    try:
        yield screen
    finally:
        screen.close()
