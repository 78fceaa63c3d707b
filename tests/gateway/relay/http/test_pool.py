from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.core.access.access_right import AccessRight
from gateway.core.limits.values import Limits
from gateway.relay.ending.closer import Closer
from gateway.relay.http.upstream import Pool, UpstreamConnection
from gateway.relay.turns import Turns
from gateway.wheel import TimerWheel
from shared.routes.route import Target
from tests.gateway.relay.harness import GRANT, SID, App, route, table_of

NOW = time.time()


@asynccontextmanager
async def pooled(**limits: Any) -> AsyncIterator[tuple[Pool, App, Target]]:
    loop = asyncio.get_running_loop()
    app = App()
    async with app.running():
        most = Limits(**limits)
        closer = Closer(loop, most)
        pool = Pool(
            loop=loop, wheel=TimerWheel(loop), closer=closer, turns=Turns(loop), limits=most
        )
        known = table_of(route(app.port)).route(SID)
        assert known is not None
        assert known.target is not None
        yield pool, app, known.target
        pool.close()
        closer.close_all()
        await asyncio.sleep(0)


async def put(pool: Pool, target: Target, user: str = "ada") -> UpstreamConnection:
    upstream = UpstreamConnection(pool, sid=SID, user=user, target=target)
    used_by = table_of(route(target.port)).route(SID)
    assert used_by is not None
    upstream.access_right = AccessRight(route=used_by, host=used_by.hosts[0], grant=GRANT)
    loop = asyncio.get_running_loop()
    await loop.create_connection(lambda: upstream, target.host, target.port)
    pool.put(upstream)
    return upstream


def take(pool: Pool, target: Target, **changes: Any) -> UpstreamConnection | None:
    fields: dict[str, Any] = {"sid": SID, "user": "ada", "target": target, "safe": True}
    return pool.take(**(fields | changes))


async def test_the_most_recently_used_connection_is_taken_first_and_once() -> None:
    async with pooled() as (pool, _, target):
        first, second = await put(pool, target), await put(pool, target)
        assert take(pool, target) is second
        assert take(pool, target) is first
        assert take(pool, target) is None
        assert len(pool) == 0
        first.close()
        second.close()


async def test_a_connection_taken_by_a_tunnel_is_not_watched_for_its_earlier_request() -> None:
    """Otherwise its stall would be reported to the request that has ended."""
    async with pooled() as (pool, _, target):
        upstream = await put(pool, target)
        assert take(pool, target) is upstream
        transport = upstream.transport
        assert transport is not None
        upstream.pause_writing()
        assert transport in pool.closer.stalls.watched
        upstream.detach()
        assert transport not in pool.closer.stalls.watched
        transport.abort()


async def test_a_connection_is_not_shared_between_users() -> None:
    async with pooled() as (pool, _, target):
        await put(pool, target)
        assert take(pool, target, user="eve") is None
        assert take(pool, target, sid="b" * 26) is None
        assert len(pool) == 1


async def test_a_connection_to_another_target_is_closed_and_not_used() -> None:
    async with pooled() as (pool, app, target):
        await put(pool, target)
        peer = await app.connection()
        other = Target(scheme="http", host=target.host, port=target.port, id="pod2")
        assert take(pool, other) is None
        assert await peer.gone() == b""
        assert len(pool) == 0


async def test_a_review_closes_connections_to_old_targets() -> None:
    async with pooled() as (pool, _, target):
        for sids in (None, (SID,)):
            await put(pool, target)
            pool.review(sids, table_of(route(target.port)), NOW)
            pool.review(("b" * 26,), table_of(), NOW)
            assert len(pool) == 1
            pool.review(sids, table_of(route(target.port, target={"id": "pod2"})), NOW)
            assert len(pool) == 0
        await put(pool, target)
        pool.review(None, table_of(route(target.port, state="starting")), NOW)
        assert len(pool) == 0


@pytest.mark.parametrize("change", ["jti", "sub", "kid", "all", "time", "expired", "gone"])
async def test_a_review_closes_connections_of_ended_access_rights(change: str) -> None:
    async with pooled() as (pool, _, target):
        await put(pool, target)
        table = table_of(route(target.port, expires_at=NOW + 5.0))
        pool.review(None, table, NOW)
        assert len(pool) == 1
        now = {"time": GRANT.ends_at, "expired": NOW + 5.0}.get(change, NOW)
        member = {
            "jti": f"jti:{GRANT.jti}",
            "sub": f"sub:{SID}:{GRANT.sub}",
            "kid": f"kid:{GRANT.kid}",
            "all": f"all:{SID}",
        }.get(change)
        if member is not None:
            table.load_revocation(member, NOW + 86400)
        pool.review((SID,), table_of() if change == "gone" else table, now)
        assert len(pool) == 0


async def test_connections_dropped_by_a_review_are_removed_at_once_and_closed_later() -> None:
    async with pooled(app_abort_seconds=0.1) as (pool, app, target):
        upstream = await put(pool, target)
        peer, transport = await app.connection(), upstream.transport
        assert transport is not None
        pool.review(None, table_of(), NOW)
        assert (len(pool), take(pool, target)) == (0, None)
        assert not transport.is_closing(), "browsers come first"
        peer.send(b"unasked")
        assert await peer.gone() == b""
        assert transport.is_closing()
        assert len(pool) == 0


async def test_the_number_of_idle_connections_is_bounded_after_a_short_time() -> None:
    async with pooled(upstream_idle_per_user=2, upstream_spare_seconds=0.5) as (pool, _, target):
        kept = [await put(pool, target) for _ in range(5)]
        for upstream in reversed(kept):
            assert take(pool, target) is upstream
        for upstream in kept:
            pool.put(upstream)
        assert len(pool) == 5
        async with asyncio.timeout(10):
            while len(pool) > 2:
                await asyncio.sleep(0.02)
        assert [upstream.transport is None for upstream in kept] == [False] * 2 + [True] * 3


async def test_an_idle_upstream_connection_is_closed_after_its_timeout() -> None:
    async with pooled(upstream_idle_seconds=0.1) as (pool, _, target):
        await put(pool, target)
        await asyncio.sleep(0.4)
        assert len(pool) == 0


async def test_a_connection_that_dies_in_use_is_removed_from_the_pool() -> None:
    async with pooled() as (pool, _, target):
        upstream = await put(pool, target)
        assert take(pool, target) is upstream
        upstream.close()
        assert pool._idle == {}


async def test_any_number_of_connections_to_another_target_is_closed() -> None:
    """A recursive call for each would exceed Python's limit."""
    async with pooled() as (pool, _, target):
        for _ in range(1500):
            pool.put(UpstreamConnection(pool, sid=SID, user="ada", target=target))
        assert (
            take(pool, Target(scheme="http", host=target.host, port=target.port, id="pod2")) is None
        )
        assert len(pool) == 0
