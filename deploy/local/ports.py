"""Finds free ports of the loopback interface. Each is given out once on this machine.

A port is found here, and another process binds it a moment later. Two things must not take the port
in between:

- A connection. So no port is used that the kernel gives to connections (on Linux from 32768 on).
- A second system that starts at the same time. So the owner of a TCP port holds the UDP port of the
  same number. The kernel releases it when that process ends, however it ends.
"""

from __future__ import annotations

import secrets
import socket
import weakref
from contextlib import ExitStack
from typing import Final

LOOPBACK: Final = "127.0.0.1"
ANY: Final = range(16384, 32768)


class Ports:
    """Gives out ports by name: always the same port for the same name. Its ports stay reserved."""

    def __init__(self) -> None:
        self._of: dict[str, int] = {}
        self._held = ExitStack()
        weakref.finalize(self, self._held.close)

    def __getitem__(self, name: str) -> int:
        return self._of[name] if name in self._of else self.take(name)

    def take(self, name: str = "", wanted: int = 0) -> int:
        """Reserve the port *wanted*, the next free one after it, or any; *name* has it from now on.

        Without a name only the caller knows the port.
        """
        port = wanted or secrets.choice(ANY)
        while not self._hold(port):
            port = port + 1 if wanted else secrets.choice(ANY)
        if name:
            self._of[name] = port
        return port

    def _hold(self, port: int) -> bool:
        """Reserve *port*; return whether it was free."""
        held = socket.socket(type=socket.SOCK_DGRAM)
        try:
            held.bind((LOOPBACK, port))
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((LOOPBACK, port))
        except OSError:
            held.close()
            return False
        self._held.enter_context(held)
        return True
