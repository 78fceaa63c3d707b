"""Accepting: quotas, descriptors, handshakes; on real sockets."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import ssl
from itertools import pairwise
from pathlib import Path

import pytest

from gateway.core.limits.values import Limits
from gateway.relay.listening import Listener
from shared.runtime.listeners import listen
from tests.gateway.relay.arriving import PROXY, QUICK, asked, proxied, secured, settled
from tests.gateway.relay.harness import (
    BASE,
    PORT,
    SID,
    Peer,
    Rig,
    answer,
    code_of,
    request,
    rig,
    status_of,
)

_IDLE = socket.TCP_KEEPIDLE
WAITING = "gateway.core.limits.connection_quota"
DOWNSTREAM = "gateway.relay.http.downstream"


async def test_keep_alive_probes_of_simultaneous_connections_are_spread() -> None:
    async with rig() as r:
        for _ in range(5):
            await asked(r, await r.browser())
        seconds = [
            one.transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, _IDLE)
            for one in r.connections
            if one.transport is not None
        ]
    assert len(set(seconds)) == 5
    assert all(40 <= one <= 80 for one in seconds)


async def test_connections_wait_while_accepting_is_paused() -> None:
    async with rig() as r:
        held = Listener(r.path, listen("127.0.0.1", 0), held=True)
        try:
            browser = Peer(*await asyncio.open_connection(*held.address))
            r.peers.append(browser)
            browser.send(request())
            await asked(r, await r.browser())
            assert r.path.open == 1
            held.begin()
            app = await r.app.connection()
            await app.head()
            app.send(answer())
            assert status_of((await browser.answer())[0]) == 200
        finally:
            held.close()
        held.begin()  # too late, and no error


async def test_queued_connections_are_accepted_over_many_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.relay.listening.ACCEPT_SECONDS", 0.0)
    async with rig() as r:
        held = Listener(r.path, listen("127.0.0.1", 0), held=True)
        waiting = [socket.create_connection(held.address) for _ in range(20)]
        try:
            held.begin()
            accepted = [0]
            while accepted[-1] < len(waiting):
                await asyncio.sleep(0)
                accepted.append(len(r.path.connection_quota.unauthenticated))
            assert max(after - before for before, after in pairwise(accepted)) <= 2
        finally:
            held.close()
            for sock in waiting:
                sock.close()


# ConnectionQuota


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no connection count as idle."""
    monkeypatch.setattr(f"{WAITING}.MIN_IDLE_SECONDS", 60.0)


@pytest.mark.usefixtures("patient")
async def test_unauthenticated_connections_of_an_address_are_limited_with_429() -> None:
    async with rig(limits=Limits(address_connections=3)) as r:
        waiting = [await r.browser("127.5.0.1") for _ in range(3)]
        await settled(r, unauthenticated=3)
        late = await r.browser("127.5.0.1")
        head, body = await late.answer()
        assert status_of(head) == 429
        assert code_of(body) == "too_many_connections"
        assert b"\r\nRetry-After: " in head
        assert await late.rest() == b""
        assert b"\r\nX-Forwarded-For: 127.5.0.2" in await asked(r, await r.browser("127.5.0.2"))
        waiting[0].close()
        await settled(r, unauthenticated=3)
        waiting[1].close()
        await settled(r, unauthenticated=2)
        await asked(r, await r.browser("127.5.0.1"))


async def test_an_authenticated_connection_leaves_the_unauthenticated_quota() -> None:
    async with rig(limits=Limits(address_connections=2)) as r:
        for _ in range(6):
            await asked(r, await r.browser())
            assert len(r.path.connection_quota.unauthenticated) == 0
        for number in range(6):
            status, _ = await r.ask(request("/", credential=None))
            assert status == 401, number
            await settled(r, unauthenticated=0)


async def test_a_connection_whose_access_right_ended_counts_as_unauthenticated() -> None:
    async with rig() as r:
        browser = await r.browser()
        browser.send(request())
        app = await r.app.connection()
        await app.head()
        app.send(answer())
        await browser.answer()
        assert len(r.path.connection_quota.unauthenticated) == 0
        r.world.revoke(sid="a" * 26)
        assert len(r.path.connection_quota.unauthenticated) == 1
        browser.close()
        await settled(r, unauthenticated=0)


