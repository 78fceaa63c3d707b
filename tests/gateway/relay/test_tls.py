"""TLS terminated by the gateway: no half-close, and close codes and responses still arrive."""

from __future__ import annotations

import asyncio
import gc
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop

from gateway.core.frames import close_frame
from gateway.relay.tls_records import READ_BYTES, TlsRecords
from tests.gateway.relay.conftest import TlsSizes
from tests.gateway.relay.harness import (
    ORIGIN,
    SID,
    SWITCH,
    Peer,
    Rig,
    answer,
    request,
    status_of,
    upgrade,
)
from tests.gateway.relay.secured import secured

LARGE = bytes(range(256)) * 8000


async def connect(r: Rig, address: tuple[str, int]) -> Peer:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(*address, ssl=context)
    peer = Peer(reader, writer)
    r.peers.append(peer)
    return peer


async def test_responses_without_length_are_relayed_over_tls(certificate: Path) -> None:
    async with secured(certificate) as (r, address):
        browser = await connect(r, address)
        browser.send(request("/1"))
        app = await r.app.connection()
        await app.head()
        app.send(answer(b"one"))
        assert (await browser.answer())[1] == b"one"
        browser.send(request("/2"))
        await app.head()
        app.send(b"HTTP/1.1 200 OK\r\n\r\nuntil the end")
        app.close()
        assert (await browser.rest()).endswith(b"until the end")


async def test_a_tunnel_ends_with_its_code(certificate: Path) -> None:
    async with secured(certificate) as (r, address):
        browser = await connect(r, address)
        browser.send(upgrade())
        app = await r.app.connection()
        await app.head()
        app.send(SWITCH + b"\x82\x02hi")
        assert status_of(await browser.head()) == 101
        assert await browser.exactly(4) == b"\x82\x02hi"
        browser.send(b"on its way" * 10000)
        r.world.revoke(sid=SID)
        expected = close_frame(4401, "grant revoked")
        assert await browser.exactly(len(expected)) == expected


async def test_an_app_that_closes_its_tunnel_closes_the_browsers_side(certificate: Path) -> None:
    async with secured(certificate) as (r, address):
        browser = await connect(r, address)
        browser.send(upgrade())
        app = await r.app.connection()
        await app.head()
        app.send(SWITCH + b"\x82\x03bye")
        app.close()
        assert (await browser.rest()).endswith(b"\x82\x03bye")
        await asyncio.sleep(0.05)
        assert len(r.live) == 0


async def test_a_refused_upload_gets_its_response_over_tls(certificate: Path) -> None:
    async with secured(certificate) as (r, address):
        browser = await connect(r, address)
        fields = (f"Origin: {ORIGIN}", "Content-Length: 10000000")
        browser.send(request("/", *fields, method="POST", credential=None) + b"x" * 100000)
        assert status_of((await browser.answer())[0]) == 401


async def test_large_bodies_are_read_and_written(certificate: Path) -> None:
    async with secured(certificate) as (r, address):
        browser = await connect(r, address)
        browser.send(request("/1"))
        app = await r.app.connection()
        await app.head()
        app.send(answer(LARGE))
        assert (await browser.answer())[1] == LARGE
        sent = (f"Origin: {ORIGIN}", f"Content-Length: {len(LARGE)}")
        browser.send(request("/2", *sent, method="PUT") + LARGE)
        await app.head()
        assert await app.exactly(len(LARGE)) == LARGE
        assert r.path.pipes.open == 0


async def test_little_is_encrypted_or_decrypted_at_once(
    certificate: Path, tls_sizes: TlsSizes
) -> None:
    """OpenSSL keeps buffers as large as the most that they have held, until the end."""
    data = LARGE[:250_000]
    async with secured(certificate, send_buffer=1 << 21) as (r, address):
        browser = await connect(r, address)
        browser.send(request("/1"))
        app = await r.app.connection()
        await app.head()
        app.send(answer(data))
        assert (await browser.answer())[1] == data
        sent = (f"Origin: {ORIGIN}", f"Content-Length: {len(data)}")
        browser.send(request("/2", *sent, method="PUT") + data)
        await app.head()
        assert await app.exactly(len(data)) == data
        app.send(answer(b""))
        await browser.answer()
        browser.send(upgrade())
        tunnelled = await r.app.connection()
        await tunnelled.head()
        frame = b"\x82\x7f" + len(data).to_bytes(8, "big") + data
        tunnelled.send(SWITCH + frame)
        await browser.head()
        assert await browser.exactly(len(frame)) == frame
    assert max(tls_sizes.read) <= 1 << 15
    assert max(tls_sizes.written) < (1 << 15) + 4096  # records have headers; heads are added


async def test_few_records_wait_for_an_app_that_reads_nothing(certificate: Path) -> None:
    async with secured(certificate) as (r, address):
        browser = await connect(r, address)
        size = 64 << 20
        sent = (f"Origin: {ORIGIN}", f"Content-Length: {size}")
        browser.send(request("/", *sent, method="PUT") + LARGE)
        app = await r.app.connection()
        await app.head()
        app.stall()
        connection: Any = next(iter(r.path.connections))
        transport = connection.transport
        waiting = []
        for _ in range(60):
            browser.send(LARGE)
            await asyncio.sleep(0.005)
            waiting.append(transport.get_read_buffer_size())
        assert not connection.reading, "it was asked to hold back, or this shows nothing"
        assert 0 < max(waiting) <= 2 * READ_BYTES
        browser.reset()


@pytest.mark.parametrize("asked", [request(), upgrade()], ids=["request", "tunnel"])
async def test_a_tls_close_of_the_browser_is_not_logged(
    certificate: Path, caplog: pytest.LogCaptureFixture, asked: bytes
) -> None:
    async with secured(certificate) as (r, address):
        browser = await connect(r, address)
        browser.send(asked)
        app = await r.app.connection()
        await app.head()
        if asked != request():
            app.send(SWITCH)
            await browser.head()
        browser.close()
        assert await app.gone() == b""
        async with asyncio.timeout(30):
            while r.path.open:
                await asyncio.sleep(0.01)
    assert not caplog.records


async def test_a_failed_handshake_leaves_no_reference_cycle(certificate: Path) -> None:
    async with secured(certificate) as (r, address):
        gc.collect()
        gc.disable()
        try:
            for _ in range(5):
                reader, writer = await asyncio.open_connection(*address)
                writer.write(request())
                with suppress(ConnectionError):
                    await reader.read()
                writer.close()
            async with asyncio.timeout(30):
                while r.path.meters.failed_arrivals < 5 or r.path.arriving:
                    await asyncio.sleep(0.01)
            left = sum(isinstance(one, TlsRecords) for one in gc.get_objects())
            # asyncio's own TLS stands in cycles; the product runs on uvloop.
            assert left <= (0 if isinstance(asyncio.get_running_loop(), uvloop.Loop) else 5)
        finally:
            gc.enable()
