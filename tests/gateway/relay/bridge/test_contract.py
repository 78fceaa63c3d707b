"""Admitted upgrades of desktops and terminals are handed over to a bridge."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from websockets.server import ServerProtocol

from gateway.core.access.access_right import AccessRight, EndReason
from gateway.core.frames import close_frame
from gateway.relay.context import UpgradeRequest
from gateway.relay.http.downstream import DownstreamConnection
from shared.tokens import SessionClaims
from tests.gateway.relay.harness import (
    HOST,
    ORIGIN,
    SID,
    rig,
    route,
    status_of,
    upgrade,
)
from tests.gateway.relay.http.test_admission import claims


class Echo(asyncio.Protocol):
    """Accepts the upgrade and echoes bytes in its own frames."""

    kind = "vnc"
    transport: asyncio.Transport | None = None

    def __init__(self, request: UpgradeRequest) -> None:
        self.request = request
        self.access_right: AccessRight = request.access_right
        self.protocol = ServerProtocol()

    def check_stalls(self) -> None:
        """Watch nothing."""

    @property
    def client(self) -> str:
        return self.access_right.user or ""

    def buffered_bytes(self) -> int:
        return 0

    def shed(self) -> None:
        """Buffer nothing."""

    def connection_lost(self, exc: Exception | None) -> None:
        self.request.context.live.discard(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.request.context.live.add(self)
        self.protocol.receive_data(self.request.head)
        (event,) = self.protocol.events_received()
        self.protocol.send_response(self.protocol.accept(event))  # type: ignore[arg-type]  # a request
        self._flush()

    def data_received(self, data: bytes) -> None:
        self.protocol.receive_data(data)
        for event in self.protocol.events_received():
            self.protocol.send_binary(event.data)  # type: ignore[union-attr]  # a frame
        self._flush()

    def end(self, ending: EndReason) -> None:
        assert self.transport is not None
        self.transport.write(close_frame(ending.close_code, ending.close_reason))
        self.transport.close()

    def _flush(self) -> None:
        assert self.transport is not None
        for data in self.protocol.data_to_send():
            self.transport.write(data)


DESKTOP = {"kind": "vnc", "target": {"scheme": "tcp"}}
TOKEN = "Fumarole-Token: good"
MASKED = bytes.fromhex("8283 00000000 616263")


async def test_a_bridge_receives_the_upgrade_and_the_bytes_after_it() -> None:
    made: list[UpgradeRequest] = []

    def factory(request: UpgradeRequest) -> Echo:
        made.append(request)
        return Echo(request)

    async with rig(bridges={"vnc": factory}, route_changes=DESKTOP) as r:
        browser = await r.browser()
        browser.send(
            upgrade(
                "/.fumarole/connect",
                "Sec-WebSocket-Protocol: binary, other",
                "Sec-WebSocket-Extensions: permessage-deflate",
            )
            + MASKED
        )
        head = await browser.head()
        assert status_of(head) == 101
        assert b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head
        assert await browser.exactly(5) == b"\x82\x03abc"
        browser.send(MASKED)
        assert await browser.exactly(5) == b"\x82\x03abc"
        (request,) = made
        assert request.protocols == ("binary", "other")
        assert request.access_right.address == "127.0.0.1"
        assert request.access_right.grant is not None
        assert request.access_right.grant.sub == "ada"
        assert (
            request.head
            == (
                f"GET /.fumarole/connect HTTP/1.1\r\nHost: {HOST}\r\n"
                "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                f"Origin: {ORIGIN}\r\nSec-WebSocket-Protocol: binary, other\r\n\r\n"
            ).encode()
        )
        assert len(r.live) == 1
        r.world.upsert(route(r.app.port, rev=2, **DESKTOP))
        assert request.access_right.route.rev == 2
        r.world.revoke(sid=SID)
        assert await browser.rest() == close_frame(4401, "grant revoked")
        assert len(r.live) == 0
        assert r.app.count == 0


async def test_a_bridge_receives_only_named_subprotocols() -> None:
    made: list[UpgradeRequest] = []

    def factory(request: UpgradeRequest) -> Echo:
        made.append(request)
        return Echo(request)

    async with rig(bridges={"vnc": factory}, route_changes=DESKTOP) as r:
        for fields in ((), ("Sec-WebSocket-Protocol: binary ,, other, ",)):
            browser = await r.browser()
            browser.send(upgrade("/.fumarole/connect", *fields))
            assert status_of(await browser.head()) == 101
        assert [one.protocols for one in made] == [(), ("binary", "other")]


async def test_a_bridge_receives_all_frames_sent_during_token_verification() -> None:
    async with rig(bridges={"vnc": Echo}, route_changes=DESKTOP) as r:
        r.gate.tokens["good"] = claims(kind="vnc")
        proven, verify = asyncio.Event(), r.gate.verify

        async def slow(token: str, *, address: str) -> SessionClaims:
            await proven.wait()
            return await verify(token, address=address)

        r.gate.verify = slow  # type: ignore[method-assign]  # only slower
        browser = await r.browser()
        raw = upgrade("/.fumarole/connect", credential=TOKEN, origin=None)
        # More than is kept: the connection is not read any more.
        browser.send(raw + MASKED * 20_000)
        await asyncio.sleep(0.05)
        proven.set()
        assert status_of(await browser.head()) == 101
        assert await browser.exactly(5 * 20_000) == b"\x82\x03abc" * 20_000


@pytest.mark.parametrize("full", [False, True])
async def test_a_bridge_knows_whether_its_browser_has_unread_output(full: bool) -> None:
    reported: list[str] = []

    class RecordingBridge(Echo):
        def pause_writing(self) -> None:
            reported.append("pause")

    async with rig(bridges={"vnc": RecordingBridge}, route_changes=DESKTOP) as r:
        r.gate.tokens["good"] = claims(kind="vnc")
        asked, proven, verify = asyncio.Event(), asyncio.Event(), r.gate.verify

        async def slow(token: str, *, address: str) -> SessionClaims:
            asked.set()
            await proven.wait()
            return await verify(token, address=address)

        r.gate.verify = slow  # type: ignore[method-assign]  # only slower
        browser = await r.browser()
        browser.send(upgrade("/.fumarole/connect", credential=TOKEN, origin=None))
        await asked.wait()
        (front,) = r.path.connections
        assert isinstance(front, DownstreamConnection)
        if full:  # what was written before is still on its way, as the loop says after its turn
            front.pause_writing()
        proven.set()
        assert status_of(await browser.head()) == 101
        assert reported == ["pause"] * full


async def test_no_bridge_is_created_for_a_refused_request() -> None:
    def factory(request: UpgradeRequest) -> Echo:
        raise AssertionError("made")

    async with rig(bridges={"vnc": factory}, route_changes=DESKTOP) as r:
        for raw, status in (
            (upgrade("/.fumarole/connect", credential=None), 401),
            (upgrade("/.fumarole/connect", origin=None), 403),
            (upgrade("/.fumarole/connect", origin="http://evil.example"), 403),
        ):
            assert (await r.ask(raw))[0] == status
        r.world.upsert(route(r.app.port, rev=2, state="starting", **DESKTOP))
        assert (await r.ask(upgrade("/.fumarole/connect")))[0] == 503
        r.world.upsert(route(r.app.port, rev=3, state="closing", **DESKTOP))
        assert (await r.ask(upgrade("/.fumarole/connect")))[0] == 410
