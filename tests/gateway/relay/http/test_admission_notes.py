"""What is recorded of admitted and refused requests, and the effect of a stale table."""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
from typing import Any

import pytest

from gateway.core.access.access_right import UNCOUNTED, ActivityCounter
from gateway.core.downstream.cached_decision import CachedDecision
from gateway.core.limits.overload import Step
from gateway.core.limits.values import Limits
from gateway.observers.audit_log import AuditLog
from shared.audit import AuditRecord
from shared.tokens import SessionClaims
from tests.gateway.relay.harness import (
    BASE,
    FROM_HERE,
    PORT,
    SID,
    Peer,
    Rig,
    answer,
    code_of,
    cookie,
    request,
    rig,
    status_of,
    upgrade,
)
from tests.gateway.relay.http.test_admission import claims

NAVIGATES = "Sec-Fetch-Mode: navigate"


async def refused(r: Rig, raw: bytes) -> str:
    """Return the code with which *raw* is refused."""
    browser = await r.browser()
    browser.send(raw)
    return code_of((await browser.answer())[1])


# The audit


class Audit:
    """The audit records written."""

    def __init__(self) -> None:
        self.records: list[AuditRecord] = []
        self.trail = AuditLog(
            issuer="https://o.example", process="p", wall=time.time, write=self.records.append
        )

    def told(self) -> tuple[Any, ...]:
        """Return the last record: reason, operation, job and user."""
        last = self.records[-1]
        assert (last.event, last.address) == ("refused", "127.0.0.1")
        return last.reason, last.operation, last.sid, last.job, last.subject


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (request(credential=None), ("no_credential", "request", SID, "j1", None)),
        (upgrade(credential=None), ("no_credential", "connect", SID, "j1", None)),
        (
            request(credential=f"Cookie: {cookie(mode='view')}"),
            ("view_only", "request", SID, "j1", "ada"),
        ),
        (request(credential="Fumarole-Token: bad"), ("bad_credential", "request", SID, "j1", None)),
        # A good grant proves who asks, wherever that is.
        (
            request(host=f"{'c' * 26}.{BASE}:{PORT}"),
            ("not_found", "request", "c" * 26, None, "ada"),
        ),
        (request(host="nowhere.example"), ("not_found", "request", None, None, "ada")),
    ],
)
async def test_each_refusal_is_recorded_with_the_proven_user(
    raw: bytes, told: tuple[Any, ...]
) -> None:
    audit = Audit()
    async with rig(audit=audit.trail) as r:
        assert await refused(r, raw) == told[0]
        assert audit.told() == told


async def test_a_used_token_is_recorded_with_its_user() -> None:
    audit = Audit()
    async with rig(audit=audit.trail) as r:
        r.gate.tokens["good"] = claims(sub="eve")
        r.gate.refuse_mark = "token_spent"
        assert await refused(r, request(credential="Fumarole-Token: good")) == "token_spent"
        assert audit.told() == ("token_spent", "request", SID, "j1", "eve")


async def test_one_connection_too_many_is_refused_and_recorded() -> None:
    audit = Audit()
    async with rig(audit=audit.trail, limits=Limits(user_connections=1)) as r:
        await r.tunnel()
        assert await refused(r, upgrade()) == "too_many_connections"
        assert audit.told() == ("too_many_connections", "connect", SID, "j1", "ada")
        r.gate.tokens["good"] = claims()
        raw = request(credential="Fumarole-Token: good")
        assert await refused(r, raw) == "too_many_connections"
        assert audit.told() == ("too_many_connections", "request", SID, "j1", "ada")
        assert r.app.count == 1


async def test_an_admitted_request_is_not_recorded_as_refusal() -> None:
    audit = Audit()
    async with rig(audit=audit.trail) as r:
        browser, app, _ = await r.joined(request())
        app.send(answer())
        await browser.answer()
        assert audit.records == []


async def test_a_request_shed_under_overload_is_not_recorded_as_refusal() -> None:
    audit = Audit()
    async with rig(audit=audit.trail) as r:
        r.path.overload.step = Step.UNAUTHENTICATED
        assert await refused(r, request(credential=None)) == "gateway_overloaded"
        assert audit.records == []


# A table that may be stale


async def test_a_suspended_process_polls_once_before_it_serves_again() -> None:
    async with rig() as r:
        browser, app, _ = await r.joined(request())
        app.send(answer())
        await browser.answer()
        r.world.stale = True

        def looked() -> None:
            r.world.stale = False

        r.world.repaired = looked
        browser.send(request("/2"))
        assert (await app.head()).startswith(b"GET /2")
        app.send(answer())
        await browser.answer()
        assert r.world.repairs == 1


