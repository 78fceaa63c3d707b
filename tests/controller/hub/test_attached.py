"""Tests clients attached to one terminal: what each sees, and how they affect each other."""

from __future__ import annotations

import asyncio

import pytest

from controller.hub import attached
from controller.hub.protocol import MAX_FRAME_BYTES, TRY_LATER
from tests.controller.hub.attaching import Hub
from tests.controller.hub.streams import FakeExecutor


async def test_a_client_receives_output_and_sends_input(hub: Hub, executor: FakeExecutor) -> None:
    client = await hub.attach()
    attached_as = await client.hear("attached")
    assert attached_as == {
        "type": "attached", "mode": "control", "resumed": False, "cols": 80, "rows": 24
    }  # fmt: skip
    await client.see(b"$ ")
    stream = executor.streams[0]
    await client.socket.send_bytes(b"ls\n")
    stream.write(b"ls\r\n\x1b[1mfile\x1b[0m")
    await client.see(b"\x1b[1mfile\x1b[0m")
    await stream.until_typed(b"ls\n")


async def test_a_split_utf_8_character_stays_whole(hub: Hub, executor: FakeExecutor) -> None:
    client = await hub.attach()
    await client.see(b"$ ")
    stream = executor.streams[0]
    for piece in ("\u20ac".encode()[:1], "\u20ac".encode()[1:], b"!"):
        stream.write(piece)
        await client.see(piece)
    assert bytes(client.output).decode().endswith("\u20ac!")
    typed = "\u20ac".encode()
    await client.socket.send_bytes(typed[:2])
    await client.socket.send_bytes(typed[2:])
    stream.write(b"end")
    await client.see(b"end")
    await stream.until_typed(typed)
    # A client that attaches later sees it too.
    second = await hub.attach()
    await second.see("\u20ac!".encode())


async def test_the_second_client_receives_the_scrollback(hub: Hub, executor: FakeExecutor) -> None:
    first = await hub.attach()
    await first.see(b"$ ")
    executor.streams[0].write(b"left behind \x1b[6n")
    await first.see(b"\x1b[6n")
    await first.socket.close()
    second = await hub.attach()
    assert (await second.hear("attached"))["resumed"] is True
    await second.see(b"$ left behind ")
    executor.streams[0].write(b"!")
    await second.see(b"!")
    assert second.output == b"$ left behind !", "the query of the past is not asked again"
    assert len(executor.streams) == 1


async def test_several_clients_share_output_and_the_controlling_one_sets_the_size(
    hub: Hub, executor: FakeExecutor
) -> None:
    control, view = await hub.attach(), await hub.attach(mode="view")
    assert (await view.hear("attached"))["mode"] == "view"
    await control.socket.send_str('{"type":"resize","cols":132,"rows":43}')
    assert await view.hear("resized") == {"type": "resized", "cols": 132, "rows": 43}
    executor.streams[0].write(b"both")
    await control.see(b"both")
    await view.see(b"both")
    assert executor.streams[0].sizes[-1] == (132, 43)


async def test_a_viewer_can_neither_type_nor_resize(hub: Hub, executor: FakeExecutor) -> None:
    view, control = await hub.attach(mode="view"), await hub.attach()
    await view.socket.send_bytes(b"rm -rf /\n")
    await view.socket.send_str('{"type":"resize","cols":1,"rows":1}')
    await control.socket.send_bytes(b"w\n")
    # The hub handles the messages of a client in order: all before the ping have had their effect.
    for client in (view, control):
        await client.socket.send_str('{"type":"ping"}')
        await client.hear("pong")
    assert bytes(executor.streams[0].typed) == b"w\n"
    assert executor.streams[0].sizes == [(80, 24)]


async def test_unknown_control_messages_are_ignored(hub: Hub, executor: FakeExecutor) -> None:
    client = await hub.attach()
    for text in ("", "{", '{"type":"later"}', '{"type":"resize","cols":-1,"rows":1}', "[" * 4000):
        await client.socket.send_str(text)
    await client.socket.send_bytes(b"still here")
    executor.streams[0].write(b"answer")
    await client.see(b"answer")
    await executor.streams[0].until_typed(b"still here")


async def test_a_frame_of_more_than_a_mebibyte_is_refused(hub: Hub, executor: FakeExecutor) -> None:
    client, other = await hub.attach(), await hub.attach()
    await client.socket.send_bytes(b"x" * (MAX_FRAME_BYTES + 1))
    assert await client.until_closed() == 1009
    executor.streams[0].write(b"others go on")
    await other.see(b"others go on")
    assert not executor.streams[0].typed


async def test_a_stalled_client_does_not_stall_others(
    hub: Hub, executor: FakeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attached, "STUCK_SECONDS", 0.3)
    stuck, reading = await hub.attach(), await hub.attach()
    await reading.hear("attached")
    executor.streams[0].write(*[b"x" * 32768] * 640, b"END")
    await reading.see(b"END")
    assert len(reading.output) == 2 + 640 * 32768 + 3, "whoever reads misses nothing"
    # The kernel's buffers accept data as well: continue until they are full too.
    async with asyncio.timeout(20):
        while hub.registry.get_sample_value("fumarole_hub_clients") == 2:
            executor.streams[0].write(b"x" * 32768)
            await reading.next()
    assert await stuck.until_closed() in (TRY_LATER, 1006)
    executor.streams[0].write(b"on and on")
    await reading.see(b"on and on")


async def test_a_client_that_fell_behind_is_told_how_much_it_missed(
    hub: Hub, executor: FakeExecutor
) -> None:
    slow, fast = await hub.attach(), await hub.attach()
    executor.streams[0].write(*[b"y" * 32768] * 640, b"END")
    await fast.see(b"END")
    await slow.see(b"END")
    skipped = (await slow.hear("skipped"))["bytes"]
    # The received bytes, the skipped bytes and the reset after each gap add up to the whole.
    gaps = slow.output.count(b"\x18\x1b[m")
    missed = sum(text["bytes"] for text in slow.texts if text["type"] == "skipped")
    assert skipped > 0
    assert len(slow.output) - 4 * gaps + missed == 2 + 640 * 32768 + 3
