"""Desktops that speak WebSocket over TLS: all their bytes arrive, however they close."""

from __future__ import annotations

import asyncio

import pytest
from websockets.utils import accept_key

from gateway.relay.dial import make_upstream_tls
from tests.gateway.relay.authorities import Authority, server_context
from tests.gateway.relay.bridge.desktops import ASK, SWITCH, desktops
from tests.gateway.relay.harness import status_of
from tests.waiting import until

PIECES = 20_000
"""As many messages as no turn of the loop understands, in what TLS gives in one piece."""


@pytest.mark.parametrize("goodbye", [b"", b"\x88\x02\x03\xe8"], ids=["no-close", "close"])
async def test_the_last_output_of_a_tls_desktop_arrives_before_its_end(
    authority: Authority, goodbye: bytes
) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        key = head.partition(b"Sec-WebSocket-Key: ")[2].partition(b"\r\n")[0].decode()
        burst = b"\x82\x01x" * PIECES + b"\x82\x04last" + goodbye
        writer.write(SWITCH % accept_key(key).encode() + burst)
        writer.close()

    context = server_context(authority.vouch("localhost"))
    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        to = {"scheme": "wss", "host": "localhost", "port": port}
        async with desktops(target=to, trust=make_upstream_tls(authority.path)) as r:
            browser = await r.browser()
            browser.send(ASK)
            assert status_of(await browser.head()) == 101
            found = await asyncio.wait_for(browser.reader.readuntil(b"last"), 10)
            assert found == b"\x82\x01x" * PIECES + b"\x82\x04last"
            close = await browser.exactly(4)
            assert close[2:] == (1000 if goodbye else 1012).to_bytes(2, "big")
            browser.reset()
            await until(lambda: not len(r.live))
