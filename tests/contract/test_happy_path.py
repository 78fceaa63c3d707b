"""Tests the shortest path: a session is published and opened, and its app answers."""

from __future__ import annotations

from tests.contract import frames
from tests.contract.conftest import Serve
from tests.contract.rig import Rig
from tests.contract.upstream import websocket


async def test_an_opened_session_reaches_its_app(rig: Rig, serve: Serve) -> None:
    app = await serve()
    session = await rig.session(app)
    response = await rig.get(session, "/x?y=1", [("Cookie", await rig.opened(session))])
    assert (response.status, response.body) == (200, b"ok")
    assert app.requests[0].target == "/x?y=1"
    assert app.requests[0].get("Host") == session.host


async def test_an_opened_session_reaches_its_apps_websocket(rig: Rig, serve: Serve) -> None:
    session = await rig.session(await serve(websocket()))
    stream = await rig.tunnel(session, await rig.opened(session))
    stream.send(frames.encode(frames.TEXT, b"hello", mask=frames.MASK))
    assert (await frames.read_frame(stream)).payload == b"hello"


async def test_the_link_alone_opens_nothing(rig: Rig, serve: Serve) -> None:
    app = await serve()
    session = await rig.session(app)
    assert (await rig.get(session)).status == 401
    assert app.connections == []
