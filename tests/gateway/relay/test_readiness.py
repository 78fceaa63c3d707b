from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from gateway.relay.epolls import Readiness

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0.001)


async def test_a_descriptor_is_reported_while_it_is_ready_and_watched(pair: Pair) -> None:
    ours, theirs = pair
    ready, calls = Readiness(asyncio.get_running_loop()), list[str]()
    ready.readable(ours.fileno(), lambda: calls.append("read"))
    await turns()
    assert calls == []
    theirs.send(b"x")
    await turns()
    assert len(calls) > 1
    ready.readable(ours.fileno(), None)
    calls.clear()
    await turns()
    assert calls == []
    ready.close()


async def test_both_directions_of_a_descriptor_are_watched_for_themselves(pair: Pair) -> None:
    ours, _ = pair
    ready, calls = Readiness(asyncio.get_running_loop()), set[str]()
    ready.readable(ours.fileno(), lambda: calls.add("read"))
    ready.writable(ours.fileno(), lambda: calls.add("write"))
    assert len(ready) == 1
    await turns()
    assert calls == {"write"}
    ready.writable(ours.fileno(), None)
    calls.clear()
    await turns()
    assert (calls, len(ready)) == (set(), 1)
    ready.close()


async def test_a_hangup_is_reported_as_readable(pair: Pair) -> None:
    ours, theirs = pair
    ready, calls = Readiness(asyncio.get_running_loop()), set[bytes]()
    ready.readable(ours.fileno(), lambda: calls.add(ours.recv(1)))
    theirs.close()
    await turns()
    assert calls == {b""}
    ready.close()


async def test_a_descriptor_removed_by_one_callback_is_not_reported(pair: Pair) -> None:
    ours, theirs = pair
    ready, calls = Readiness(asyncio.get_running_loop()), list[int]()

    def end_both(number: int) -> None:
        calls.append(number)
        for one in pair:
            ready.readable(one.fileno(), None)

    for number, one in enumerate(pair):
        ready.readable(one.fileno(), lambda number=number: end_both(number))  # type: ignore[misc]  # mypy infers no default
    ours.send(b"x")
    theirs.send(b"x")
    await turns()
    assert len(calls) == 1
    assert len(ready) == 0
    ready.close()


async def test_no_descriptor_is_watched_after_close(pair: Pair) -> None:
    ours, theirs = pair
    ready, calls = Readiness(asyncio.get_running_loop()), list[str]()
    ready.readable(ours.fileno(), lambda: calls.append("read"))
    ready.close()
    ready.readable(ours.fileno(), lambda: calls.append("read"))
    ready.writable(ours.fileno(), None)
    theirs.send(b"x")
    await turns()
    assert calls == []
