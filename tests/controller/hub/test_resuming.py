"""Tests resuming: a client names the offset from which it wants the output."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from controller.hub import attached, window
from controller.hub.protocol import ENDED
from controller.hub.scrollback import Scrollbacks
from controller.store.database import Store
from tests.clock import Clock
from tests.controller.hub.attaching import Client, Hub, assign, hub_serving
from tests.controller.hub.streams import FakeExecutor

BLOCK = b"".join(b"%07d\r\n" % number for number in range(4000))


def skipped(client: Client) -> int:
    return sum(text["bytes"] for text in client.said("skipped"))


async def leave(hub: Hub, client: Client) -> None:
    """Cut the client's connection, and wait until the hub notices."""
    client.socket._response.connection.transport.abort()  # type: ignore[union-attr]
    await client.socket.close()
    await attached_are(hub, 0)


async def attached_are(hub: Hub, count: int) -> None:
    async with asyncio.timeout(10):
        while hub.registry.get_sample_value("fumarole_hub_clients") != count:
            await asyncio.sleep(0.005)


async def kept(hub: Hub, end: int) -> None:
    async with asyncio.timeout(10):
        while (await anyone(hub)).end != end:
            await asyncio.sleep(0.005)


async def anyone(hub: Hub) -> Any:
    """Return the scrollback of the first shell."""
    (held,) = hub.role.shells._places.values()
    shell = held.shells[""].shell
    assert shell is not None
    return shell.scrollback


async def test_a_reconnected_client_resumes_at_its_offset(hub: Hub, executor: FakeExecutor) -> None:
    first = await hub.attach(after=0)
    begin = await first.hear("attached")
    assert (begin["offset"], begin["resumed"]) == (0, False)
    executor.streams[0].write(BLOCK, b"\x1b[6n")
    await first.see(b"0002000")
    await leave(hub, first)
    executor.streams[0].write(BLOCK, b"END")
    transcript = bytes(first.output)
    again = await hub.attach(after=len(transcript), stream=begin["stream"])
    notice = await again.hear("attached")
    assert (notice["stream"], notice["offset"]) == (begin["stream"], len(transcript))
    await again.see(b"END")
    # The page decides which terminal queries it answers; the hub sends them unchanged.
    assert transcript + again.output == b"$ " + BLOCK + b"\x1b[6n" + BLOCK + b"END"
    assert again.said("skipped") == []


async def test_output_lost_from_the_ring_is_reported(
    store: Store, clock: Clock, executor: FakeExecutor, session: None
) -> None:
    rings = Scrollbacks(shell_bytes=1 << 18)
    async with hub_serving(store, clock, executor, rings) as hub:
        await assign(hub)
        first = await hub.attach(after=0)
        await first.see(b"$ ")
        await leave(hub, first)
        executor.streams[0].write(*[BLOCK] * 50, b"END")
        await kept(hub, 2 + 50 * len(BLOCK) + 3)
        again = await hub.attach(after=2)
        assert (await again.hear("attached"))["offset"] == 2
        await again.see(b"END")
        missed = skipped(again)
        assert missed > 0
        assert 2 + missed + len(again.output) == 2 + 50 * len(BLOCK) + 3
        last = await hub.attach(after=-200_000)
        assert (await last.hear("attached"))["offset"] >= 50 * len(BLOCK) - 200_000
        await last.see(b"END")
        assert last.said("skipped") == [], "nobody missed what nobody asked for"


async def test_an_offset_of_another_shell_is_ignored(hub: Hub, executor: FakeExecutor) -> None:
    for query in ({"after": 2, "stream": "other"}, {"after": 10**12}):
        client = await hub.attach(**query)
        notice = await client.hear("attached")
        assert notice["offset"] == 0
        await client.see(b"$ ")


@pytest.mark.parametrize("query", [{"after": "x"}, {"after": "1", "stream": "A"}, {"shell": "../"}])
async def test_a_malformed_query_is_refused(hub: Hub, query: dict[str, str]) -> None:
    url = f"{hub.url()}?{'&'.join('='.join(pair) for pair in query.items())}"
    upgrade = {
        "Authorization": f"Bearer {hub.token()}", "Connection": "Upgrade", "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
        "Sec-WebSocket-Protocol": "fumarole.terminal.v1",
    }  # fmt: skip
    assert (await hub.http.get(url, headers=upgrade)).status == 400


async def test_a_client_absent_at_the_exit_is_told_the_exit_code(
    hub: Hub, executor: FakeExecutor
) -> None:
    first = await hub.attach(after=0)
    begin = await first.hear("attached")
    await first.see(b"$ ")
    await leave(hub, first)
    executor.streams[0].write(b"last words")
    executor.streams[0].exit(3)
    await kept(hub, 12)
    again = await hub.attach(after=2, stream=begin["stream"])
    assert await again.until_closed() == ENDED
    assert again.output == b"last words"
    assert again.said("exit")[0]["code"] == 3
    # A client that attaches gets a new shell; after that the old shell cannot be resumed.
    new = await hub.attach(after=-1000)
    assert (await new.hear("attached"))["stream"] != begin["stream"]
    late = await hub.attach(after=2, stream=begin["stream"])
    assert (await late.hear("attached"))["offset"] == 0
    assert len(executor.streams) == 2


