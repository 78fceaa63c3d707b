"""Shows a painting as the only window of an X display, and runs Xvnc, which serves it over RFB."""

from __future__ import annotations

import asyncio
import os
import shutil
from dataclasses import dataclass
from typing import IO, Any, Final

from Xlib import X, display

from deploy.local.apps.painting import HEIGHT, WHOLE, WIDTH, Box, Painting

START_SECONDS: Final = 60.0


def xvnc() -> str | None:
    """Return the path of Xvnc if it is installed."""
    return shutil.which("Xvnc")


@dataclass(frozen=True, slots=True)
class Xvnc:
    """A running Xvnc, on a display of its own."""

    process: asyncio.subprocess.Process
    port: int
    number: int

    async def connect(self) -> display.Display:
        """Return a new connection to the display.

        Raises:
            DisplayError, OSError: If Xvnc has ended.
        """
        return await asyncio.to_thread(display.Display, f"127.0.0.1:{self.number}")


async def start_xvnc(program: str, port: int, *options: str) -> Xvnc:
    """Start Xvnc on *port*; return once it serves the port and its display.

    The display is reached by TCP. Sockets and locks in a shared ``/tmp`` would collide with other
    jobs, so there are none. Xvnc itself reports which display was free (``-displayfd``). With IPv6
    it would choose a number whose IPv4 port another process holds.

    Raises:
        TimeoutError: If it is not ready within a minute. It has been ended then.
        OSError: If it ends instead.
    """
    alone = ["-nolock"] if os.getuid() == 0 else []
    reading, writing = os.pipe()
    told = os.fdopen(reading, "rb")
    try:
        process = await asyncio.create_subprocess_exec(
            program, "-displayfd", str(writing), "-rfbport", str(port), "-AlwaysShared",
            # A kubelet's probes connect and send nothing. They must not lock out other clients.
            "-UseBlacklist=0",
            "-listen", "tcp", "-nolisten", "inet6", "-nolisten", "unix", "-nolisten", "local",
            "-ac", *alone, *options, pass_fds=(writing,),
        )  # fmt: skip
    except BaseException:
        told.close()
        raise
    finally:
        os.close(writing)
    try:
        async with asyncio.timeout(START_SECONDS):
            number = await _read_line(told)
    except BaseException:
        process.kill()
        await process.wait()
        raise
    if not number:
        raise OSError(f"Xvnc ended: {await process.wait()}")
    return Xvnc(process, port, int(number))


async def _read_line(pipe: IO[bytes]) -> bytes:
    """Return the first line, and leave *pipe* to the loop: uvloop closes its descriptor itself."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    try:
        return await reader.readline()
    finally:
        transport.close()


class Window:
    """The painting over the whole screen. :meth:`run` shows it and accepts pointer and keys."""

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
        # There is no window manager, and keys go to the window with the focus.
        self._window.set_input_focus(X.RevertToParent, X.CurrentTime)
        self._news = asyncio.Event()
        self._send()

    async def run(self) -> None:
        """Follow the display's events until the display closes."""
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
        # Sending also reads. Events read that way no longer make the socket readable.
        self._news.set()
