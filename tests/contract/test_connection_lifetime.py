"""Tests that connections end with their route, target or grant, and not before."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tests.contract.conftest import Serve
from tests.contract.frames import (
    CLOSE,
    MASK,
    PING,
    alive,
    encode,
    last_frame,
    read_frame,
)
from tests.contract.messages import read_response, request, response
from tests.contract.rig import Rig
from tests.contract.streams import Stream
from tests.contract.upstream import OK, App, echo, listen, responding, websocket
from tests.timing import timed

# The route


async def ended_by(rig: Rig, serve: Serve, **change: Any) -> tuple[int | None, int, int]:
    """Return a tunnel's close code after *change*, and the status for the cookie afterwards."""
    app = await serve(websocket())
    session, own = await rig.entered(app)
    stream = await rig.tunnel(session, own[1][1])
    assert (await rig.get(session, fields=own)).status == 200
    if change.pop("remove", False):
        await rig.bus.remove(session.sid)
    else:
        await rig.announce_change(session, **change)
    code = (await last_frame(stream)).code
    await app.connections[0].until_ended()
    if "target" in change:
        await app.connections[1].until_ended()  # the pooled connection of the request
    before = len(app.connections)
    status = (await rig.get(session, fields=own)).status
    return code, status, len(app.connections) - before


async def test_a_session_that_has_ended_ends_its_tunnels(rig: Rig, serve: Serve) -> None:
    assert await ended_by(rig, serve, remove=True) == (4410, 410, 0)


async def test_a_session_that_starts_again_ends_its_tunnels(rig: Rig, serve: Serve) -> None:
    assert await ended_by(rig, serve, state="starting") == (1012, 503, 0)


async def test_another_jobs_program_at_a_withdrawn_address_receives_no_byte(
    rig: Rig, serve: Serve
) -> None:
    first = await serve(websocket())
    old, cookie, stream = await rig.opened_with_tunnel(first)
    own = rig.own(old, cookie)
    assert (await rig.get(old, fields=own)).body == b"ok"
    # The pod dies without a FIN, and another tenant's pod gets its address.
    first.stop_listening()
    second = await serve(responding(response("200 OK", body=b"second")), port=first.port)
    await rig.bus.remove(old.sid)
    assert (await last_frame(stream)).code == 4410
    await asyncio.gather(*(one.until_ended() for one in first.connections))
    new = await rig.session(second, job="j2", owner="bob")
    assert (await rig.get(old, fields=own)).status == 410
    assert (await rig.upgrade(old, "/", own))[1].status == 410
    assert (await rig.get(new, fields=rig.own(new, cookie))).status in (401, 403)
    assert second.connections == []
    # The new pod is there, and answers its own users.
    theirs = rig.own(new, await rig.opened(new, sub="bob"))
    assert (await rig.get(new, fields=theirs)).body == b"second"


async def test_a_session_that_has_expired_ends_its_tunnels(rig: Rig, serve: Serve) -> None:
    assert await ended_by(rig, serve, expires_at=time.time() - 1) == (4410, 410, 0)


async def test_a_shortened_expiry_ends_tunnels_when_it_passes(rig: Rig, serve: Serve) -> None:
    start = time.monotonic()
    with timed(rig.process.pid) as took:
        assert await ended_by(rig, serve, expires_at=time.time() + 1) == (4410, 410, 0)
    assert time.monotonic() - start > 0.8
    assert took.seconds < 2.5


async def test_a_session_that_expires_ends_its_tunnels(rig: Rig, serve: Serve) -> None:
    session, own = await rig.entered(await serve(websocket()), expires_at=time.time() + 1.5)
    stream = await rig.tunnel(session, own[1][1])
    await alive(stream)
    assert (await last_frame(stream)).code == 4410


async def test_another_target_at_the_same_address_ends_tunnels_and_keeps_grants(
    rig: Rig, serve: Serve
) -> None:
    assert await ended_by(rig, serve, target={"id": "the next pod"}) == (1012, 200, 1)


async def test_a_route_update_with_the_same_target_closes_no_connection(
    rig: Rig, serve: Serve
) -> None:
    app = await serve(websocket())
    session, own = await rig.entered(app)
    stream = await rig.tunnel(session, own[1][1])
    for change in ({"message": "hello"}, {"expires_at": time.time() + 60}, {"expires_at": None}):
        await rig.change(session, **change)
    await rig.change(session)
    await alive(stream)


async def test_a_closing_route_keeps_open_tunnels(rig: Rig, serve: Serve) -> None:
    app = await serve(websocket())
    session, own = await rig.entered(app)
    stream = await rig.tunnel(session, own[1][1])
    await rig.change(session, state="closing")
    await alive(stream)
    assert (await rig.get(session, fields=own)).status == 410
    assert (await rig.upgrade(session, "/", own))[1].status == 410
    await alive(stream)


