"""Tests that no request reaches a withdrawn target, with and without load."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable

import pytest

from tests.contract import frames
from tests.contract.conftest import Serve
from tests.contract.messages import read_response, request, response
from tests.contract.rig import Rig, Session
from tests.contract.streams import Stream, StreamEnded
from tests.contract.upstream import PATIENCE_SECONDS, App, upgrade_response
from tests.waiting import until

CHANGES = 25
CLIENTS = 12


async def numbered(app: App, stream: Stream) -> None:
    """Respond with the number of the connection, sometimes late; accept upgrades too."""
    number = str(len(app.connections) - 1).encode()
    dice = random.Random(int(number))
    while True:
        one = await app.request(stream)
        await asyncio.sleep(dice.choice((0, 0, 0.005, 0.03)))
        key = one.get("Sec-WebSocket-Key")
        if key is None:
            stream.send(response("200 OK", body=number))
            continue
        stream.send(upgrade_response(key) + frames.encode(frames.TEXT, number))
        await stream.until_ended(PATIENCE_SECONDS)
        return


async def ask(rig: Rig, session: Session, own: list[tuple[str, str]], how: str) -> int | None:
    """Return the number of the connection that responds, or None if the gateway itself does."""
    fields = own if how == "request" else [*own, *frames.HANDSHAKE]
    stream = await rig.connect()
    stream.send(request("GET", "/", host=session.host, fields=fields))
    one = await read_response(stream)
    number = None
    if one.status == 200:
        number = int(one.body)
    elif one.status == 101:
        number = int((await frames.read_frame(stream)).payload)
    else:
        assert one.status in (502, 503), one.status
    stream.close()
    return number


@pytest.mark.parametrize("how", ["request", "tunnel"])
async def test_after_a_target_id_change_no_pooled_connection_is_used(
    rig: Rig, serve: Serve, how: str
) -> None:
    app = await serve(numbered)
    session, own = await rig.entered(app)
    since, wrong, right, busy = 0, [], 0, True

    async def client() -> None:
        nonlocal right
        while busy:
            oldest = since
            number = await ask(rig, session, own, how)
            if number is None:
                continue
            right += number >= oldest
            if number < oldest:
                wrong.append((number, oldest))

    async def change() -> None:
        nonlocal since, busy
        try:
            for turn in range(CHANGES):
                before = len(app.connections)
                await rig.change(session, target={"id": f"pod {turn}"})
                since, seen = before, right
                # The next change comes while requests to this target are under way.
                await until(lambda seen=seen: right > seen)
        finally:
            busy = False

    async with asyncio.TaskGroup() as group:
        for _ in range(CLIENTS):
            group.create_task(patient(client))
        group.create_task(change())
    assert wrong == []
    assert right > CHANGES


async def patient(client: Callable[[], Awaitable[None]]) -> None:
    """Run *client*, and run it again when a change of target resets its connection."""
    while True:
        try:
            return await client()
        except (StreamEnded, ConnectionResetError):
            continue


@pytest.mark.parametrize("state", ["removed", "starting", "closing", "expired"])
async def test_a_withdrawn_target_receives_no_further_request(
    rig: Rig, serve: Serve, state: str
) -> None:
    app = await serve(numbered)
    session, own = await rig.entered(app)
    busy = True

    async def client() -> None:
        while busy:
            await ask_freely(rig, session, own)

    async with asyncio.TaskGroup() as group:
        for _ in range(CLIENTS):
            group.create_task(patient(client))
        await until(lambda: len(app.requests) > CLIENTS)
        match state:
            case "removed":
                await rig.bus.remove(session.sid)
            case "expired":
                await rig.announce_change(session, expires_at=time.time() - 1)
            case _:
                await rig.announce_change(session, state=state)
        await rig.settled()
        # Bytes that the gateway sent before may still be on their way to the app.
        await asyncio.sleep(0.05)
        connections, requests = len(app.connections), len(app.requests)
        await asyncio.sleep(0.3)
        busy = False
    assert requests > 0
    assert (len(app.connections), len(app.requests)) == (connections, requests)


async def ask_freely(rig: Rig, session: Session, own: list[tuple[str, str]]) -> None:
    """Send a request, and accept any response."""
    stream = await rig.connect()
    stream.send(request("GET", "/", host=session.host, fields=own))
    await read_response(stream)
    stream.close()
    await asyncio.sleep(0.002)
