"""Tests that gateways serve signed data, and how old it may be."""

from __future__ import annotations

import asyncio
import time
from functools import partial

from redis.asyncio import Redis

from gateway.bus.head_policy import NOT_SIGNED
from gateway.core.bus_state import Bus
from shared.bus import BusReader, Publisher
from shared.events import GrantRevoked, event_time
from tests.gateway.bus.following import (
    KEYS,
    ONE,
    TWO,
    Unheard,
    encode,
    following,
    held,
    make_route,
    sid_of,
)
from tests.gateway.bus.signing import (
    KEY,
    OTHER,
    THREE,
    leading,
    looked,
    policy,
    routes,
    signer,
    table_of,
)
from tests.waiting import until

# Signed data is served


async def test_a_signed_table_is_followed_event_by_event(redis: Redis) -> None:
    publisher = await leading(redis, ONE)
    async with following(redis, policy=policy()) as seen:
        await seen.until_equal(publisher)
        await publisher.upsert(TWO, encode(make_route(TWO)), now=time.time())
        await publisher.revoke(at=time.time(), sid=TWO, sub="ada")
        await publisher.revoke(at=time.time(), kid="k1")
        await publisher.remove(ONE, "ended", now=time.time())
        await publisher.beat(now=time.time())
        await seen.until_equal(publisher)
        assert held(seen.follower.table) == {TWO}
        assert seen.follower.noted["snapshot"] == 1
        assert seen.follower.noted["applied"] == 4
        assert seen.follower.noted["unproven"] == 0
        assert set(table_of(seen).revocations) == {f"sub:{TWO}:ada", "kid:k1"}


async def test_a_large_signed_table_is_read_in_pages_and_caught_up(redis: Redis) -> None:
    sids = [sid_of(number) for number in range(2500)]
    publisher = await leading(redis, *sids)

    async def go_on() -> None:
        for number in range(40):
            await publisher.upsert(
                sids[number], encode(make_route(sids[number], rev=2)), now=time.time()
            )

    changing = asyncio.create_task(go_on())
    async with following(redis, policy=policy()) as seen:
        await changing
        await seen.until_equal(publisher)
        assert len(table_of(seen)) == 2500
        assert table_of(seen).route(sids[39]).rev == 2  # type: ignore[union-attr]  # it is there
        assert seen.follower.noted["unproven"] == 0


async def test_lost_events_are_read_from_the_log(redis: Redis) -> None:
    publisher = await leading(redis, ONE)
    async with following(redis, policy=policy(), spread=0.99) as seen:
        await seen.until_equal(publisher)
        sids = [sid_of(100 + number) for number in range(150)]
        publisher._keys = Unheard("test")
        for sid in sids:
            await publisher.upsert(sid, encode(make_route(sid)), now=time.time())
        publisher._keys = KEYS
        await publisher.beat(now=time.time())
        await seen.until_equal(publisher)
        assert seen.follower.noted["snapshot"] == 1
        assert seen.follower.noted["log"] == 150


async def test_expired_revocations_are_dropped_by_publisher_and_gateway(redis: Redis) -> None:
    now = time.time()
    publisher = Publisher(redis, KEYS, term=1, signer=signer())
    revoked = {"jti:old": now + 2.0, "jti:new": now + 80000}
    await publisher.rebuild(routes(ONE), revoked, epoch="e1", now=now)
    async with following(redis, policy=policy()) as seen:
        await seen.until_equal(publisher)
        await publisher.beat(now=now)
        await publisher.beat(now=now + 61)
        head = await BusReader(redis, KEYS).head()
        assert head is not None
        assert head.revoked == 1
        await until(lambda: set(table_of(seen).proof.scores) == {"jti:new"})  # type: ignore[union-attr]  # it is signed
        await publisher.upsert(TWO, encode(make_route(TWO)), now=now + 61)
        await seen.until_equal(publisher)
        assert seen.follower.noted["snapshot"] == 1
        assert seen.follower.noted["unproven"] == 0


