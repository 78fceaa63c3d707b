"""A data path that terminates TLS."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gateway.core.limits.values import Limits
from gateway.relay.listening import Listener
from shared.runtime.listeners import listen
from tests.gateway.relay.harness import Rig, rig


@asynccontextmanager
async def secured(
    certificate: Path, *, send_buffer: int | None = None, limits: Limits | None = None
) -> AsyncIterator[tuple[Rig, tuple[str, int]]]:
    """Run one with *certificate*; give it and its address.

    Args:
        certificate: A file with a key and its certificate.
        send_buffer: Bytes of its sockets' buffers towards browsers.
        limits: None for the usual ones.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    sockets = listen("127.0.0.1", 0)
    if send_buffer is not None:
        for sock in sockets:  # connections inherit it
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    async with rig(limits=limits) as r:
        listener = Listener(r.path, sockets, tls=lambda: context)
        try:
            yield r, listener.address
        finally:
            listener.close()
