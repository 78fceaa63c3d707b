"""The browser's end of a WebSocket, by a library that the product does not use here."""

from __future__ import annotations

from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from tests.gateway.process import GatewayProcess


def open_socket(
    gateway: GatewayProcess,
    sid: str,
    *,
    cookie: str,
    protocol: str,
    path: str = "/.fumarole/connect",
    **options: Any,
) -> connect:
    """Return a connection to *sid* as its own page makes it; enter or await it."""
    host, port = gateway.public
    return connect(
        f"ws://{gateway.host(sid)}{path}",
        host=host,
        port=port,
        origin=gateway.origin(sid),  # type: ignore[arg-type]  # a NewType of str
        subprotocols=[protocol],  # type: ignore[list-item]  # likewise
        additional_headers={"Cookie": cookie},
        compression=None,
        proxy=None,
        **options,
    )


__all__ = ["ClientConnection", "open_socket"]
