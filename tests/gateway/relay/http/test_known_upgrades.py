"""Upgrades with the fields of earlier ones: the same decision admits them as long as it holds."""

from __future__ import annotations

import asyncio
import base64
import secrets
import time
from collections.abc import Callable
from typing import Any

import pytest

from gateway.core.access.decision import Access, Decision
from gateway.core.http.request_reader import RequestHead
from gateway.core.http.upgrade import accept_value
from gateway.core.limits.values import Limits
from gateway.observers.reporter import Activities
from tests.gateway.relay.harness import (
    GRANT,
    READ_SECONDS,
    SID,
    App,
    Peer,
    Rig,
    code_of,
    rig,
    route,
    upgrade,
)
from tests.gateway.relay.websocket_frames import close_of, frame

SAME_KEY = b"dGhlIHNhbXBsZSBub25jZQ=="


async def opened(r: Rig, *, source: str | None = None, app: App | None = None) -> tuple[Peer, Peer]:
    """Open a WebSocket with a key of its own, which the app gets and proves."""
    key = base64.b64encode(secrets.token_bytes(16))
    browser = await r.browser(source)
    browser.send(upgrade().replace(SAME_KEY, key))
    peer = await (app or r.app).connection()
    head = await peer.head()
    assert head.count(b"\r\nSec-WebSocket-Key: ") == 1
    assert b"\r\nSec-WebSocket-Key: %b\r\n" % key in head
    assert b"\r\nX-Forwarded-For: %b\r\n" % (source or "127.0.0.1").encode() in head
    peer.send(
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Accept: " + accept_value(key) + b"\r\n\r\n"
    )
    assert accept_value(key) in await browser.head()
    return browser, peer


@pytest.fixture(autouse=True)
def decided(monkeypatch: pytest.MonkeyPatch) -> list[Decision]:
    """Record the decisions that are made."""
    made: list[Decision] = []
    decide = Access.decide

    def record(self: Access, request: RequestHead, **named: Any) -> Decision:
        made.append(decide(self, request, **named))
        return made[-1]

    monkeypatch.setattr(Access, "decide", record)
    return made


async def known(r: Rig) -> list[tuple[Peer, Peer]]:
    """Open as many WebSockets as it takes until one is admitted by a known decision."""
    return [await opened(r) for _ in range(3)]


async def test_the_first_upgrades_with_the_same_fields_are_decided(decided: list[Decision]) -> None:
    async with rig() as r:
        await known(r)
        assert len(decided) == 2
        for source in ("127.0.0.2", "127.0.0.3"):
            await opened(r, source=source)
        assert len(decided) == 2
        assert sorted(member.access_right.address for member in r.live.members()) == [
            "127.0.0.1", "127.0.0.1", "127.0.0.1", "127.0.0.2", "127.0.0.3",
        ]  # fmt: skip


async def test_other_fields_are_decided_anew(decided: list[Decision]) -> None:
    async with rig() as r:
        await known(r)
        assert (await r.ask(upgrade(origin="http://elsewhere.example")))[0] == 403
        assert (await r.ask(upgrade(credential=None)))[0] == 401
        assert len(decided) == 4


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        (lambda r: r.world.revoke(sid=SID, jti=GRANT.jti), 401, "grant_revoked"),
        (lambda r: r.world.revoke(sid=SID, sub=GRANT.sub), 401, "grant_revoked"),
        (lambda r: r.world.revoke(kid=GRANT.kid), 401, "grant_revoked"),
        (lambda r: r.world.upsert(route(r.app.port, state="starting")), 503, "session_starting"),
        (lambda r: r.world.upsert(route(r.app.port, state="closing")), 410, "session_closing"),
        (lambda r: r.world.upsert(route(r.app.port, expires_at=1.0)), 410, "session_expired"),
        (lambda r: r.world.upsert(route(r.app.port, kind="later")), 503, "session_unreadable"),
        (lambda r: r.world.remove(), 410, "session_ended"),
    ],
)
async def test_a_known_decision_admits_nothing_after_the_right_has_ended(
    change: Callable[[Rig], None], status: int, code: str
) -> None:
    async with rig() as r:
        await known(r)
        change(r)
        answered, raw = await r.ask(upgrade())
        assert (answered, code_of(raw.partition(b"\r\n\r\n")[2])) == (status, code)


async def test_a_known_decision_ends_with_its_grant_without_an_event() -> None:
    times = [time.time()]
    async with rig(wall=lambda: times[0]) as r:
        await known(r)
        times[0] = GRANT.ends_at
        assert (await r.ask(upgrade()))[0] == 401


async def test_the_connections_of_a_known_decision_are_ended_together() -> None:
    async with rig() as r:
        tunnels = await known(r)
        r.world.revoke(sid=SID, jti=GRANT.jti)
        for browser, _ in tunnels:
            assert close_of(await browser.rest()) == (4401, b"grant revoked")
        assert len(r.live) == 0


async def test_an_upgrade_after_a_change_of_the_target_reaches_the_new_target() -> None:
    other = App()
    async with rig() as r, other.running():
        await known(r)
        r.world.upsert(route(other.port, rev=2, target={"id": "pod2"}))
        for _ in range(3):
            await opened(r, app=other)


@pytest.mark.parametrize("limits", [Limits(session_connections=3), Limits(user_connections=3)])
async def test_known_decisions_count_against_the_limits(limits: Limits) -> None:
    async with rig(limits=limits) as r:
        tunnels = await known(r)
        status, raw = await r.ask(upgrade())
        assert (status, code_of(raw.partition(b"\r\n\r\n")[2])) == (429, "too_many_connections")
        tunnels[0][0].close()
        assert await tunnels[0][1].rest() == b""
        await opened(r)


async def test_a_known_decision_admits_to_no_page_of_the_gateway() -> None:
    pages: list[str] = []

    def make_page() -> asyncio.Protocol:
        pages.append("made")
        return asyncio.Protocol()

    async with rig(pages=make_page) as r:
        await known(r)
        (await r.browser()).send(upgrade("/.fumarole/session"))
        async with asyncio.timeout(READ_SECONDS):
            while not pages:
                await asyncio.sleep(0.001)
        assert r.app.connections.empty()


async def test_a_known_decision_counts_the_bytes_of_a_session_that_was_reported_and_forgotten() -> (
    None
):
    activities = Activities()
    async with rig() as r:
        r.live.observers = (activities,)
        for browser, app in await known(r):
            browser.close()
            assert await app.rest() == b""
        (left,) = activities.all()
        left.update(1.0)
        left.encode(1.0)
        activities.written([left], 1.0)
        assert len(activities) == 0
        browser, app = await opened(r)
        app.send(frame(b"down"))
        await browser.exactly(6)
        (activity,) = activities.all()
        assert activity is not left
        assert activity.down >= 6


async def test_a_known_decision_admits_no_service_worker_at_the_root() -> None:
    """Fields alone do not tell whether its scope would be too wide."""
    marked = upgrade().replace(
        b"Upgrade: websocket", b"Service-Worker: script\r\nUpgrade: websocket"
    )
    async with rig() as r:
        for _ in range(3):
            await r.joined(marked.replace(b"GET /ws ", b"GET /a/ws "))
        status, raw = await r.ask(marked)
        assert (status, code_of(raw.partition(b"\r\n\r\n")[2])) == (403, "root_service_worker")