async def test_a_session_that_ended_during_a_suspension_is_not_served() -> None:
    async with rig() as r:
        browser, app, _ = await r.joined(request())
        app.send(answer())
        await browser.answer()
        r.world.stale = True

        def looked() -> None:
            r.world.stale = False
            assert r.world.table is not None
            r.world.table.load_revocation("jti:t1", time.time() + 86400)

        r.world.repaired = looked
        browser.send(request("/2"))
        head, body = await browser.answer()
        assert (status_of(head), code_of(body)) == (401, "grant_revoked")
        assert await app.silent()


@pytest.mark.parametrize("still", ["stale", "not serving", "without a table"])
async def test_a_failed_poll_serves_no_request(still: str) -> None:
    async with rig() as r:
        r.world.stale = True

        def looked() -> None:
            r.world.stale = still == "stale"
            r.world.serving = still != "not serving"
            if still == "without a table":
                r.world.table = None

        r.world.repaired = looked
        browser = await r.browser()
        for _ in range(2):
            r.world.stale = True
            browser.send(request())
            assert code_of((await browser.answer())[1]) == "bus_lost"
        assert r.world.repairs == 2
        assert r.app.count == 0


async def test_a_connection_can_wait_for_a_second_poll() -> None:
    async with rig() as r:
        r.world.remove()
        browser = await r.browser()
        for repairs in (1, 2):
            browser.send(request())
            assert code_of((await browser.answer())[1]) == "session_ended"
            assert r.world.repairs == repairs
        assert [one.task for one in r.connections] == [None]


async def test_a_refused_request_releases_the_connections_access_right() -> None:
    async with rig() as r:
        browser, app, _ = await r.joined(request())
        app.send(answer())
        await browser.answer()
        assert len(r.live) == 1
        browser.send(request(credential=f"Cookie: {cookie(mode='view')}"))
        assert code_of((await browser.answer())[1]) == "view_only"
        assert len(r.live) == 0
        # Nor while it waits for a look.
        browser.send(request())
        await app.head()
        app.send(answer())
        await browser.answer()
        r.world.stale, rights = True, list[int]()

        def looked() -> None:
            rights.append(len(r.live))
            r.world.stale = False

        r.world.repaired = looked
        browser.send(request())
        await app.head()
        assert (rights, len(r.live)) == ([0], 1)


