"""Large bodies, the three ways in which they are moved, and both peers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from gateway.core.limits.values import Limits
from gateway.relay.gateway import DataPath
from gateway.relay.http.large_bodies import SpliceState
from tests.gateway.relay.harness import (
    ORIGIN,
    Peer,
    Rig,
    request,
)

SIZE = 3_000_000
BODY = random.Random(5).randbytes(SIZE)
BIG = 100_000_000
"""More than the sockets of a connection can hold."""
HEAD = f"HTTP/1.1 200 OK\r\nContent-Length: {BIG}\r\n\r\n".encode()

by_kernel = Limits()
by_us = Limits(splice_bytes=0)
without_pipes = Limits(pipes=0)
either = pytest.mark.parametrize("limits", [by_kernel, by_us], ids=["kernel", "us"])
any_of_three = pytest.mark.parametrize(
    "limits", [by_kernel, by_us, without_pipes], ids=["kernel", "us", "without-pipes"]
)


def put(length: int = BIG, *fields: str) -> bytes:
    """Return the head of an upload."""
    sent = (f"Origin: {ORIGIN}", f"Content-Length: {length}", *fields)
    return request("/up", *sent, method="PUT")


async def flood(peer: Peer, until_true: Callable[[], bool]) -> None:
    """Send as long as bytes are accepted, until it is true."""
    async with asyncio.timeout(30):
        while not until_true():
            if peer.writer.transport.get_write_buffer_size() < 1 << 20:
                peer.send(b"x" * 65536)
            await asyncio.sleep(0.001)


def states(r: Rig) -> list[SpliceState]:
    """Return the states of the spliced bodies."""
    splices = [s for e in r.connections for s in (e.upload, e.download) if s is not None]
    return [splice.state for splice in splices]


def held(r: Rig) -> int:
    """Return how many bytes a connection and its upstream connection hold."""
    (exchange,) = r.connections
    assert exchange.transport is not None
    assert exchange.upstream is not None
    assert exchange.upstream.transport is not None
    splices = [s.in_pipe for s in (exchange.upload, exchange.download) if s is not None]
    transports = (exchange.transport, exchange.upstream.transport)
    return sum(splices) + sum(t.get_write_buffer_size() for t in transports)


def nothing_left(path: DataPath) -> bool:
    """Return whether no descriptor is watched and no pipe is lent."""
    return not len(path.readiness) and path.pipes.lent == 0