async def test_a_head_from_before_dropped_revocations_is_accepted(redis: Redis) -> None:
    """The head was read just before the drop, and is checked just after it."""
    now = time.time()
    publisher = Publisher(redis, KEYS, term=1, signer=signer())
    await publisher.rebuild(routes(ONE), {"jti:old": now + 2.0}, epoch="e1", now=now)
    async with following(redis, policy=policy()) as seen:
        await seen.until_equal(publisher)
        before = await BusReader(redis, KEYS).head()
        await publisher.beat(now=now)
        await publisher.beat(now=now + 61)
        await until(lambda: not table_of(seen).proof.scores)  # type: ignore[union-attr]  # it is signed
        assert before is not None
        said = seen.follower.policy.verify_head(before, table_of(seen))
        assert said is not None
        assert seen.follower.policy.is_proven_by(table_of(seen), said)
        assert seen.follower.noted["unproven"] == 0


async def test_another_leader_continues_and_keys_rotate_through_a_set(redis: Redis) -> None:
    await leading(redis, ONE, TWO)
    async with following(redis, policy=policy(KEY, OTHER)) as seen:
        await until(lambda: seen.position()[0] == "e1")
        after = await leading(redis, TWO, THREE, term=2, key=OTHER, epoch="e2")
        await seen.until_equal(after)
        assert held(seen.follower.table) == {TWO, THREE}
        await after.upsert(THREE, encode(make_route(THREE, rev=2)), now=time.time())
        await seen.until_equal(after)
        assert seen.follower.noted["unproven"] == 0


# Time


def _ahead(seconds: float) -> float:
    return time.time() + seconds


async def test_a_new_gateway_accepts_only_a_fresh_head(redis: Redis) -> None:
    publisher = await leading(redis, ONE)
    for ahead, why in ((301.0, "s old"), (-301.0, "ahead of this clock")):
        clock = policy(wall=partial(_ahead, ahead))
        async with following(redis, policy=clock) as seen:
            await until(lambda: why in (seen.follower.last_error or ""))  # noqa: B023  # awaited here
            assert seen.follower.table is None
    async with following(redis, policy=policy()) as seen:
        await seen.until_equal(publisher)


async def test_a_repeated_head_is_no_sign_of_life(redis: Redis) -> None:
    publisher = await leading(redis, ONE)
    shift = [0.0]
    clock = policy(wall=lambda: time.time() + shift[0])
    async with following(redis, policy=clock) as seen:
        await seen.until_equal(publisher)
        assert seen.dialling()
        # Redis runs on, and its content is as old as the controller's last message.
        seen.clock.ahead, shift[0] = 301.0, 301.0
        await until(lambda: seen.bus() is Bus.FOLLOWING)
        await looked(seen)
        assert not seen.dialling()
        assert held(seen.follower.table) == {ONE}
        # Unsigned and repeated heartbeats do not change that.
        await Publisher(redis, KEYS, term=1).notice(
            GrantRevoked(epoch="-", seq=0, at=event_time(time.time()), sid=TWO)
        )
        await looked(seen, 1)
        assert not seen.dialling()
        await publisher.beat(now=time.time() + 301)
        await until(seen.dialling)


async def test_singly_signed_routes_are_read_under_an_unsigned_head(
    redis: Redis,
) -> None:
    """A publisher of the previous version may write this; unsigned routes in it are reported."""
    await Publisher(redis, KEYS, term=1).rebuild(routes(ONE), {}, epoch="e1", now=time.time())
    await redis.hdel(KEYS.head, "server")
    believing = policy()
    async with following(redis, policy=believing) as seen:
        await until(lambda: seen.follower.table is not None)
        assert table_of(seen).proof is None
        # After a signed head, unsigned heads are no longer accepted.
        after = await leading(redis, TWO, term=2, epoch="e2")
        await seen.until_equal(after)
        assert table_of(seen).proof is not None
        await redis.hdel(KEYS.head, "signed", "server")
        await until(lambda: seen.follower.last_error == NOT_SIGNED)
        assert held(seen.follower.table) == {TWO}


async def test_an_unsigned_table_does_not_block_a_signed_one(redis: Redis) -> None:
    """A bad Redis shows a new gateway a fencing token that no leader reaches."""
    await Publisher(redis, KEYS, term=10**9).rebuild(routes(), {"kid:k1": time.time() + 9e4},
                                                    epoch="bad", now=time.time())  # fmt: skip
    await redis.hdel(KEYS.head, "server")
    async with following(redis, policy=policy()) as seen:
        await until(lambda: seen.position()[0] == "bad")
        await redis.flushall()
        publisher = await leading(redis, ONE)
        await seen.until_equal(publisher)
        assert held(seen.follower.table) == {ONE}
        assert not table_of(seen).revocations
