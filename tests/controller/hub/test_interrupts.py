"""Tests an interrupt during a flood of output: which bytes are sent before its effect."""

from __future__ import annotations

import asyncio

import pytest

from controller.hub import interrupts, shell
from controller.hub.shell import WINDOW_BYTES
from controller.hub.window import LEAST_BYTES
from tests.controller.hub.attaching import Client, Hub
from tests.controller.hub.streams import FakeExecutor, FakeStream

BLOCKS = [b"".join(b"%07d\r\n" % (4096 * n + i) for i in range(4096)) for n in range(400)]
INTERRUPTS = sorted(interrupts.INTERRUPTS)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    # An unread stream stays paused, however long a busy machine takes to check it.
    monkeypatch.setattr(shell, "PAUSE_SECONDS", 60.0)


async def slow(hub: Hub, *, mode: str = "control") -> Client:
    """Attach a client that acknowledges the prompt and nothing after it."""
    client = await hub.attach(mode="view" if mode == "view" else "control", after=0)
    await client.see(b"$ ")
    await client.socket.send_str('{"type":"seen","offset":2}')
    await answered(client)
    return client


async def show_all(client: Client) -> None:
    """Acknowledge everything that *client* received."""
    await answered(client)
    shown = len(client.output) + sum(text["bytes"] for text in client.said("skipped"))
    await client.socket.send_str(f'{{"type":"seen","offset":{shown}}}')


async def until_skipped(client: Client) -> int:
    """Acknowledge as a page does until the hub skips output; return the number of skipped bytes."""
    async with asyncio.timeout(10):
        while not client.said("skipped"):
            await show_all(client)
    await show_all(client)
    (skipped,) = client.said("skipped")
    count: int = skipped["bytes"]
    return count


async def answered(client: Client) -> None:
    """Wait until the hub has read everything that *client* sent."""
    await client.socket.send_str('{"type":"ping"}')
    pongs = len(client.said("pong"))
    while len(client.said("pong")) == pongs:
        assert await client.next()


async def paused(stream: FakeStream) -> int:
    """Wait until the hub stops reading *stream*; return how many bytes it read."""
    async with asyncio.timeout(20):
        while stream.read <= LEAST_BYTES + WINDOW_BYTES:
            await asyncio.sleep(0.01)
    read = -1
    while read != stream.read:
        read = stream.read
        await asyncio.sleep(0.05)
    return read


@pytest.mark.parametrize("key", INTERRUPTS)
async def test_an_interrupt_discards_output_not_yet_sent_to_the_client(
    hub: Hub, executor: FakeExecutor, key: bytes
) -> None:
    client = await slow(hub)
    stream = executor.streams[0]
    stream.write(*BLOCKS)
    assert await paused(stream) <= LEAST_BYTES + WINDOW_BYTES + 4 * 65536
    await client.socket.send_bytes(key)
    stream.write(b"^C\r\n$ ")
    gap = await until_skipped(client)
    await client.see(b"^C\r\n$ ")
    whole = b"$ " + b"".join(BLOCKS) + b"^C\r\n$ "
    assert gap == len(whole) - len(client.output), "what was left out is told"
    assert len(client.output) <= LEAST_BYTES + 2 * WINDOW_BYTES + 2 * 65536
    front = next(at for at, (a, b) in enumerate(zip(whole, client.output, strict=False)) if a != b)
    assert bytes(client.output) == whole[:front] + whole[front + gap :], "in order"


async def test_discarded_output_is_still_in_the_scrollback(
    hub: Hub, executor: FakeExecutor
) -> None:
    client = await slow(hub)
    executor.streams[0].write(*BLOCKS[:100])
    await paused(executor.streams[0])
    await client.socket.send_bytes(b"\x03")
    executor.streams[0].write(b"END")
    await until_skipped(client)
    again = await hub.attach(after=0)
    await again.see(b"END")
    assert bytes(again.output) == b"$ " + b"".join(BLOCKS[:100]) + b"END"


async def test_an_interrupt_discards_nothing_of_a_client_that_keeps_up(
    hub: Hub, executor: FakeExecutor
) -> None:
    client = await hub.attach(after=0)
    await client.see(b"$ ")
    stream = executor.streams[0]
    for number in range(0, 100, 20):
        stream.write(*BLOCKS[number : number + 20])
        await client.see(BLOCKS[number + 19][-9:])
        await client.socket.send_bytes(b"\x03")
        await answered(client)
    stream.write(b"END")
    await client.see(b"END")
    assert bytes(client.output) == b"$ " + b"".join(BLOCKS[:100]) + b"END"
    assert not client.said("skipped")


@pytest.mark.parametrize("typed", [b"c", b"\x03\x03", b"x\x03"])
async def test_other_input_discards_no_output(
    hub: Hub, executor: FakeExecutor, typed: bytes
) -> None:
    client = await slow(hub)
    stream = executor.streams[0]
    stream.write(*BLOCKS)
    read = await paused(stream)
    await client.socket.send_bytes(typed)
    await answered(client)
    assert stream.read - read <= 4 * 65536


async def test_an_interrupt_of_a_viewer_discards_no_output(
    hub: Hub, executor: FakeExecutor
) -> None:
    client = await slow(hub, mode="view")
    stream = executor.streams[0]
    stream.write(*BLOCKS)
    read = await paused(stream)
    await client.socket.send_bytes(b"\x03")
    await answered(client)
    assert stream.read - read <= 4 * 65536


async def test_a_program_that_ignores_the_interrupt_gets_backpressure_again(
    hub: Hub, executor: FakeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interrupts, "DRAIN_SECONDS", 0.3)
    client = await slow(hub)
    stream, stop = executor.streams[0], asyncio.Event()

    async def write_on() -> None:
        while not stop.is_set():
            if stream.output.qsize() < 10:
                stream.write(BLOCKS[0])
            await asyncio.sleep(0)

    writing = asyncio.create_task(write_on())
    await paused(stream)
    await client.socket.send_bytes(b"\x03")
    await until_skipped(client)
    await paused(stream)
    stop.set()
    await writing


async def test_a_shell_that_exits_at_an_interrupt_delivers_its_last_output(
    hub: Hub, executor: FakeExecutor
) -> None:
    client = await slow(hub)
    stream = executor.streams[0]
    stream.write(*BLOCKS[:100])
    await paused(stream)
    await client.socket.send_bytes(b"\x03")
    stream.write(b"last words")
    stream.exit(130)
    assert await client.until_closed() == 4410
    assert client.output.endswith(b"last words")
    assert client.said("exit")[0]["code"] == 130