async def test_a_closing_route_keeps_a_response_in_progress(rig: Rig, serve: Serve) -> None:
    async def script(app: App, stream: Stream) -> None:
        await app.request(stream)
        stream.send(response("200 OK", "Content-Length: 10") + b"hello")
        await asyncio.sleep(0.5)
        stream.send(b"world")

    session, own = await rig.entered(await serve(script))
    stream = await rig.connect()
    stream.send(request("GET", "/", host=session.host, fields=own))
    await stream.read_until(b"hello")
    await rig.change(session, state="closing")
    await stream.read_until(b"world")


@pytest.mark.parametrize("head_sent", [False, True])
async def test_a_changed_target_ends_requests_in_progress(
    rig: Rig, serve: Serve, head_sent: bool
) -> None:
    async def script(app: App, stream: Stream) -> None:
        await app.request(stream)
        if head_sent:
            stream.send(response("200 OK", "Content-Length: 10") + b"hello")
        await asyncio.sleep(1.0)
        stream.send(b"world" if head_sent else OK)

    app = await serve(script)
    session, own = await rig.entered(app)
    stream = await rig.connect()
    stream.send(request("GET", "/", host=session.host, fields=own))
    while not app.requests:
        await asyncio.sleep(0.01)
    if head_sent:
        await stream.read_until(b"hello")
    await rig.announce_change(session, target={"id": "the next pod"})
    if head_sent:
        await stream.until_ended(0.8)
        assert b"world" not in stream.received
    else:
        assert (await read_response(stream, seconds=0.8)).status == 503
    await app.connections[0].until_ended(0.8)


async def test_a_changed_address_is_used_for_the_next_request(rig: Rig, serve: Serve) -> None:
    old, new = await serve(), await serve()
    session, own = await rig.entered(old)
    assert (await rig.get(session, fields=own)).status == 200
    await rig.change(session, target={"port": new.port, "id": "the next pod"})
    for _ in range(3):
        assert (await rig.get(session, fields=own)).status == 200
    assert (len(old.requests), len(new.requests)) == (1, 3)


# max_age


async def test_a_tunnel_ends_with_its_grant_despite_pings(rig: Rig, serve: Serve) -> None:
    session = await rig.session(await serve(websocket(echo)))
    # The token was issued 30 s ago; the grant's time counts from then.
    cookie = await rig.opened(session, iat=int(time.time()) - 30, max_age=32)
    stream = await rig.tunnel(session, cookie)
    start = time.monotonic()
    while True:
        stream.send(encode(PING, b"x", mask=MASK))
        frame = await read_frame(stream)
        if frame.opcode == CLOSE:
            break
        await rig.get(session, fields=[("Cookie", cookie)])
        await asyncio.sleep(0.05)
    assert frame.code == 4401
    assert 0.5 < time.monotonic() - start < 3.0
    assert (await rig.get(session, fields=[("Cookie", cookie)])).status == 401


async def test_a_bearers_tunnel_ends_with_max_age(rig: Rig, serve: Serve) -> None:
    session = await rig.session(await serve(websocket(listen)))
    fields = [("Fumarole-Token", rig.token(session, max_age=1))]
    stream, one = await rig.upgrade(session, "/", fields)
    assert one.status == 101
    assert (await last_frame(stream)).code == 4401


async def test_a_response_in_progress_ends_with_its_grant(rig: Rig, serve: Serve) -> None:
    async def script(app: App, stream: Stream) -> None:
        await app.request(stream)
        stream.send(response("200 OK", "Content-Length: 10") + b"hello")
        await listen(stream)

    session = await rig.session(await serve(script))
    cookie = await rig.opened(session, max_age=1)
    stream = await rig.connect()
    stream.send(request("GET", "/", host=session.host, fields=[("Cookie", cookie)]))
    await stream.read_until(b"hello")
    await stream.until_ended(3.0)


async def test_opening_again_does_not_extend_open_connections(rig: Rig, serve: Serve) -> None:
    session = await rig.session(await serve(websocket(listen)))
    first = await rig.opened(session, max_age=2)
    stream = await rig.tunnel(session, first)
    again = await rig.post_open(session, rig.token(session), [("Cookie", first)])
    assert again.status == 303
    assert (await last_frame(stream, 4.0)).code == 4401
    fresh = [("Cookie", rig.cookie_of(again)), ("Origin", session.origin)]
    assert (await rig.upgrade(session, "/", fresh))[1].status == 101
