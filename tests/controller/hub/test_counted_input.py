"""Tests how a client's input is queued and counted, so that a page can send lost input again."""

from __future__ import annotations

import asyncio

import pytest

from controller.hub import attached, shell
from controller.hub.protocol import REPLACED, TRY_LATER
from tests.controller.hub.attaching import Client, Hub
from tests.controller.hub.streams import FakeExecutor


async def enter(hub: Hub, name: str = "page1") -> Client:
    client = await hub.attach(after=0, client=name)
    await client.hear("attached")
    return client


async def answered(client: Client) -> None:
    """Wait until the hub has read everything that *client* sent."""
    await client.socket.send_str('{"type":"ping"}')
    await client.hear("pong")
    client.texts.clear()


async def test_pings_are_answered_while_a_program_reads_no_input(
    hub: Hub, executor: FakeExecutor
) -> None:
    client = await enter(hub)
    stream = executor.streams[0]
    stream.may_type.clear()
    for _ in range(4):
        await client.socket.send_bytes(b"x" * 32768)
    await client.socket.send_str('{"type":"resize","cols":132,"rows":43}')
    await answered(client)
    stream.may_type.set()
    await stream.until_typed(b"x" * 131072)
    while stream.sizes[-1] != (132, 43):
        await asyncio.sleep(0.005)


async def test_a_client_learns_how_much_of_its_input_the_shell_has(
    hub: Hub, executor: FakeExecutor
) -> None:
    client = await enter(hub)
    assert client.said("attached")[0]["typed"] == 0
    await client.socket.send_bytes(b"x" * 5000)
    assert await client.hear("typed") == {"type": "typed", "offset": 5000}
    await client.socket.send_bytes(b"ls")
    await answered(client)
    await client.socket.close()
    for name, count in (("page1", 5002), ("page2", 0)):
        assert (await enter(hub, name)).said("attached")[0]["typed"] == count
    token = hub.token(sub="grace")
    other = await hub.attach(token=token, after=0, client="page1")
    assert (await other.hear("attached"))["typed"] == 0


async def test_queued_input_of_a_superseded_connection_is_not_sent(
    hub: Hub, executor: FakeExecutor
) -> None:
    first = await enter(hub)
    stream = executor.streams[0]
    stream.may_type.clear()
    for key in (b"a", b"b"):
        await first.socket.send_bytes(key)
    await answered(first)
    second = await enter(hub)
    assert second.said("attached")[0]["typed"] == 1
    assert await first.until_closed() == REPLACED
    await second.socket.send_bytes(b"B")
    stream.may_type.set()
    await stream.until_typed(b"aB")
    await answered(second)
    assert bytes(stream.typed) == b"aB"


async def test_input_of_a_client_that_left_reaches_the_shell(
    hub: Hub, executor: FakeExecutor
) -> None:
    client = await enter(hub)
    stream = executor.streams[0]
    stream.may_type.clear()
    for key in (b"make", b"\n"):
        await client.socket.send_bytes(key)
    await answered(client)
    leaving = asyncio.create_task(client.socket.close())
    await asyncio.sleep(0)
    stream.may_type.set()
    await stream.until_typed(b"make\n")
    await leaving


async def test_a_client_that_does_not_wait_for_the_shell_is_disconnected(
    hub: Hub, executor: FakeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attached, "STUCK_SECONDS", 0.2)
    client = await hub.attach()
    await client.hear("attached")
    executor.streams[0].may_type.clear()
    await client.socket.send_bytes(bytes(400_000))
    assert await client.until_closed() == TRY_LATER


async def test_no_more_is_read_before_the_waiting_input_is_within_its_bound(
    hub: Hub, executor: FakeExecutor
) -> None:
    client, other = await enter(hub), await enter(hub, "page2")
    stream, large = executor.streams[0], b"x" * 400_000
    stream.may_type.clear()
    for piece in (b"a", b"b", large):
        await client.socket.send_bytes(piece)
    await client.socket.send_str('{"type":"ping"}')
    pong = asyncio.create_task(client.hear("pong"))
    await stream.until_typed(b"a")
    for taken in (b"ab", b"ab" + large[:32768]):
        stream.may_type.set()  # for the piece that waits
        stream.may_type.clear()
        await stream.until_typed(taken)
        await answered(other)
    assert not pong.done()
    stream.may_type.set()
    await pong


async def test_the_count_of_a_client_outlives_many_other_clients(
    hub: Hub, executor: FakeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A page that is told 0 again would send once more what the shell has.
    monkeypatch.setattr(shell, "MOST_CLIENTS", 2)
    client = await enter(hub)
    await client.socket.send_bytes(b"ls\n")
    await answered(client)
    others = [await enter(hub, f"other{number}") for number in range(4)]
    for other in others[1:]:
        await other.socket.close()
    await client.socket.close()
    await enter(hub, "another")
    assert (await enter(hub)).said("attached")[0]["typed"] == 3
