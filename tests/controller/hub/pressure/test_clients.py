"""Tests that a client's input, stalls and unread output cost the hub a bounded amount."""

from __future__ import annotations

import asyncio
import gc
import socket
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest
from websockets.frames import Frame, Opcode

from controller.hub import attached, clients
from controller.hub.protocol import SUBPROTOCOL
from tests.controller.hub.attaching import SID, Hub
from tests.controller.hub.streams import FakeExecutor


@asynccontextmanager
async def raw_client(hub: Hub) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Attach with a small receive buffer, so that unread data soon stalls the hub."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, hub.role.address)
    reader, writer = await asyncio.open_connection(sock=sock)
    writer.write(
        f"GET /terminals/{SID} HTTP/1.1\r\nHost: hub\r\nConnection: Upgrade\r\n"
        "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: {SUBPROTOCOL}\r\n"
        f"Authorization: Bearer {hub.token()}\r\n\r\n".encode()
    )
    try:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        assert head.startswith(b"HTTP/1.1 101 ")
        yield reader, writer
    finally:
        writer.transport.abort()
        await asyncio.sleep(0.01)


async def gone(hub: Hub, but: int = 0) -> None:
    """Wait until no client is attached, *but* some."""
    async with asyncio.timeout(30):
        while hub.registry.get_sample_value("fumarole_hub_clients") != but:
            await asyncio.sleep(0.02)


async def flood(writer: asyncio.StreamWriter, data: bytes) -> int:
    """Send 64 MiB; return how many bytes were accepted within five seconds."""
    sent = 0
    with suppress(TimeoutError, ConnectionError):
        async with asyncio.timeout(5):
            while sent < 64 << 20:
                writer.write(data)
                await writer.drain()
                sent += len(data)
    return sent


def framed(data: bytes, opcode: Opcode = Opcode.BINARY) -> bytes:
    return Frame(opcode, data).serialize(mask=True)


async def test_a_client_that_pings_without_reading_is_disconnected(
    hub: Hub, executor: FakeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attached, "STUCK_SECONDS", 1.0)
    async with raw_client(hub) as (_, writer):
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # it is a transport
        pings = framed(b"p" * 120, Opcode.PING) * 2000
        assert await flood(writer, pings) < 64 << 20, "it was not held back"
        await gone(hub)


async def test_a_client_that_does_not_read_shell_output_is_disconnected(
    hub: Hub, executor: FakeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attached, "STUCK_SECONDS", 1.0)
    async with raw_client(hub) as (_, writer):
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # it is a transport
        for _ in range(200):
            executor.streams[0].write(bytes(65536))
            await asyncio.sleep(0)
        await gone(hub)


async def test_clients_with_most_input_are_disconnected_beyond_a_bound_for_all(
    hub: Hub, executor: FakeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unbounded, 900 clients hold 1 GiB of messages that do not end."""
    monkeypatch.setattr(clients, "MOST_INPUT_BYTES", 2_000_000)
    other = await hub.attach()
    await other.see(b"$ ")
    async with AsyncExitStack() as ends:
        for size in (100_000, 700_000, 800_000, 900_000):
            _, writer = await ends.enter_async_context(raw_client(hub))
            writer.write(framed(bytes(1_000_000))[:size])
        await gone(hub, but=4)
        assert hub.registry.get_sample_value("fumarole_hub_shed_clients_total") == 1
        # Input that the shell does not take counts as well.
        executor.streams[0].may_type.clear()
        for _ in range(4):
            await other.socket.send_bytes(bytes(200_000))
        await gone(hub, but=3)
        assert await other.until_closed() == 1006
        assert hub.registry.get_sample_value("fumarole_hub_shed_clients_total") == 2
        executor.streams[0].may_type.set()


async def test_input_that_the_shell_has_does_not_count(
    hub: Hub, executor: FakeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "MOST_INPUT_BYTES", 2_000_000)
    monkeypatch.setattr(clients, "LOOK_SECONDS", 0.001)
    async with raw_client(hub) as (_, writer):
        for _ in range(100):
            writer.write(framed(b"y" * 70_000) + framed("ü".encode() * 2000, Opcode.TEXT))
            writer.write(framed(b"", Opcode.PING))
            await writer.drain()
        writer.write(framed(b"end"))
        async with asyncio.timeout(60):
            while not executor.streams[0].typed.endswith(b"end"):
                await asyncio.sleep(0.01)
    assert hub.registry.get_sample_value("fumarole_hub_shed_clients_total") == 0


@pytest.mark.parametrize("how", ["fin", "reset"])
async def test_a_client_that_leaves_without_close_is_removed(
    hub: Hub, executor: FakeExecutor, how: str
) -> None:
    async with raw_client(hub) as (_, writer):
        if how == "fin":
            writer.write_eof()
        else:
            writer.transport.abort()
        await gone(hub)


@pytest.mark.parametrize(
    "piece",
    [framed(b""), framed(b"x"), framed(b"", Opcode.PING), framed(b"{}", Opcode.TEXT)],
    ids=["empty", "byte", "ping", "text"],
)
async def test_small_frames_do_not_delay_other_terminals(
    hub: Hub, executor: FakeExecutor, piece: bytes, request: pytest.FixtureRequest
) -> None:
    """Measures processor time of this thread, so that a busy machine does not lengthen a turn.

    Unbounded, such a flood takes seconds in one turn. Garbage collection is off: its pauses depend
    on
    what other tests left in this process, not on the hub.
    """
    other = await hub.attach()
    await other.see(b"$ ")
    request.addfinalizer(gc.enable)
    gc.disable()
    longest, last = 0.0, time.thread_time()
    async with raw_client(hub) as (reader, writer):
        reading = asyncio.ensure_future(reader.read(-1))
        writer.write(piece * ((128 << 10) // len(piece)))
        # The hub has parsed the whole flood once its last bytes reach the shell.
        writer.write(framed(b"end"))
        async with asyncio.timeout(60):
            while not executor.streams[0].typed.endswith(b"end"):
                await asyncio.sleep(0)
                now = time.thread_time()
                longest, last = max(longest, now - last), now
        reading.cancel()
    assert longest < 0.5, "a turn of the loop"
    executor.streams[0].write(b"still here")
    await other.see(b"still here")


@pytest.mark.parametrize("piece", [b"plain\r\n", b"\x1b[1;31mx", b"\x1b[", b"\x1b]0;x"])
async def test_large_output_does_not_delay_other_terminals(
    hub: Hub, executor: FakeExecutor, piece: bytes, request: pytest.FixtureRequest
) -> None:
    """Measures as the test above: 10 MB, also of the input that is slowest to split."""
    reading = await hub.attach(after=0)
    other = await hub.attach(shell="two", after=0)
    await other.see(b"$ ")
    block = piece * (32768 // len(piece))
    request.addfinalizer(gc.enable)
    gc.disable()
    seen = asyncio.ensure_future(reading.see(b"END"))
    executor.streams[0].write(*[block] * (10_000_000 // len(block)), b"END")
    longest, last = 0.0, time.thread_time()
    async with asyncio.timeout(60):
        while not seen.done():
            await asyncio.sleep(0)
            now = time.thread_time()
            longest, last = max(longest, now - last), now
    await seen
    assert longest < 0.5, "a turn of the loop"
    assert len(reading.output) == 2 + 10_000_000 // len(block) * len(block) + 3
    executor.streams[1].write(b"still here")
    await other.see(b"still here")
