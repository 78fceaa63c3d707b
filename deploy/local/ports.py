"""Free ports of the loopback interface, each given once on this machine.

A port is found here and taken a moment later, by another process. In between it must not become
some connection's own end, so none is of those that the kernel gives to connections (on Linux
from 32768 on). Nor must a second system that starts at the same time find it free: who was given
a TCP port holds the UDP port of the same number, which ends with its process, however that ends.
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
    """Hands out ports by name, the same one for the same name; they are ours while it lives."""

    def __init__(self) -> None:
        self._of: dict[str, int] = {}
        self._held = ExitStack()
        weakref.finalize(self, self._held.close)

    def __getitem__(self, name: str) -> int:
        return self._of[name] if name in self._of else self.take(name)

    def take(self, name: str = "", wanted: int = 0) -> int:
        """Give the port *wanted*, or the next free one after it, or any; *name* has it from now on.

        Without a name the caller alone knows it.
        """
        port = wanted or secrets.choice(ANY)
        while not self._hold(port):
            port = port + 1 if wanted else secrets.choice(ANY)
        if name:
            self._of[name] = port
        return port

    def _hold(self, port: int) -> bool:
        """Say whether *port* is nobody's; then it is ours."""
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
