from __future__ import annotations

import asyncio

import pytest

from gateway.relay.http.upstream import read_remaining
from gateway.relay.transports import (
    LARGE_BYTES,
    pause_reading,
    reset,
    resume_reading,
    shutdown_write,
    write_large,
)
from tests.gateway.relay.harness import App, Peer


async def connected(app: App) -> tuple[asyncio.Transport, Peer]:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_connection(asyncio.Protocol, "127.0.0.1", app.port)
    return transport, await app.connection()


async def test_an_abort_sends_rst_also_without_unread_data() -> None:
    app = App()
    async with app.running():
        transport, peer = await connected(app)
        transport.write(b"begun")
        assert await peer.exactly(5) == b"begun"
        reset(transport)
        with pytest.raises(ConnectionResetError):
            await peer.rest()


class Written(asyncio.Transport):
    """A transport, over TLS or not, that notes what is written."""

    def __init__(self, *, tls: bool) -> None:
        super().__init__({"sslcontext": object()} if tls else {})
        self.pieces: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.pieces.append(bytes(data))


@pytest.mark.parametrize("tls", [False, True])
def test_large_data_is_written_to_tls_in_pieces(tls: bool) -> None:
    transport, data = Written(tls=tls), bytes(range(250)) * 400
    write_large(transport, data)
    assert b"".join(transport.pieces) == data
    assert [len(piece) for piece in transport.pieces] == (
        [LARGE_BYTES] * 3 + [len(data) - 3 * LARGE_BYTES] if tls else [len(data)]
    )


async def test_write_eof_sends_a_fin_and_reading_continues() -> None:
    app = App()
    async with app.running():
        transport, peer = await connected(app)
        transport.write(b"last")
        shutdown_write(transport)
        assert await peer.rest() == b"last"
        assert not transport.is_closing()
        transport.close()


async def test_operations_on_a_closing_transport_are_ignored() -> None:
    app = App()
    async with app.running():
        transport, _ = await connected(app)
        transport.close()
        for act in (pause_reading, resume_reading, shutdown_write, reset):
            act(transport)
        pause_reading(None)
        resume_reading(None)
        reset(None)


async def test_remaining_bytes_are_read_without_blocking() -> None:
    app = App()
    async with app.running():
        transport, peer = await connected(app)
        transport.pause_reading()
        peer.send(b"x" * 100000)
        await asyncio.sleep(0.05)
        descriptor = transport.get_extra_info("socket").fileno()
        first = b"".join(read_remaining(descriptor, 70000))
        assert len(first) == 70000
        rest = b"".join(read_remaining(descriptor, 1 << 20))
        assert len(first) + len(rest) <= 100000
        assert list(read_remaining(descriptor, 100)) == []
        assert list(read_remaining(-1, 100)) == []
        transport.close()
