"""Apps behind TLS: a close-delimited response is complete only after a close_notify."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
import uvloop

from gateway.relay.dial import make_upstream_tls
from tests.gateway.relay.authorities import Authority, server_context
from tests.gateway.relay.conftest import TlsSizes
from tests.gateway.relay.harness import SWITCH, Peer, Rig, request, rig, status_of, upgrade
from tests.gateway.upstreams import listening_on

HEAD = b"HTTP/1.1 200 OK\r\n\r\n"
LARGE = bytes(range(256)) * 8000


@dataclass
class Records:
    """Manual TLS, so that a connection can end without its close_notify."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    tls: ssl.SSLObject
    incoming: ssl.MemoryBIO
    outgoing: ssl.MemoryBIO

    async def flush(self) -> None:
        self.writer.write(self.outgoing.read())
        await self.writer.drain()

    async def shake_hands(self) -> None:
        while True:
            try:
                self.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await self.flush()
                self.incoming.write(await self.reader.read(65536))
        await self.flush()

    async def head(self) -> bytes:
        data = b""
        while b"\r\n\r\n" not in data:
            try:
                data += self.tls.read(65536)
            except ssl.SSLWantReadError:
                self.incoming.write(await self.reader.read(65536))
        return data

    async def send(self, data: bytes) -> None:
        self.tls.write(data)
        await self.flush()

    async def say_the_end(self) -> None:
        try:
            self.tls.unwrap()
        except ssl.SSLWantReadError:
            await self.flush()


@dataclass(frozen=True)
class Cut:
    """How an app closes after what it has *sent*."""

    sent: bytes
    says_so: bool


@asynccontextmanager
async def secured_app(authority: Authority, cut: Cut) -> AsyncIterator[Rig]:
    """Run a data path in front of an app that sends, and closes its socket."""
    context = server_context(authority.vouch("localhost"))

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing, server_side=True)
        records = Records(reader, writer, tls, incoming, outgoing)
        await records.shake_hands()
        await records.head()
        await records.send(cut.sent)
        if cut.says_so:
            await records.say_the_end()
        writer.write_eof()
        await reader.read()

    async with listening_on(handle) as port:
        to = {"target": {"scheme": "https", "host": "localhost", "port": port}}
        async with rig(route_changes=to, trust=make_upstream_tls(authority.path)) as r:
            yield r


async def outcome(browser: Peer) -> tuple[bytes, bool]:
    """Return the bytes received, and whether the connection was reset."""
    data = b""
    try:
        async with asyncio.timeout(30):
            while piece := await browser.reader.read(65536):
                data += piece
    except ConnectionResetError:
        return data, True
    return data, False


@pytest.mark.parametrize("body", [b"", b"until the end", LARGE], ids=["empty", "short", "large"])
async def test_a_tls_response_without_length_is_complete_after_close_notify(
    authority: Authority, body: bytes
) -> None:
    async with secured_app(authority, Cut(HEAD + body, says_so=True)) as r:
        browser = await r.browser()
        browser.send(request())
        head, _, rest = (got := await outcome(browser))[0].partition(b"\r\n\r\n")
        assert (status_of(head), rest, got[1]) == (200, body, False)


@pytest.mark.parametrize("body", [b"", b"until the end", LARGE], ids=["empty", "short", "large"])
async def test_a_tls_response_without_length_is_truncated_without_close_notify(
    authority: Authority, body: bytes
) -> None:
    """RFC 9112, section 9.8: any party on the path can end the TCP connection below TLS.

    The TLS of asyncio's own loop, which no gateway runs on, reports both ends alike.
    """
    is_uvloop = isinstance(asyncio.get_running_loop(), uvloop.Loop)
    async with secured_app(authority, Cut(HEAD + body, says_so=False)) as r:
        browser = await r.browser()
        browser.send(request())
        assert (await outcome(browser))[1] is is_uvloop


@pytest.mark.parametrize("says_so", [True, False])
async def test_a_tls_response_with_length_is_complete_without_close_notify(
    authority: Authority, says_so: bool
) -> None:
    sent = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"
    async with secured_app(authority, Cut(sent, says_so=says_so)) as r:
        browser = await r.browser()
        browser.send(request())
        head, body = await browser.answer()
        assert (status_of(head), body) == (200, b"hello")


@pytest.mark.parametrize("framing", [b"", b"Content-Length: %d\r\n" % (4 * len(LARGE))])
async def test_a_slow_client_receives_all_bytes_sent_before_the_app_closed(
    authority: Authority, framing: bytes
) -> None:
    sent = b"HTTP/1.1 200 OK\r\nConnection: close\r\n%b\r\n" % framing + 4 * LARGE
    async with secured_app(authority, Cut(sent, says_so=True)) as r:
        browser = Peer(*await asyncio.open_connection(*r.address))
        r.peers.append(browser)
        browser.send(request("/", "Connection: close"))
        await asyncio.sleep(0.2)
        head, body = await browser.head(), b""
        while piece := await browser.reader.read(65536):
            body += piece
            await asyncio.sleep(0.001)
        assert (status_of(head), len(body), body == 4 * LARGE) == (200, 4 * len(LARGE), True)


async def test_little_is_encrypted_at_once_for_the_app_of_a_websocket(
    authority: Authority, tls_sizes: TlsSizes
) -> None:
    """A read from a socket without TLS can have 250 KB, and OpenSSL's buffers never shrink."""
    frame = b"\x82\xff" + (100_000).to_bytes(8, "big") + bytes(100_004)
    received = asyncio.get_running_loop().create_future()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(SWITCH)
        received.set_result(await reader.readexactly(20 * len(frame)) == 20 * frame)
        writer.close()

    context = server_context(authority.vouch("localhost"))
    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        to = {"target": {"scheme": "https", "host": "localhost", "port": port}}
        async with rig(route_changes=to, trust=make_upstream_tls(authority.path)) as r:
            browser = await r.browser()
            browser.send(upgrade())
            assert status_of(await browser.head()) == 101
            browser.send(20 * frame)
            assert await asyncio.wait_for(received, 10)
            browser.close()
    assert max(tls_sizes.written) < (1 << 15) + 4096