async def test_a_full_gateway_responds_503(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{WAITING}.MIN_IDLE_SECONDS", 60.0)
    async with rig(limits=Limits(connections=2)) as r:
        first, second = await r.browser(), await r.browser()
        await settled(r, unauthenticated=2)
        late = await r.browser()
        head, body = await late.answer()
        assert (status_of(head), code_of(body)) == (503, "gateway_full")
        assert b"\r\nRetry-After: " in head
        assert r.path.connection_quota.full
        first.close()
        second.close()
        await late.rest()
        late.close()
        await settled(r, unauthenticated=0)
        await asked(r, await r.browser())


async def begun(r: Rig) -> Peer:
    """Return a connection that has sent the first line of a request."""
    browser = await r.browser()
    browser.send(b"GET / HTTP/1.1\r\n")
    async with asyncio.timeout(5):
        while not any(one.reader.partial for one in r.connections):
            await asyncio.sleep(0.005)
    return browser


async def test_waiting_connections_are_evicted_from_a_full_gateway(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"{WAITING}.MIN_IDLE_SECONDS", 0.0)
    monkeypatch.setattr(f"{DOWNSTREAM}.ARRIVAL_SECONDS", 60.0)
    async with rig(limits=Limits(connections=3)) as r:
        tunnel, _ = await r.tunnel()
        sending, idle = await begun(r), await r.browser()
        await settled(r, unauthenticated=2)
        await asked(r, await r.browser())
        assert await idle.gone() == b""
        # Of the others each has a credential, or is at something.
        late = await r.browser()
        head, body = await late.answer()
        assert (status_of(head), code_of(body)) == (503, "gateway_full")
        sending.send(request().partition(b"\r\n")[2])
        app = await r.app.connection()
        await app.head()
        app.send(answer())
        assert status_of((await sending.answer())[0]) == 200
        assert await tunnel.silent()


async def test_active_connections_do_not_protect_waiting_ones_from_eviction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"{WAITING}.MIN_IDLE_SECONDS", 0.0)
    monkeypatch.setattr(f"{WAITING}.SCANNED_PER_EVICTION", 1)
    monkeypatch.setattr(f"{DOWNSTREAM}.ARRIVAL_SECONDS", 60.0)
    monkeypatch.setattr("gateway.relay.gateway._EVICTED_FOR_ONE", 1)
    async with rig(limits=Limits(connections=2)) as r:
        await begun(r)
        idle = await r.browser()
        await settled(r, unauthenticated=2)
        late = await r.browser()
        assert status_of((await late.answer())[0]) == 503, "the first one alone was looked at"
        late.close()
        await settled(r, unauthenticated=2)
        await asked(r, await r.browser())
        assert await idle.gone() == b""


async def test_new_connections_are_not_evicted() -> None:
    async with rig(limits=Limits(connections=1)) as r:
        r.path.wheel.close()  # no deadline comes
        idle = await r.browser()
        await settled(r, unauthenticated=1)
        (one,) = r.path.connection_quota.unauthenticated
        assert 0 <= asyncio.get_running_loop().time() - one.idle_since() < 60
        r.path.evict_idle(1)
        assert idle.writer.is_closing() is False
        assert list(r.path.connection_quota.unauthenticated) == [one]


