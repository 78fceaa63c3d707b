"""Closing and lingering: what the peer receives, and when it is given up."""

from __future__ import annotations

import asyncio
import socket

import pytest

from gateway.core.limits.values import Limits
from gateway.relay.ending.closer import Closer, Lingering
from gateway.relay.transports import keep_accepted_alive, keep_alive, limit_orphan
from tests.gateway.relay.ending.test_deferred_aborts import Side, connected
from tests.gateway.relay.harness import READ_SECONDS

MANY = b"x" * (32 << 20)
QUICK = Limits(write_stall_seconds=0.3, linger_seconds=0.2)


def ends_of(limits: Limits) -> Closer:
    return Closer(asyncio.get_running_loop(), limits)


async def test_a_reader_receives_all_bytes_written_before_the_close() -> None:
    ends = ends_of(QUICK)
    async with connected(1) as ((side,), (peer,)):
        side.transport.write(MANY)
        ends.close(side.transport)
        ends.close(side.transport)
        assert len(await peer.rest()) == len(MANY)
    ends.close_all()


async def test_a_peer_that_does_not_read_the_last_bytes_is_reset() -> None:
    ends = ends_of(QUICK)
    async with connected(1) as ((side,), (peer,)):
        peer.stall()
        side.transport.write(MANY)
        ends.close(side.transport)
        await side.gone()
        peer.go_on()
        with pytest.raises(ConnectionResetError):
            await peer.rest()
    ends.close_all()


async def test_an_app_gets_a_short_time_to_read_the_last_bytes() -> None:
    ends = ends_of(QUICK)
    async with connected(2) as ((reads, stalls), (reader, stalled)):
        for side in (reads, stalls):
            side.transport.write(MANY)
            ends.close_within(side.transport, 2.0)
        stalled.stall()
        assert len(await reader.rest()) == len(MANY)
        await stalls.gone()
    ends.close_all()


class Linger:
    """A lingering connection, and whether it is over."""

    def __init__(self, closer: Closer, side: Side, **named: object) -> None:
        self.over = asyncio.Event()
        Lingering(closer, side.transport, seconds=0.2, on_closed=self.over.set, **named)  # type: ignore[arg-type]  # as they are given

    async def gone(self) -> None:
        await asyncio.wait_for(self.over.wait(), READ_SECONDS)


async def test_input_of_a_lingering_peer_does_not_lose_the_last_bytes() -> None:
    ends = ends_of(QUICK)
    async with connected(1) as ((side,), (peer,)):
        peer.send(MANY)
        await asyncio.sleep(0.01)
        side.transport.write(b"last")
        linger = Linger(ends, side)
        assert await peer.rest() == b"last"
        peer.close()
        await linger.gone()
    ends.close_all()


async def test_a_lingering_peer_that_does_not_close_is_closed() -> None:
    ends = ends_of(QUICK)
    async with connected(1) as ((side,), (peer,)):
        linger = Linger(ends, side)
        await linger.gone()
        peer.close()
    ends.close_all()


async def test_a_lingering_peer_may_still_read_slowly_but_not_stall() -> None:
    # Longer than this process waits for a processor on a busy machine: it is the reader, too.
    ends = ends_of(Limits(write_stall_seconds=1.5, linger_seconds=0.2))
    async with connected(2) as ((slow, still), (reader, stalled)):
        stalled.stall()
        lingering = []
        for side in (slow, still):
            side.transport.write(MANY)
            lingering.append(Linger(ends, side))
        got = 0
        while piece := await asyncio.wait_for(reader.reader.read(1 << 20), READ_SECONDS):
            got += len(piece)
            await asyncio.sleep(0.02)
        assert got == len(MANY)
        for linger in lingering:
            await linger.gone()
        assert ends.stalls.found == 1
    ends.close_all()


async def test_bytes_not_written_before_the_deadline_are_never_sent() -> None:
    ends = ends_of(QUICK)
    async with connected(1) as ((side,), (peer,)):
        peer.stall()
        side.transport.write(MANY)
        linger = Linger(ends, side, flush_seconds=0.1)
        await linger.gone()
        peer.go_on()
        with pytest.raises(ConnectionResetError):
            await peer.rest()
    ends.close_all()


async def test_input_of_a_lingering_peer_may_be_inspected_and_the_transport_closed() -> None:
    ends = ends_of(QUICK)
    async with connected(1) as ((side,), (peer,)):

        def discard(data: bytes) -> None:
            assert data == b"bye"
            ends.close(side.transport)

        linger = Linger(ends, side, on_data=discard)
        peer.send(b"bye")
        await linger.gone()
    ends.close_all()


async def test_both_legs_have_keep_alive_without_a_user_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        keep_accepted_alive([listening], stall_seconds=60.0)
        with socket.create_connection(listening.getsockname()), listening.accept()[0] as own:
            assert own.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
            assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
    async with connected(1) as ((side,), _):
        keep_alive(side.transport, stall_seconds=300.0)
        sock = side.transport.get_extra_info("socket")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert 45 <= sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) <= 75
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 0
        keep_alive(side.transport, stall_seconds=3.0)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 3


async def test_the_time_of_unsent_kernel_data_after_a_close_is_bounded() -> None:
    async with connected(1) as ((side,), (peer,)):
        sock = side.transport.get_extra_info("socket")
        limit_orphan(side.transport, stall_seconds=60.0)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 0
        peer.stall()
        side.transport.write(MANY)
        limit_orphan(side.transport, stall_seconds=60.0)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 300_000