@pytest.mark.parametrize("step", ["verify", "mark"])
async def test_for_a_client_that_left_no_token_is_spent_and_no_app_dialled(
    monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    async with rig() as r:
        r.gate.tokens["good"] = claims()
        going_on, called = asyncio.Event(), asyncio.Event()
        work = getattr(r.gate, step)

        async def slow(*given: Any, **named: Any) -> Any:
            called.set()
            await going_on.wait()
            return await work(*given, **named)

        monkeypatch.setattr(r.gate, step, slow)
        browser = await r.browser()
        browser.send(request(credential="Fumarole-Token: good"))
        await called.wait()
        browser.reset()
        async with asyncio.timeout(10):
            while r.connections:
                await asyncio.sleep(0.001)
        going_on.set()
        await asyncio.sleep(0.02)
        assert len(r.path.background_tasks) == 0
        assert (r.gate.marks, r.app.count) == ([], 0)


# Who is remembered


async def test_a_marked_token_is_neither_verified_nor_marked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with rig() as r:
        known: dict[str, SessionClaims] = {"known": claims()}
        monkeypatch.setattr(r.gate, "remembered", known.get)
        browser, app, head = await r.joined(request(credential="Fumarole-Token: known"))
        assert b"X-Forwarded-User: ada\r\n" in head
        assert r.gate.marks == []
        app.send(answer())
        await browser.answer()
        # Not kept: a token is good for its own request alone.
        browser.send(request(credential=None))
        assert code_of((await browser.answer())[1]) == "no_credential"


async def test_the_client_of_a_session_is_known_by_its_address() -> None:
    async with rig() as r:
        await r.tunnel()
        (tunnel,) = r.live.members()
        assert tunnel.access_right.address == "127.0.0.1"


async def test_upstream_connections_are_pooled_per_user_and_on_public_hosts_per_address() -> None:
    public = {"hosts": [f"{SID}.{BASE}", "demo.example.org"], "public": True}
    async with rig(route_changes=public) as r:
        browser, app, _ = await r.joined(request())
        app.send(answer())
        await browser.answer()
        assert decision_of(r).user == "sub ada"
        browser.send(request("/p", host=f"demo.example.org:{PORT}"))
        app = await r.app.connection()
        await app.head()
        app.send(answer())
        await browser.answer()
        assert decision_of(r).user == "address 127.0.0.1"


def decision_of(r: Rig) -> CachedDecision:
    (connection,) = r.connections
    assert connection.decision is not None
    return connection.decision


# What people do


async def is_input(r: Rig, browser: Peer, app: Peer, raw: bytes) -> bool:
    """Send *raw* on a connection with a cached decision; return whether it counts as user input."""
    counted = decision_of(r).access_right.activity = ActivityCounter()
    browser.send(raw)
    await app.head()
    if b"Content-Length: 1" in raw:
        await app.exactly(1)
    app.send(answer())
    await browser.answer()
    return counted.input


def post(target: str = "/") -> bytes:
    return request(target, FROM_HERE, method="POST", body=b"x")


@pytest.mark.parametrize(
    ("raw", "caused"),
    [
        (request("/lab", NAVIGATES), True),
        (request("/api"), False),
        (request("/api", FROM_HERE, method="OPTIONS"), False),
        (post("/api"), True),
        (request("/api", FROM_HERE, method="DELETE"), True),
        # Jupyter's clients say which ones are none.
        (post("/api?no_track_activity=1"), False),
        (request("/lab?a&no_track_activity=1", NAVIGATES), False),
        (request("/lab?no_track_activity=0", NAVIGATES), True),
    ],
)
async def test_requests_caused_by_a_user_are_noted_as_input(raw: bytes, caused: bool) -> None:
    async with rig() as r:
        browser, app, _ = await r.joined(request())
        app.send(answer())
        await browser.answer()
        assert decision_of(r).access_right.activity is UNCOUNTED
        assert await is_input(r, browser, app, raw) is caused
        # Once more, by the decision that is kept for the very same fields.
        assert await is_input(r, browser, app, raw) is caused
        # The next one is judged by itself.
        assert not await is_input(r, browser, app, request("/api"))


async def test_a_head_request_is_no_input() -> None:
    async with rig() as r:
        browser, app, _ = await r.joined(request())
        app.send(answer())
        await browser.answer()
        counted = decision_of(r).access_right.activity = ActivityCounter()
        browser.send(request("/api", method="HEAD"))
        assert (await app.head()).startswith(b"HEAD /api ")
        app.send(answer(b""))
        await browser.head()
        assert not counted.input


async def test_an_upgrade_is_no_input_by_itself() -> None:
    async with rig() as r:
        counted = ActivityCounter()
        browser, app, _ = await r.joined(request())
        app.send(answer())
        await browser.answer()
        decision_of(r).access_right.activity = counted
        browser.send(upgrade("/ws", NAVIGATES))
        await (await r.app.connection()).head()
        assert not counted.input


@pytest.mark.parametrize(
    "line",
    [
        "Cookie: " + "; ".join(f"fumarole={'x' * 900}" for _ in range(250)),
        f"Accept: {'x' * 60_000}",
        f"Authorization: {'x' * 60_000}",
    ],
    ids=["cookies", "accept", "authorization"],
)
async def test_an_idle_connection_keeps_little_of_a_large_admitted_head(line: str) -> None:
    public = {"hosts": [f"{SID}.{BASE}", "demo.example.org"], "public": True}
    host = f"demo.example.org:{PORT}"
    small, large = (request("/", *fields, host=host, credential=None) for fields in ((), (line,)))
    async with rig(route_changes=public) as r:
        browser, app, _ = await r.joined(small)
        app.send(answer())
        await browser.answer()
        kept = []
        tracemalloc.start()
        for raw in (large, large, small):
            browser.send(raw)
            head = await app.head()
            assert (line.encode() in head) == (raw is large and "fumarole" not in line)
            app.send(answer())
            assert status_of((await browser.answer())[0]) == 200
            kept.append(kept_bytes())
        tracemalloc.stop()
        # docs/limits.md
        assert max(kept) < 32 << 10, kept


def kept_bytes() -> int:
    """Return the traced memory that the core has allocated."""
    gc.collect()
    core = tracemalloc.Filter(inclusive=True, filename_pattern="*/gateway/core/*")
    shown = tracemalloc.take_snapshot().filter_traces([core])
    return sum(one.size for one in shown.traces)
