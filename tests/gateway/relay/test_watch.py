from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from gateway.relay.watch import Watch

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
    watch, calls = Watch(asyncio.get_running_loop()), list[str]()
    watch.readable(ours.fileno(), lambda: calls.append("read"))
    await turns()
    assert calls == []
    theirs.send(b"x")
    await turns()
    assert len(calls) > 1
    watch.readable(ours.fileno(), None)
    calls.clear()
    await turns()
    assert calls == []
    watch.close()


async def test_both_directions_of_a_descriptor_are_watched_for_themselves(pair: Pair) -> None:
    ours, _ = pair
    watch, calls = Watch(asyncio.get_running_loop()), set[str]()
    watch.readable(ours.fileno(), lambda: calls.add("read"))
    watch.writable(ours.fileno(), lambda: calls.add("write"))
    assert len(watch) == 1
    await turns()
    assert calls == {"write"}
    watch.writable(ours.fileno(), None)
    calls.clear()
    await turns()
    assert (calls, len(watch)) == (set(), 1)
    watch.close()


async def test_who_hung_up_is_reported_as_readable(pair: Pair) -> None:
    ours, theirs = pair
    watch, calls = Watch(asyncio.get_running_loop()), set[bytes]()
    watch.readable(ours.fileno(), lambda: calls.add(ours.recv(1)))
    theirs.close()
    await turns()
    assert calls == {b""}
    watch.close()


async def test_what_one_call_has_ended_is_not_called_for(pair: Pair) -> None:
    ours, theirs = pair
    watch, calls = Watch(asyncio.get_running_loop()), list[int]()

    def end_both(number: int) -> None:
        calls.append(number)
        for one in pair:
            watch.readable(one.fileno(), None)

    for number, one in enumerate(pair):
        watch.readable(one.fileno(), lambda number=number: end_both(number))  # type: ignore[misc]
    ours.send(b"x")
    theirs.send(b"x")
    await turns()
    assert len(calls) == 1
    assert len(watch) == 0
    watch.close()


async def test_nothing_is_watched_after_the_end(pair: Pair) -> None:
    ours, theirs = pair
    watch, calls = Watch(asyncio.get_running_loop()), list[str]()
    watch.readable(ours.fileno(), lambda: calls.append("read"))
    watch.close()
    watch.readable(ours.fileno(), lambda: calls.append("read"))
    watch.writable(ours.fileno(), None)
    theirs.send(b"x")
    await turns()
    assert calls == []