@pytest.mark.parametrize("raw", [b"", b"GET / HTTP/1.1\r\nHost: "], ids=["idle", "head"])
async def test_a_stalled_request_head_is_evicted_at_a_crowded_address(
    raw: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that holds all connections of an address must not lock out others who share it."""
    async with rig(limits=Limits(address_connections=3)) as r:
        elsewhere = await r.browser("127.5.0.2")
        tunnel, _ = await r.tunnel()
        holding = []
        for _ in range(3):
            holding.append(await r.browser("127.5.0.1"))
            holding[-1].send(raw)
            await settled(r, unauthenticated=1 + len(holding))
        async with asyncio.timeout(30):
            while raw and sum(bool(one.reader.partial) for one in r.connections) < 3:
                await asyncio.sleep(0.005)
        monkeypatch.setattr(f"{WAITING}.MIN_IDLE_SECONDS", 0.0)
        monkeypatch.setattr(f"{DOWNSTREAM}.ARRIVAL_SECONDS", 0.0)
        await asked(r, await r.browser("127.5.0.1"))
        assert [await one.gone() for one in holding[:2]] == [b"", b""]
        # It was enough; and nobody of another address had to go.
        assert await holding[2].silent()
        assert not holding[2].reader.at_eof()
        assert await elsewhere.silent()
        assert not elsewhere.reader.at_eof()
        assert await tunnel.silent()


async def test_a_stalled_tls_handshake_is_evicted_at_a_crowded_address(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with secured(certificate, limits=Limits(address_connections=2, head_seconds=60.0)) as r:
        silent = [await r.browser("127.5.0.1") for _ in range(2)]
        await settled(r, unauthenticated=2)
        monkeypatch.setattr(f"{WAITING}.MIN_IDLE_SECONDS", 0.0)
        monkeypatch.setattr(f"{DOWNSTREAM}.ARRIVAL_SECONDS", 0.0)
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        late = Peer(
            *await asyncio.open_connection(*r.address, ssl=context, local_addr=("127.5.0.1", 0))
        )
        r.peers.append(late)
        await asked(r, late)
        assert [await one.gone() for one in silent] == [b"", b""]
        await settled(r, unauthenticated=0)
        assert not r.path.arriving


@pytest.mark.usefixtures("patient")
async def test_far_beyond_its_limit_an_address_is_disconnected_without_response(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.core.limits.connection_quota.MAX_REFUSED", 0)
    async with rig(limits=Limits(address_connections=1)) as r:
        await r.browser()
        await settled(r, unauthenticated=1)
        late = await r.browser()
        assert await late.gone() == b""
        assert r.path.meters.dropped == 1
        assert len(r.path.connection_quota.unauthenticated) == 1


@pytest.mark.parametrize("limits", [Limits(session_connections=2), Limits(user_connections=2)])
async def test_connections_are_limited_per_session_and_user(limits: Limits) -> None:
    async with rig(limits=limits) as r:
        tunnels = [await r.tunnel(), await r.tunnel()]
        status, said = await r.ask(request())
        assert status == 429
        assert b"too_many_connections" in said
        assert r.app.count == 2
        tunnels[0][0].reset()
        async with asyncio.timeout(5):
            while len(r.live) > 1:
                await asyncio.sleep(0.005)
        await asked(r, await r.browser())


async def test_public_link_connections_are_limited_per_address() -> None:
    public = {"hosts": [f"{SID}.{BASE}", "demo.example.org"], "public": True}
    get = request(host=f"demo.example.org:{PORT}", credential=None)
    async with rig(limits=Limits(address_connections=2), route_changes=public) as r:
        for _ in range(2):
            browser = await r.browser("127.5.0.1")
            for _ in range(3):
                await asked(r, browser, raw=get)
        late = await r.browser("127.5.0.1")
        late.send(get)
        head, body = await late.answer()
        assert (status_of(head), code_of(body)) == (429, "too_many_connections")
        await asked(r, await r.browser("127.5.0.2"), raw=get)
        # Whoever has a credential does not stand back behind the visitors of the same address.
        await asked(r, await r.browser("127.5.0.1"))


# Descriptors


@pytest.mark.parametrize("waited", [60.0, 0.0])
async def test_accepting_pauses_while_descriptors_are_short_and_resumes(
    waited: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{WAITING}.MIN_IDLE_SECONDS", waited)
    # Above all open ones: those of other tests may lie anywhere.
    ceiling = max(map(int, os.listdir("/proc/self/fd"))) + 24
    async with rig(descriptors=ceiling + ceiling // 3) as r:
        held: list[socket.socket] = []
        try:
            # Both ends of a connection are this process': every one takes two.
            while not r.path.meters.accept_pauses:
                one = socket.create_connection(r.address)
                held.append(one)
                await asyncio.sleep(0.005)
                assert len(held) < ceiling
            waiting = await r.browser()
            waiting.send(request())
            if waited:
                await asyncio.sleep(0.3)
                assert r.app.count == 0
                assert r.path.meters.accept_pauses == 1
                for one in held:
                    one.close()
            # Else those that only wait have made room.
            app = await r.app.connection()
            await app.head()
            app.send(answer(b"late"))
            assert (await waiting.answer())[1] == b"late"
        finally:
            for one in held:
                one.close()


async def test_without_any_descriptor_accepting_does_not_spin() -> None:
    async with rig() as r:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        try:
            r.listener._accept(r.listener.sockets[0])
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert r.path.meters.accept_pauses == 1
        await asked(r, await r.browser())


async def test_connections_without_a_request_are_closed_with_idle_ones() -> None:
    async with proxied() as r:
        browser = await r.browser(PROXY)
        r.listener.close()  # it accepts the connection, if nobody has
        assert r.path.arriving
        r.path.close_idle()
        assert await browser.gone() == b""
        r.listener.close()


# TLS


async def test_a_failed_tls_handshake_leaks_nothing(
    certificate: Path,
) -> None:
    async with secured(certificate, limits=QUICK) as r:
        for raw in (b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n"):
            browser = await r.browser()
            browser.send(raw)
            await browser.gone()
        assert len(r.path.connection_quota.unauthenticated) == 0
        assert not r.connections
        assert r.path.meters.failed_arrivals == 3


@pytest.mark.usefixtures("patient")
async def test_a_tls_handshake_counts_in_the_quota(certificate: Path) -> None:
    async with secured(certificate, limits=Limits(address_connections=2, head_seconds=30.0)) as r:
        silent = [await r.browser("127.5.0.1") for _ in range(2)]
        await settled(r, unauthenticated=2)
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        reader, writer = await asyncio.open_connection(
            *r.address, ssl=context, local_addr=("127.5.0.1", 0)
        )
        late = Peer(reader, writer)
        r.peers.append(late)
        assert status_of((await late.answer())[0]) == 429
        for one in silent:
            one.reset()
        late.close()
        await settled(r, unauthenticated=0)


# Binding


async def test_both_families_are_served_at_once() -> None:
    async with rig() as r:
        both = Listener(r.path, listen("::", 0))
        try:
            for host in ("127.0.0.1", "::1"):
                reader, writer = await asyncio.open_connection(host, both.address[1])
                browser = Peer(reader, writer)
                r.peers.append(browser)
                field = f"\r\nX-Forwarded-For: {host}\r\n".encode()
                assert field in await asked(r, browser)
        finally:
            both.close()


def test_an_address_in_use_is_an_error() -> None:
    with listen("127.0.0.1", 0)[0] as taken, pytest.raises(OSError, match="in use"):
        listen(*taken.getsockname())


async def test_a_closed_data_path_accepts_no_connection() -> None:
    async with proxied() as r:
        browser = await r.browser(PROXY)
        r.listener.close()  # it accepts the connection, if nobody has
        assert r.path.arriving
        await r.path.close()
        assert not r.path.arriving
        assert await browser.gone() == b""
