"""A painting as the only window of an X display, and Xvnc that shows the display over RFB."""

from __future__ import annotations

import asyncio
import os
import shutil
from typing import Any, Final

from Xlib import X, display
from Xlib.error import DisplayError

from deploy.local.apps.painting import HEIGHT, WHOLE, WIDTH, Box, Painting

START_SECONDS: Final = 10.0


def xvnc() -> str | None:
    """Return the path of Xvnc, if it is installed."""
    return shutil.which("Xvnc")


def display_of(port: int) -> int:
    """Return the display's number: its own for each port, where jobs share a network."""
    return port % 1000 + 1


async def start_xvnc(program: str, port: int, name: str) -> asyncio.subprocess.Process:
    """Start Xvnc on *port*, its display reachable by TCP on this host only.

    Sockets and locks in a shared ``/tmp`` would be in the way of other jobs, so there are none.
    """
    alone = ["-nolock"] if os.getuid() == 0 else []
    return await asyncio.create_subprocess_exec(
        program, f":{display_of(port)}", "-geometry", f"{WIDTH}x{HEIGHT}", "-depth", "24",
        "-rfbport", str(port), "-SecurityTypes", "None", "-AlwaysShared", "-desktop", name,
        # A kubelet's probes connect and say nothing; they must not shut everybody out.
        "-UseBlacklist=0",
        # The painting has one size: browsers scale it to theirs.
        "-AcceptSetDesktopSize=0",
        "-listen", "tcp", "-nolisten", "unix", "-nolisten", "local", "-ac", *alone,
    )  # fmt: skip


async def open_display(port: int) -> display.Display:
    """Return a connection to the display of *port* as soon as it answers.

    Raises:
        TimeoutError: If it does not within ten seconds.
    """
    name = f"127.0.0.1:{display_of(port)}"
    async with asyncio.timeout(START_SECONDS):
        while True:
            try:
                return await asyncio.to_thread(display.Display, name)
            except (DisplayError, OSError):
                await asyncio.sleep(0.05)


class Window:
    """The painting over the whole screen; :meth:`run` shows it and takes pointer and keys."""

    def __init__(self, painting: Painting, connection: display.Display) -> None:
        self._painting = painting
        self._display: Any = connection
        screen = self._display.screen()
        events = X.ExposureMask | X.ButtonPressMask | X.ButtonReleaseMask
        events |= X.Button1MotionMask | X.KeyPressMask
        self._window = screen.root.create_window(
            0, 0, WIDTH, HEIGHT, 0, screen.root_depth, event_mask=events
        )
        self._context = self._window.create_gc()
        self._window.map()
        # There is no window manager, and keys go where the focus is.
        self._window.set_input_focus(X.RevertToParent, X.CurrentTime)
        self._news = asyncio.Event()
        self._send()

    async def run(self) -> None:
        """Follow the display's events until it goes away."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._display.fileno(), self._news.set)
        try:
            while True:
                self._news.clear()
                while self._display.pending_events():
                    self._take(self._display.next_event())
                await self._news.wait()
        finally:
            loop.remove_reader(self._display.fileno())

    def _take(self, event: Any) -> None:
        if event.type == X.Expose:
            self.changed(WHOLE)
        elif event.type in (X.ButtonPress, X.MotionNotify):
            self.changed(self._painting.press(event.event_x, event.event_y))
        elif event.type == X.ButtonRelease:
            self._painting.release()
        elif event.type == X.KeyPress:
            shifted = 1 if event.state & (X.ShiftMask | X.LockMask) else 0
            box = self._painting.key(self._display.keycode_to_keysym(event.detail, shifted))
            if box is not None:
                self.changed(box)

    def changed(self, box: Box) -> None:
        """Show *box* again."""
        part = self._painting.image.crop((box.left, box.top, box.right, box.bottom))
        self._window.put_pil_image(self._context, box.left, box.top, part)
        self._send()

    def _send(self) -> None:
        self._display.flush()
        # Sending also reads, and what was read no longer makes the socket readable.
        self._news.set()
