"""Closing with TLS: silent peers are not waited for, slow readers get everything."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from contextlib import suppress
from pathlib import Path

import pytest

from gateway.core.limits.values import Limits
from gateway.serving import drain
from tests.gateway.relay.harness import READ_SECONDS, SWITCH, Rig, request, upgrade
from tests.gateway.relay.secured import secured
from tests.waiting import until

DRAIN_SECONDS = 60.0
"""Twice what a loop waits for a peer to say that it has ended."""
BODY = bytes(range(256)) * 1200
SMALL = 4096
"""Of a socket's buffers: so that most of an answer waits in the gateway."""


class Client:
    """A browser whose TLS acts only on request: what it does not read stays unread."""

    def __init__(self, address: tuple[str, int], *, buffer: int | None = None) -> None:
        plain = socket.socket()
        plain.settimeout(READ_SECONDS)
        if buffer is not None:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        plain.connect(address)
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        self._tls = context.wrap_socket(plain)

    def send(self, data: bytes) -> None:
        self._tls.sendall(data)

    def read(self, size: int) -> bytes:
        """Return at least one byte; none at the end."""
        return self._tls.recv(size)

    def read_for(self, seconds: float) -> bytes:
        """Return what arrives until there is an end, or nothing for *seconds*."""
        data = b""
        self._tls.settimeout(seconds)
        with suppress(ConnectionResetError, TimeoutError, ssl.SSLEOFError):
            while piece := self._tls.recv(65536):
                data += piece
        return data

    def say_ended(self) -> None:
        """Send a close_notify, without waiting for the peer's."""
        self._tls.setblocking(False)
        with pytest.raises(ssl.SSLError):
            self._tls.unwrap()

    def close(self) -> None:
        self._tls.close()


async def connect(address: tuple[str, int], *, buffer: int | None = None) -> Client:
    return await asyncio.to_thread(Client, address, buffer=buffer)


def draining(r: Rig) -> asyncio.Task[None]:
    r.listener.close()
    return asyncio.create_task(drain(r.path, seconds=DRAIN_SECONDS, random=lambda: 0.0))


async def ends_early(task: asyncio.Task[None], began: float) -> None:
    await task
    assert asyncio.get_running_loop().time() - began < DRAIN_SECONDS / 3


async def test_a_drain_does_not_wait_for_silent_clients(certificate: Path) -> None:
    async with secured(certificate, limits=Limits(linger_seconds=0.3)) as (r, address):
        idle, answered, ended = [await connect(address) for _ in range(3)]
        await asyncio.to_thread(ended.send, upgrade())
        app = await r.app.connection()
        await app.head()
        app.send(SWITCH)
        await asyncio.to_thread(answered.send, request())
        app = await r.app.connection()
        await app.head()
        began = asyncio.get_running_loop().time()
        task = draining(r)
        app.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await ends_early(task, began)
        assert r.path.open == 0
        head = await asyncio.to_thread(answered.read, 65536)
        assert head.endswith(b"ok")
        for client in (idle, answered, ended):
            client.close()


async def test_a_slow_reader_receives_its_response_during_a_drain(certificate: Path) -> None:
    async with secured(certificate, send_buffer=SMALL) as (r, address):
        client = await connect(address, buffer=SMALL)
        await asyncio.to_thread(client.send, request())
        app = await r.app.connection()
        await app.head()
        began = asyncio.get_running_loop().time()
        task = draining(r)
        app.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + BODY)
        app.close()

        def read_slowly() -> bytes:
            data = b""
            while piece := client.read(16384):
                data += piece
                time.sleep(0.05)
            return data

        assert (await asyncio.to_thread(read_slowly)).endswith(b"\r\n\r\n" + BODY)
        client.close()
        await ends_early(task, began)


async def test_a_stalled_reader_is_reset_during_a_drain(
    certificate: Path,
) -> None:
    most = Limits(write_stall_seconds=0.5)
    async with secured(certificate, send_buffer=SMALL, limits=most) as (r, address):
        client = await connect(address, buffer=SMALL)
        await asyncio.to_thread(client.send, request())
        app = await r.app.connection()
        await app.head()
        app.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + BODY[:100_000])
        app.close()
        await until(lambda: r.path.open == 0)
        client.close()


async def test_a_truncated_response_is_delivered_although_the_loop_was_busy(
    certificate: Path,
) -> None:
    """Bytes that TLS has encrypted wait in the loop, which shows them nowhere."""
    size, received, read = 60_000, bytearray(), asyncio.Event()
    async with secured(certificate, send_buffer=SMALL) as (r, address):
        client = await connect(address, buffer=SMALL)
        await asyncio.to_thread(client.send, request())
        app = await r.app.connection()
        await app.head()
        app.send(b"HTTP/1.1 200 OK\r\nContent-Length: 400000\r\n\r\n" + BODY[:size])
        (connection,) = r.connections
        await until(lambda: connection.traffic.down > size)
        connection.bad_response()
        loop, (ours, theirs) = asyncio.get_running_loop(), socket.socketpair()

        def read_while_the_loop_is_busy() -> None:
            loop.remove_reader(ours)
            received.extend(client.read_for(0.3))
            read.set()

        loop.add_reader(ours, read_while_the_loop_is_busy)
        theirs.send(b".")
        await read.wait()
        received += await asyncio.to_thread(client.read_for, READ_SECONDS)
        assert received.endswith(BODY[size - 1000 : size])
        for one in (client, ours, theirs):
            one.close()
        await until(lambda: r.path.open == 0)


@pytest.mark.parametrize("asked", [request(), upgrade()], ids=["request", "tunnel"])
async def test_no_response_is_relayed_to_an_ended_downstream_connection(
    certificate: Path, caplog: pytest.LogCaptureFixture, asked: bytes
) -> None:
    """Unread bytes are still being flushed meanwhile."""
    async with secured(certificate, send_buffer=SMALL) as (r, address):
        client = await connect(address, buffer=SMALL)
        await asyncio.to_thread(client.send, asked)
        app = await r.app.connection()
        await app.head()
        meters = r.path.meters
        if asked == upgrade():
            app.send(SWITCH + b"\x82\x7f" + (1 << 40).to_bytes(8, "big"))
        else:
            app.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        app.send(BODY[:100_000])
        await until(lambda: meters.http.down + meters.websocket.down > 100_000)
        client.say_ended()
        gone = asyncio.create_task(app.gone())
        async with asyncio.timeout(READ_SECONDS):
            while not gone.done():
                app.send(b"more")
                await asyncio.sleep(0.01)
        assert await gone == b""
        client.close()
    assert "SSL" not in caplog.text
