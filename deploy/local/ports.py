"""Free ports of the loopback interface, each given once.

A port is found here and taken a moment later, by another process. In between it must not become
some connection's own end, so none is of those that the kernel gives to connections (on Linux
from 32768 on).
"""

from __future__ import annotations

import secrets
import socket
from typing import Final

ANY: Final = range(16384, 32768)


class Ports:
    """Hands out ports by name, the same one for the same name."""

    def __init__(self) -> None:
        self._of: dict[str, int] = {}

    def __getitem__(self, name: str) -> int:
        return self._of[name] if name in self._of else self.take(name)

    def take(self, name: str, wanted: int = 0) -> int:
        """Give *name* the port *wanted*, or the next free one after it; for 0 any free one."""
        port = wanted or secrets.choice(ANY)
        while port in self._of.values() or not _is_free(port):
            port = port + 1 if wanted else secrets.choice(ANY)
        self._of[name] = port
        return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
