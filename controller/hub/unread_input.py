"""Has an interrupt (Ctrl+C) reach a program that does not read the input before it.

A terminal holds some 4 KiB of unread input. Behind it, a large paste fills every buffer up to the
hub, and an interrupt waits with it: the kernel notices INTR, QUIT and SUSP only once there is room
(``n_tty_receive_buf`` of Linux). ``pods/exec`` has no urgent data either. So the input is read by a
second command in the container, and thrown away, as the kernel does at an interrupt.
"""

from __future__ import annotations

import asyncio
from typing import Final

from controller.kube.exec import TerminalStream

UNREAD_BYTES: Final = 4000
"""Input that came at once and is longer may fill a terminal (4,095 bytes with Linux)."""
AT_ONCE_SECONDS: Final = 1.0
PATIENCE_SECONDS: Final = 0.5
"""An interrupt without effect for so long is behind input that is not read."""
TRIES: Final = 5


class UnreadInput:
    """The input of a shell, which an interrupt passes; for :meth:`send`, one caller at a time.

    Args:
        stream: The shell's stream.
    """

    def __init__(self, stream: TerminalStream) -> None:
        self._stream = stream
        # The interrupt whose effect is awaited; empty for none.
        self._key = b""
        self._is_sent = self._was_echoed = self._is_taking = False
        self._pressed = asyncio.Event()
        # Clear while what comes after the interrupt has to wait, since it would be taken too.
        self._may_send = asyncio.Event()
        self._may_send.set()
        self._at_once, self._last = 0, 0.0
        self._may_be_full = False
        self._sending_since: float | None = None

    def press(self, key: bytes) -> None:
        """Note that a client has sent the interrupt *key*, which may wait to be sent."""
        if not self._key:
            self._key, self._is_sent, self._was_echoed = key, False, False
            self._pressed.set()

    async def send(self, data: bytes) -> None:
        """Send *data*; returns when more may be sent."""
        if self._key and data == self._key:
            self._is_sent = True
            if self._may_be_full:
                self._may_send.clear()
        elif self._is_sent:
            await self._may_send.wait()
        now = asyncio.get_running_loop().time()
        self._at_once = len(data) + (self._at_once if now - self._last < AT_ONCE_SECONDS else 0)
        self._may_be_full = self._may_be_full or self._at_once >= UNREAD_BYTES
        self._last = self._sending_since = now
        try:
            await self._stream.send(data)
        finally:
            self._sending_since = None

    def heard(self, output: bytes) -> None:
        """Note the shell's *output*: a terminal or shell that has an interrupt shows ``^C``."""
        if self._key and b"^%c" % (self._key[0] ^ 0x40) in output:
            self._was_echoed, self._may_be_full = True, False
            if not self._is_taking:
                self._may_send.set()

    async def run(self) -> None:
        """Take unread input back whenever an interrupt has no effect, until cancelled."""
        while True:
            await self._pressed.wait()
            self._pressed.clear()
            while self._key:
                await asyncio.sleep(PATIENCE_SECONDS)
                if self._waits():
                    await self._take_back(self._key)
                if self._is_sent or self._is_idle():
                    self._key = b""
                    self._may_send.set()

    def _waits(self) -> bool:
        if self._is_sent:
            return self._may_be_full and not self._was_echoed
        now, since = asyncio.get_running_loop().time(), self._sending_since
        return since is not None and now - since >= PATIENCE_SECONDS

    def _is_idle(self) -> bool:
        """Return whether nothing is sent any more, as after the client has left."""
        now = asyncio.get_running_loop().time()
        return self._sending_since is None and now - self._last >= PATIENCE_SECONDS

    async def _take_back(self, key: bytes) -> None:
        self._is_taking = True
        self._may_send.clear()
        taken = b""
        for _ in range(TRIES):
            taken += (more := await self._stream.take_back())
            if len(more) < UNREAD_BYTES or key in more or self._was_echoed:
                break  # else the network has only paused
        self._is_taking = False
        if self._is_sent:  # else what waits here before it is sent first
            self._may_be_full = False
            if not self._was_echoed and (rest := _not_before(key, taken)):
                await self._stream.send(rest)


def _not_before(key: bytes, taken: bytes) -> bytes:
    """Return what to give back of the input that was *taken*, for which *key* is no signal.

    A program that was only slow, and had less than fills a terminal, gets all of it.
    """
    if len(taken) < UNREAD_BYTES:
        return taken
    found = taken.rfind(key)
    return taken[found:] if found >= 0 else b""
