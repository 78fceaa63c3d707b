"""Tests that many misbehaving clients leave nothing behind, and that service goes on."""

from __future__ import annotations

import asyncio
import os
import random
import time
from contextlib import suppress

import psutil
import pytest

from tests.contract import frames
from tests.contract.conftest import Serve
from tests.contract.messages import read_response, request, response
from tests.contract.rig import Rig, Session
from tests.contract.streams import Stream, StreamEnded
from tests.contract.upstream import App, echo, upgrade_response, websocket

CLIENTS = 30
SECONDS = 3.0


def descriptors(rig: Rig) -> int:
    """Return the number of descriptors that the gateway has open."""
    return len(os.listdir(f"/proc/{rig.process.pid}/fd"))


def connections(rig: Rig) -> list[str]:
    """Return the gateway's TCP connections, for the message of a failure."""
    found = psutil.Process(rig.process.pid).net_connections("tcp")
    return [f"{one.laddr} {one.raddr} {one.status}" for one in found if one.raddr]


async def back_to(rig: Rig, before: int) -> None:
    """Wait until the gateway has hardly more descriptors than *before*."""
    deadline = time.monotonic() + 6.0
    while (now := descriptors(rig)) > before + 4:
        assert time.monotonic() < deadline, (now, before, connections(rig))
        await asyncio.sleep(0.1)


async def moody(app: App, stream: Stream) -> None:
    """Respond in every way that an app may, valid and invalid."""
    dice = random.Random(len(app.connections))
    while True:
        one = await app.request(stream)
        app.requests.clear()
        key = one.get("Sec-WebSocket-Key")
        await asyncio.sleep(dice.choice((0, 0, 0.01, 0.1)))
        match dice.randrange(6):
            case 0:
                return stream.reset()
            case 1:
                stream.send(response("200 OK", "Content-Length: 50") + b"half")
                return None
            case 2 | 3 if key is not None:
                stream.send(
                    upgrade_response(key) + frames.encode(frames.BINARY, bytes(5000))[:4000]
                )
                await asyncio.sleep(0.05)
                return None
            case _:
                stream.send(response("200 OK", body=b"" if one.method == "HEAD" else b"ok"))


class Client:
    """Misbehaves in one way after another toward a few sessions."""

    def __init__(self, rig: Rig, sessions: list[tuple[Session, list[tuple[str, str]]]]) -> None:
        self.rig = rig
        self.sessions = sessions

    async def run(self, dice: random.Random, until: float) -> None:
        """Go on until the time is over."""
        while time.monotonic() < until:
            session, own = dice.choice(self.sessions)
            stream = await self.rig.connect()
            with suppress(StreamEnded, TimeoutError):
                await self.once(stream, session, own, dice)
            stream.reset() if dice.random() < 0.5 else stream.close()

    async def once(
        self, stream: Stream, session: Session, own: list[tuple[str, str]], dice: random.Random
    ) -> None:
        """Send one of several requests, and leave early half of the time."""
        upgrade = dice.random() < 0.4
        fields = [*own, *frames.HANDSHAKE] if upgrade else own
        body = bytes(dice.choice((0, 10, 100_000))) if not upgrade and dice.random() < 0.4 else None
        method = "POST" if body is not None else "GET"
        data = request(method, "/", host=session.host, fields=fields, body=body)
        stream.send(data[: dice.choice((len(data), len(data), len(data) // 2))])
        if dice.random() < 0.2:
            return stream.half_close()
        if dice.random() < 0.6:
            one = await read_response(stream, method, 2.0)
            if one.status == 101:
                stream.send(os.urandom(dice.choice((1, 50, 5000))))
                await asyncio.sleep(dice.choice((0, 0.02)))
        return None


@pytest.mark.parametrize("revoking", [False, True])
async def test_after_random_connections_no_resource_is_left(
    rig: Rig, serve: Serve, revoking: bool
) -> None:
    app = await serve(moody)
    calm, calm_own = await rig.entered(await serve())
    assert (await rig.get(calm, fields=calm_own)).status == 200
    sessions = [await rig.entered(app) for _ in range(4)]
    before = descriptors(rig)
    gone: list[Session] = []
    dice = random.Random(11)
    client, until = Client(rig, sessions), time.monotonic() + SECONDS

    async def revoke() -> None:
        while time.monotonic() < until:
            await asyncio.sleep(0.2)
            index = dice.randrange(len(sessions))
            session = sessions[index][0]
            match dice.randrange(3):
                case 0:
                    await rig.bus.revoke(sid=session.sid)
                    sessions[index] = await rig.entered(app)
                    gone.append(session)
                case 1:
                    await rig.bus.remove(session.sid)
                    sessions[index] = await rig.entered(app)
                case _:
                    name = f"pod-{dice.randrange(1 << 30)}"
                    await rig.announce_change(session, target={"id": name})

    async with asyncio.TaskGroup() as group:
        for number in range(CLIENTS):
            group.create_task(client.run(random.Random(number), until))
        if revoking:
            group.create_task(revoke())
    rig.close_streams()
    # A pooled connection outlives its user's grant, but not its session.
    for session in [*gone, *(session for session, _ in sessions)]:
        await rig.bus.remove(session.sid)
    # The clients' connections are gone, and all other sessions are served as before.
    await back_to(rig, before)
    assert (await rig.get(calm, fields=calm_own)).status == 200
    assert rig.process.crashes() == []


async def test_tunnels_leak_no_descriptor(rig: Rig, serve: Serve) -> None:
    session, own = await rig.entered(await serve(websocket(echo)))
    before = descriptors(rig)
    for _ in range(3):
        streams = [await rig.tunnel(session, own[1][1]) for _ in range(40)]
        assert descriptors(rig) >= before + 60
        for number, stream in enumerate(streams):
            if number % 2:
                stream.send(frames.close(1000, mask=frames.MASK))
            else:
                stream.reset()
        await asyncio.sleep(0.05)
        rig.close_streams()
        await back_to(rig, before)


async def test_a_client_that_never_ends_its_head_is_disconnected(rig: Rig) -> None:
    session = rig.make_session()
    starts = [b"", b"GET", f"GET / HTTP/1.1\r\nHost: {session.host}\r\nA: ".encode()]
    streams = [await rig.connect() for _ in starts]
    for stream, start in zip(streams, starts, strict=True):
        stream.send(start)
    begun = time.monotonic()
    await asyncio.gather(*(stream.until_ended(14.0) for stream in streams[1:]))
    assert time.monotonic() - begun > 5.0