async def test_output_is_limited_by_the_clients_window(
    hub: Hub, executor: FakeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window, "LEAST_BYTES", 100_000)
    monkeypatch.setattr(window, "MOST_BYTES", 100_000)
    monkeypatch.setattr(attached, "PIECE_BYTES", 10_000)
    client, other = await hub.attach(after=0, mode="view"), await hub.attach()
    await client.socket.send_str('{"type":"seen","offset":0}')
    await client.socket.send_str('{"type":"ping"}')
    await client.hear("pong")
    executor.streams[0].write(*[BLOCK] * 20, b"END")
    await other.see(b"END")
    while len(client.output) <= 100_000:
        assert await client.next()
    # The hub ignores offsets beyond what it sent, and offsets that go back.
    most = 120_000
    for offset in (0, 10**15, -5):
        await client.socket.send_str(f'{{"type":"seen","offset":{offset}}}')
        await client.socket.send_str('{"type":"ping"}')
        pongs = len(client.said("pong"))
        while len(client.said("pong")) == pongs:
            assert await client.next()
        most += 120_000 if offset > 0 else 0
        assert len(client.output) <= most
    executor.streams[0].exit(0)
    assert await client.until_closed() == ENDED
    assert bytes(client.output) == b"$ " + BLOCK * 20 + b"END", "the end is not waited for"


async def test_fuzzed_input_of_a_viewer_has_no_effect(hub: Hub, executor: FakeExecutor) -> None:
    control, view = await hub.attach(after=0), await hub.attach(mode="view", after=0)
    stream, dice = executor.streams[0], random.Random(18)
    await view.see(b"$ ")
    texts = [
        '{"type":"resize","cols":1,"rows":1}',
        '{"type":"renew"}',
        '{"type":"seen","offset":9}',
    ]
    for number in range(300):
        if number % 10 == 0:
            stream.write(BLOCK)
        match dice.randrange(4):
            case 0:
                await view.socket.send_bytes(dice.randbytes(dice.randrange(2000)))
            case 1:
                await view.socket.send_str(dice.choice(texts))
            case 2:
                text = dice.choice(texts)
                at = dice.randrange(len(text))
                await view.socket.send_str(text[:at] + chr(dice.randrange(32, 0x2FF)) + text[at:])
            case _:
                await view.socket.ping(dice.randbytes(dice.randrange(100)))
    await view.socket.send_str('{"type":"ping"}')
    await view.hear("pong")
    stream.write(b"END")
    await control.see(b"END")
    assert bytes(control.output) == b"$ " + BLOCK * 30 + b"END"
    assert bytes(stream.typed) == b""
    assert stream.sizes == [(80, 24)]
    assert len(executor.streams) == 1


# Several shells


async def test_a_session_can_have_several_shells(hub: Hub, executor: FakeExecutor) -> None:
    one = await hub.attach(after=0)
    await one.see(b"$ ")
    two = await hub.attach(after=0, shell="5f3a")
    assert (await one.hear("shells"))["shells"] == ["", "5f3a"]
    assert (await two.hear("shells"))["shells"] == ["", "5f3a"]
    await two.socket.send_bytes(b"two")
    executor.streams[1].write(b"of two")
    await two.see(b"of two")
    await executor.streams[1].until_typed(b"two")
    assert not executor.streams[0].typed
    assert bytes(one.output) == b"$ "
    assert hub.registry.get_sample_value("fumarole_hub_shells") == 2
    # A client finds the shell by its name until the shell exits.
    await two.socket.close()
    again = await hub.attach(after=0, shell="5f3a")
    await again.see(b"of two")
    executor.streams[1].exit(0)
    assert await again.until_closed() == ENDED
    while one.said("shells")[-1]["shells"] != [""]:
        assert await one.next()
    assert len(executor.streams) == 2


async def test_the_number_of_shells_is_bounded_and_viewers_open_none(
    hub: Hub, executor: FakeExecutor
) -> None:
    view = await hub.attach(mode="view", shell="mine")
    assert await view.until_closed() == ENDED
    assert view.said("refused")
    await (await hub.attach()).see(b"$ ")
    clients = [await hub.attach(shell=f"s{number}") for number in range(7)]
    for client in clients:
        await client.see(b"$ ")
    ninth = await hub.attach(shell="s9")
    assert await ninth.until_closed() == ENDED
    assert "8 shells" in ninth.said("refused")[0]["message"]
    assert len(executor.streams) == 8
    # An exited shell frees its slot, and viewers do not reopen it.
    executor.streams[3].exit(0)
    assert await clients[2].until_closed() == ENDED
    await attached_are(hub, 7)
    room = await hub.attach(shell="s9")
    await room.see(b"$ ")
    late = await hub.attach(mode="view", shell="s2")
    assert await late.until_closed() == ENDED
    assert late.said("refused")


async def test_hub_shutdown_ends_all_shells(
    store: Store, clock: Clock, executor: FakeExecutor, session: None
) -> None:
    async with hub_serving(store, clock, executor) as hub:
        await assign(hub)
        await (await hub.attach()).see(b"$ ")
        await (await hub.attach(shell="two")).see(b"$ ")
    assert [stream.closed for stream in executor.streams] == [True, True]
