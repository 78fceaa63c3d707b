"""Accepting: places, descriptors, and who is behind a proxy; on real sockets."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_network
from pathlib import Path

import pytest

from gateway.core.site import Site
from gateway.relay.flow import probe_after
from gateway.relay.limits import Limits
from gateway.relay.listening import Listener
from shared.listening import listen
from tests.gateway.core.test_proxy_header import header
from tests.gateway.relay.harness import (
    BASE,
    PORT,
    Peer,
    Rig,
    answer,
    code_of,
    request,
    rig,
    status_of,
)
from tests.gateway.relay.test_tls import connect

PROXY = "127.77.0.1"
BEHIND = Site(scheme="http", base=BASE, port=PORT, trusted_proxies=(ip_network("127.77.0.0/16"),))
QUICK = Limits(head_seconds=0.3, idle_seconds=0.6)


async def asked(r: Rig, browser: Peer, *fields: str) -> bytes:
    """Ask on a connection; return the head that the app got."""
    browser.send(request("/", *fields))
    app = await r.app.connection()
    head = await app.head()
    app.send(answer(b"ok", "Connection: close"))
    assert status_of((await browser.answer())[0]) == 200
    return head


async def test_connections_that_come_together_are_not_probed_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds: list[int] = []

    def noted(sock: socket.socket, after: int) -> None:
        probe_after(sock, after)
        seconds.append(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE))

    monkeypatch.setattr("gateway.relay.listening.probe_after", noted)
    async with rig() as r:
        for _ in range(5):
            await asked(r, await r.browser())
    assert len(set(seconds)) == 5
    assert all(40 <= one <= 80 for one in seconds)


# Places


async def test_strangers_from_one_address_are_limited_and_told_so() -> None:
    async with rig(limits=Limits(address_connections=3)) as r:
        waiting = [await r.browser("127.5.0.1") for _ in range(3)]
        await settled(r, strangers=3)
        late = await r.browser("127.5.0.1")
        head, body = await late.answer()
        assert status_of(head) == 429
        assert code_of(body) == "too_many_connections"
        assert b"\r\nRetry-After: " in head
        assert await late.rest() == b""
        assert b"\r\nX-Forwarded-For: 127.5.0.2" in await asked(r, await r.browser("127.5.0.2"))
        waiting[0].close()
        await settled(r, strangers=3)
        waiting[1].close()
        await settled(r, strangers=2)
        await asked(r, await r.browser("127.5.0.1"))


async def settled(r: Rig, *, strangers: int) -> None:
    async with asyncio.timeout(5):
        while r.path.places.strangers > strangers:
            await asyncio.sleep(0.005)
        while r.path.places.strangers < strangers:
            await asyncio.sleep(0.005)


async def test_who_has_a_credential_is_no_stranger_and_holds_no_strangers_place() -> None:
    async with rig(limits=Limits(address_connections=2)) as r:
        for _ in range(6):
            await asked(r, await r.browser())
            assert r.path.places.strangers == 0
        for number in range(6):
            status, _ = await r.ask(request("/", credential=None))
            assert status == 401, number
            await settled(r, strangers=0)


async def test_whose_right_has_ended_is_a_stranger_again() -> None:
    async with rig() as r:
        browser = await r.browser()
        browser.send(request())
        app = await r.app.connection()
        await app.head()
        app.send(answer())
        await browser.answer()
        assert r.path.places.strangers == 0
        r.world.revoke(sid="a" * 26)
        assert r.path.places.strangers == 1
        browser.close()
        await settled(r, strangers=0)


async def test_a_full_gateway_says_so() -> None:
    async with rig(limits=Limits(connections=2)) as r:
        first, second = await r.browser(), await r.browser()
        await settled(r, strangers=2)
        late = await r.browser()
        head, body = await late.answer()
        assert (status_of(head), code_of(body)) == (503, "gateway_full")
        assert b"\r\nRetry-After: " in head
        assert r.path.places.full
        first.close()
        second.close()
        await late.rest()
        late.close()
        await settled(r, strangers=0)
        await asked(r, await r.browser())


async def test_far_beyond_its_limit_an_address_is_not_even_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.core.places.REFUSED_MORE", 0)
    async with rig(limits=Limits(address_connections=1)) as r:
        await r.browser()
        await settled(r, strangers=1)
        late = await r.browser()
        assert await late.gone() == b""
        assert r.path.meters.dropped == 1
        assert r.path.places.strangers == 1


@pytest.mark.parametrize("limits", [Limits(session_connections=2), Limits(user_connections=2)])
async def test_connections_of_a_session_and_of_a_user_are_limited(limits: Limits) -> None:
    async with rig(limits=limits) as r:
        tunnels = [await r.tunnel(), await r.tunnel()]
        status, said = await r.ask(request())
        assert status == 429
        assert b"too_many_connections" in said
        assert r.app.count == 2
        tunnels[0][0].reset()
        async with asyncio.timeout(5):
            while len(r.live) > 1:
                await asyncio.sleep(0.005)
        await asked(r, await r.browser())


# Descriptors


async def test_accepting_pauses_while_descriptors_are_short_and_goes_on_then() -> None:
    used = socket.socket()
    ceiling = used.fileno() + 24
    used.close()
    async with rig(descriptors=ceiling + ceiling // 3) as r:
        held: list[socket.socket] = []
        try:
            # Both ends of a connection are this process': every one takes two.
            while not r.path.meters.accept_pauses:
                one = socket.create_connection(r.address)
                held.append(one)
                await asyncio.sleep(0.005)
                assert len(held) < 100
            waiting = await r.browser()
            waiting.send(request())
            await asyncio.sleep(0.3)
            assert r.app.count == 0
            assert r.path.meters.accept_pauses == 1
        finally:
            for one in held:
                one.close()
        app = await r.app.connection()
        await app.head()
        app.send(answer(b"late"))
        assert (await waiting.answer())[1] == b"late"


async def test_descriptors_that_are_gone_altogether_are_no_hot_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import errno
    import os

    async with rig() as r:
        tries = 0

        class Short:
            """The listening socket of a process that has no descriptor left."""

            def __init__(self, real: socket.socket) -> None:
                self.real = real

            def accept(self) -> None:
                nonlocal tries
                tries += 1
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        listening = r.listener.sockets[0]
        r.listener._accept(Short(listening))  # type: ignore[arg-type]
        assert r.path.meters.accept_pauses == 1
        assert tries == 1
        await asked(r, await r.browser())


# Proxies


@asynccontextmanager
async def proxied(limits: Limits | None = None) -> AsyncIterator[Rig]:
    async with rig(site=BEHIND, limits=limits) as r:
        yield r


@pytest.mark.parametrize("source", ["192.0.2.7", "2001:db8::7"])
async def test_a_proxy_header_says_who_the_client_is(source: str) -> None:
    async with proxied() as r:
        browser = await r.browser(PROXY)
        browser.send(header(source))
        head = await asked(r, browser, "X-Forwarded-For: 1.1.1.1")
        # The client is no proxy: what it says of itself is not believed.
        assert f"\r\nX-Forwarded-For: {source}\r\n".encode() in head


async def test_a_proxy_header_arrives_byte_by_byte_and_with_its_request() -> None:
    async with proxied() as r:
        browser = await r.browser(PROXY)
        raw = header(extra=b"\x04\x00\x02hi") + request()
        for byte in raw[:40]:
            browser.send(bytes((byte,)))
            await asyncio.sleep(0.001)
        browser.send(raw[40:])
        app = await r.app.connection()
        assert b"\r\nX-Forwarded-For: 192.0.2.7\r\n" in await app.head()


async def test_a_proxy_that_speaks_for_itself_is_itself() -> None:
    async with proxied() as r:
        browser = await r.browser(PROXY)
        browser.send(header(command=0x20))
        assert f"\r\nX-Forwarded-For: {PROXY}\r\n".encode() in await asked(r, browser)


async def test_a_proxy_that_speaks_http_is_heard_too() -> None:
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
async def test_a_proxy_header_that_is_not_understood_ends_the_connection(raw: bytes) -> None:
    async with proxied() as r:
        browser = await r.browser(PROXY)
        browser.send(raw + request())
        assert await browser.gone() == b""
        assert r.app.count == 0
        assert not r.path.fronts


async def test_nobody_else_may_say_whose_connection_it_is() -> None:
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
async def test_a_proxy_that_says_nothing_more_is_not_waited_for(begun: bytes) -> None:
    async with proxied(QUICK) as r:
        browser = await r.browser(PROXY)
        browser.send(begun)
        assert await browser.gone() == b""


async def test_limits_count_the_client_and_not_the_proxy() -> None:
    async with proxied(Limits(address_connections=2)) as r:
        for number in range(4):
            browser = await r.browser(PROXY)
            browser.send(header(f"2001:db8::{number}"))
        async with asyncio.timeout(5):
            while len(r.path.fronts) < 4:
                await asyncio.sleep(0.005)
        # All in one /64: two of them are strangers too many.
        assert r.path.meters.refusals["too_many_connections"] == 2
        browser = await r.browser(PROXY)
        browser.send(header("2001:db8:1::1"))
        await asked(r, browser)


async def test_connections_of_an_http_proxy_are_not_one_clients() -> None:
    async with proxied(Limits(address_connections=2)) as r:
        peers = [await r.browser(PROXY) for _ in range(5)]
        for peer in peers:
            peer.send(b"GET ")
        await settled(r, strangers=5)
        assert not r.path.meters.refusals


async def test_a_listener_that_closes_ends_those_that_said_nothing_yet() -> None:
    async with proxied() as r:
        browser = await r.browser(PROXY)
        await asyncio.sleep(0.05)
        r.listener.close()
        assert await browser.gone() == b""
        r.listener.close()


# TLS


@asynccontextmanager
async def secured(path: Path, *, limits: Limits | None = None) -> AsyncIterator[Rig]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    async with proxied(limits) as r:
        r.listener.close()
        r.listener = Listener(r.path, listen("127.0.0.1", 0), tls=lambda: context)
        try:
            yield r
        finally:
            r.listener.close()


async def test_a_proxy_header_stands_before_tls(certificate: Path) -> None:
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


async def test_a_handshake_that_comes_to_nothing_leaves_nothing(
    certificate: Path,
) -> None:
    async with secured(certificate, limits=QUICK) as r:
        for raw in (b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n"):
            browser = await r.browser()
            browser.send(raw)
            await browser.gone()
        assert r.path.places.strangers == 0
        assert not r.path.fronts
        assert r.path.meters.failed_arrivals == 3


async def test_a_handshake_holds_a_place(certificate: Path) -> None:
    async with secured(certificate, limits=Limits(address_connections=2, head_seconds=30.0)) as r:
        silent = [await r.browser("127.5.0.1") for _ in range(2)]
        await settled(r, strangers=2)
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        reader, writer = await asyncio.open_connection(
            *r.address, ssl=context, local_addr=("127.5.0.1", 0)
        )
        late = Peer(reader, writer)
        r.peers.append(late)
        assert status_of((await late.answer())[0]) == 429
        for one in silent:
            one.reset()
        late.close()
        await settled(r, strangers=0)


# Binding


async def test_both_families_are_served_at_once() -> None:
    async with rig() as r:
        both = Listener(r.path, listen("::", 0))
        try:
            for host in ("127.0.0.1", "::1"):
                reader, writer = await asyncio.open_connection(host, both.address[1])
                browser = Peer(reader, writer)
                r.peers.append(browser)
                told = f"\r\nX-Forwarded-For: {host}\r\n".encode()
                assert told in await asked(r, browser)
        finally:
            both.close()


def test_an_address_that_is_taken_is_an_error() -> None:
    with listen("127.0.0.1", 0)[0] as taken, pytest.raises(OSError, match="in use"):
        listen(*taken.getsockname())
