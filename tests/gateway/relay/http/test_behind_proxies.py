"""Clients behind trusted proxies: by PROXY, by X-Forwarded-For, with TLS and without."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path

import pytest

from gateway.core.limits.values import Limits
from tests.gateway.core.limits.test_proxy_header import header
from tests.gateway.relay.arriving import PROXY, QUICK, asked, proxied, secured, settled
from tests.gateway.relay.harness import (
    Peer,
    request,
    rig,
    status_of,
)
from tests.gateway.relay.test_tls import connect


@pytest.mark.parametrize("source", ["192.0.2.7", "2001:db8::7"])
async def test_a_proxy_header_names_the_client_address(source: str) -> None:
    async with proxied() as r:
        browser = await r.browser(PROXY)
        browser.send(header(source))
        head = await asked(r, browser, "X-Forwarded-For: 1.1.1.1")
        # The client is no proxy: what it says of itself is not believed.
        assert f"\r\nX-Forwarded-For: {source}\r\n".encode() in head


async def test_a_proxy_header_is_read_in_any_split() -> None:
    async with proxied() as r:
        browser = await r.browser(PROXY)
        raw = header(extra=b"\x04\x00\x02hi") + request()
        for byte in raw[:40]:
            browser.send(bytes((byte,)))
            await asyncio.sleep(0.001)
        browser.send(raw[40:])
        app = await r.app.connection()
        assert b"\r\nX-Forwarded-For: 192.0.2.7\r\n" in await app.head()


async def test_a_local_proxy_command_keeps_the_proxys_address() -> None:
    async with proxied() as r:
        browser = await r.browser(PROXY)
        browser.send(header(command=0x20))
        assert f"\r\nX-Forwarded-For: {PROXY}\r\n".encode() in await asked(r, browser)


async def test_x_forwarded_for_of_a_trusted_proxy_is_used() -> None:
    async with proxied() as r:
        head = await asked(r, await r.browser(PROXY), "X-Forwarded-For: 6.6.6.6, 9.9.9.9")
        assert b"\r\nX-Forwarded-For: 9.9.9.9\r\n" in head


async def test_a_chain_of_proxies_is_followed() -> None:
    async with proxied() as r:
        browser = await r.browser(PROXY)
        browser.send(header("127.77.0.9"))
        head = await asked(r, browser, "X-Forwarded-For: 6.6.6.6, 9.9.9.9, 127.77.3.3")
        assert b"\r\nX-Forwarded-For: 9.9.9.9\r\n" in head


@pytest.mark.parametrize(
    "raw",
    [
        b"\r\n\r\n\x00\r\nQUIX\n" + header()[12:],
        header(command=0x11),
        header(command=0x22),
        header(family=0x00),
        header(family=0x12),
        header(family=0x31),
        header(length=4),
        header(length=0xFFFF),
    ],
)
async def test_a_malformed_proxy_header_ends_the_connection(raw: bytes) -> None:
    async with proxied() as r:
        browser = await r.browser(PROXY)
        browser.send(raw + request())
        assert await browser.gone() == b""
        assert r.app.count == 0
        assert not r.connections


async def test_a_proxy_header_of_an_untrusted_address_is_refused() -> None:
    async with proxied() as r:
        for source in ("127.78.0.1", None):
            browser = await r.browser(source)
            browser.send(header() + request())
            assert status_of((await browser.answer())[0]) == 400
        assert r.app.count == 0
    async with rig() as r:
        browser = await r.browser(PROXY)
        browser.send(header() + request())
        assert status_of((await browser.answer())[0]) == 400


@pytest.mark.parametrize("begun", [b"", header()[:1], header()[:15], header()[:20]])
async def test_a_proxy_that_stalls_is_disconnected(begun: bytes) -> None:
    async with proxied(QUICK) as r:
        browser = await r.browser(PROXY)
        browser.send(begun)
        assert await browser.gone() == b""


async def test_limits_apply_to_the_client_and_not_the_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.core.limits.connection_quota.MIN_IDLE_SECONDS", 60.0)
    async with proxied(Limits(address_connections=2)) as r:
        for number in range(4):
            browser = await r.browser(PROXY)
            browser.send(header(f"2001:db8::{number}"))
        async with asyncio.timeout(5):
            while len(r.connections) < 4:
                await asyncio.sleep(0.005)
        # All in one /64: two of them are strangers too many.
        assert r.path.meters.refusals["too_many_connections"] == 2
        browser = await r.browser(PROXY)
        browser.send(header("2001:db8:1::1"))
        await asked(r, browser)


async def test_connections_of_an_http_proxy_are_not_counted_as_one_client() -> None:
    async with proxied(Limits(address_connections=2)) as r:
        peers = [await r.browser(PROXY) for _ in range(5)]
        for peer in peers:
            peer.send(b"GET ")
        await settled(r, unauthenticated=5)
        assert not r.path.meters.refusals


async def test_a_proxy_header_precedes_tls(certificate: Path) -> None:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    async with secured(certificate) as r:
        loop = asyncio.get_running_loop()
        sock = socket.socket()
        sock.bind((PROXY, 0))
        sock.setblocking(False)
        await loop.sock_connect(sock, r.address)
        await loop.sock_sendall(sock, header())
        reader, writer = await asyncio.open_connection(
            sock=sock, ssl=context, server_hostname="localhost"
        )
        browser = Peer(reader, writer)
        r.peers.append(browser)
        assert b"\r\nX-Forwarded-For: 192.0.2.7\r\n" in await asked(r, browser)
        # And without one: the proxy ends TLS and begins it anew.
        assert b"\r\nX-Forwarded-For: 127.0.0.1\r\n" in await asked(r, await connect(r, r.address))
