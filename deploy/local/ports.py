"""Free ports of the loopback interface, each given once."""

from __future__ import annotations

import socket


class Ports:
    """Hands out ports by name, the same one for the same name."""

    def __init__(self) -> None:
        self._of: dict[str, int] = {}

    def __getitem__(self, name: str) -> int:
        return self._of[name] if name in self._of else self.take(name)

    def take(self, name: str, wanted: int = 0) -> int:
        """Give *name* the port *wanted*, or the next free one after it; for 0 any free one."""
        while True:
            port = _free_port(wanted)
            if port is not None and port not in self._of.values():
                self._of[name] = port
                return port
            wanted += 1 if wanted else 0


def _free_port(wanted: int) -> int | None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError:
            return None
        port: int = probe.getsockname()[1]
        return port
