"""Tests the data that this folder's tests use about the gateway's connections."""

from __future__ import annotations

from tests.contract.upstream import App, websocket
from tests.pressure.gateway_under_test import PressureRig


async def test_apps_of_two_hosts_at_one_port_are_distinguished(plain: PressureRig) -> None:
    async with plain.app(websocket()) as one, App(websocket(), "127.0.0.2", one.port) as other:
        assert one.port == other.port
        for app in (one, other):
            session, own = await plain.entered(app)
            await plain.rig.upgrade(session, "/", own)
            assert len(plain.legs_of(app.address)) == 1
        one.connections[0].reset()
        assert await plain.freed(one.address, 10.0) is not None
        assert len(plain.legs_of(other.address)) == 1
