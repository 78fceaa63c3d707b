"""Tests that gateways serve nothing that an attacker with access to Redis writes."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import msgspec
import pytest
from redis.asyncio import Redis

from gateway.bus.head_policy import NOT_SIGNED
from shared.bus import BusReader, Publisher
from shared.events import GrantRevoked, RouteUpserted, event_time
from shared.routes.signed_table import TableSigner
from tests.gateway.bus.following import (
    KEYS,
    ONE,
    TWO,
    Following,
    Unheard,
    encode,
    following,
    held,
    make_route,
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


def _bytes(value: object) -> bytes:
    assert isinstance(value, bytes)
    return value


class Attacker:
    """Saves the content of Redis, and restores it."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis
        self._kept: dict[bytes, bytes] = {}

    async def keep(self) -> None:
        """Save the current content."""
        self._kept = {}
        for key in await self.redis.keys("*"):
            dump = await self.redis.dump(key)
            self._kept[_bytes(key)] = _bytes(dump)

    async def put_back(self, *names: str) -> None:
        """Restore these keys, or all of them."""
        wanted = [getattr(KEYS, name).encode() for name in names] or list(self._kept)
        async with self.redis.pipeline(transaction=True) as pipe:
            if not names:
                pipe.flushall()
            for key in wanted:
                pipe.delete(key)
                if key in self._kept:
                    pipe.restore(key, 0, cast(Any, self._kept[key]), replace=True)
            await pipe.execute()


# Unsigned data is not served


@pytest.mark.parametrize(
    ("publisher", "why"),
    [
        (lambda redis: Publisher(redis, KEYS, term=9), NOT_SIGNED),
        (lambda redis: Publisher(redis, KEYS, term=9, signer=signer(OTHER)), "not known"),
        (
            lambda redis: Publisher(
                redis, KEYS, term=9, signer=TableSigner(KEY, instance="another")
            ),
            "another installation",
        ),
    ],
)
async def test_a_publisher_without_the_key_cannot_take_over(
    redis: Redis, publisher: Callable[[Redis], Publisher], why: str
) -> None:
    first = await leading(redis, ONE)
    bad = publisher(redis)
    async with following(redis, policy=policy()) as seen:
        await seen.until_equal(first)
        await bad.rebuild(routes(ONE, TWO), {}, epoch="bad", now=time.time())
        await bad.upsert(THREE, encode(make_route(THREE)), now=time.time())
        await until(lambda: why in (seen.follower.last_error or ""))
        assert held(seen.follower.table) == {ONE}
        assert seen.follower.noted["unproven"] >= 1
        # A new gateway accepts nothing of it.
        async with following(redis, policy=policy()) as fresh:
            await until(lambda: why in (fresh.follower.last_error or ""))
            assert fresh.follower.table is None
        # The leader comes back, and nothing of the forgery is left.
        after = await leading(redis, ONE, term=10, epoch="e2")
        await seen.until_equal(after)


async def test_forged_events_change_no_route(redis: Redis) -> None:
    publisher = await leading(redis, ONE)
    async with following(redis, policy=policy()) as seen:
        await seen.until_equal(publisher)
        raw = msgspec.Raw(encode(make_route(TWO)))
        head = _bytes(await redis.hget(KEYS.head, "signed"))
        at = event_time(time.time())
        forged = [
            RouteUpserted(epoch="e1", seq=1, at=at, sid=TWO, route=raw),
            RouteUpserted(epoch="e1", seq=1, at=at, sid=TWO, route=raw, head=head.decode()),
            RouteUpserted(epoch="e1", seq=1, at=at, sid=TWO, route=raw, head="a.b.c"),
            GrantRevoked(epoch="e1", seq=0, at=at, sid=ONE),
            GrantRevoked(epoch="e1", seq=1, at=at, sid=ONE, proof="a.b.c"),
        ]
        for event in forged:
            await redis.publish(KEYS.events, event.encode())
        await until(lambda: seen.follower.noted["unproven"] >= 4)
        assert held(seen.follower.table) == {ONE}
        assert not table_of(seen).revocations
        assert seen.position() == ("e1", 0)
        await publisher.upsert(THREE, encode(make_route(THREE)), now=time.time())
        await seen.until_equal(publisher)


async def test_a_signed_event_with_changed_content_is_refused(redis: Redis) -> None:
    """The log holds the signed head; a message puts that head beside another route."""
    publisher = await leading(redis, ONE)
    async with following(redis, policy=policy()) as seen:
        await seen.until_equal(publisher)
        publisher._keys = Unheard("test")
        await publisher.upsert(TWO, encode(make_route(TWO)), now=time.time())
        publisher._keys = KEYS
        (genuine,) = (await BusReader(redis, KEYS).log_after(0)).events
        forged = genuine.replace(b"127.0.0.1", b"127.0.0.9")
        assert forged != genuine
        for _ in range(50):
            await redis.publish(KEYS.events, forged)
        await seen.until_equal(publisher)
        route = table_of(seen).route(TWO)
        assert route is not None
        assert route.target is not None
        assert route.target.host == "127.0.0.1"
        assert seen.follower.noted["unproven"] >= 1


async def test_a_notice_takes_effect_at_once_only_with_its_signature(redis: Redis) -> None:
    publisher = await leading(redis, ONE)
    replica = Publisher(redis, KEYS, term=1, signer=signer())
    without = Publisher(redis, KEYS, term=1)
    async with following(redis, policy=policy()) as seen:
        await seen.until_equal(publisher)
        at = event_time(time.time())
        await without.notice(GrantRevoked(epoch="-", seq=0, at=at, sid=ONE, sub="eve"))
        await replica.notice(GrantRevoked(epoch="-", seq=0, at=at, sid=ONE, sub="ada"))
        await until(lambda: seen.follower.noted["early"] == 1)
        assert set(table_of(seen).revocations) == {f"sub:{ONE}:ada"}
        # In its place in the sequence, the revocation is an ordinary event.
        await publisher.revoke(at=at.timestamp(), sid=ONE, sub="ada")
        await seen.until_equal(publisher)
        assert seen.follower.noted["snapshot"] == 1


@pytest.fixture
async def withdrawn(redis: Redis) -> AsyncIterator[tuple[Following, Publisher, Attacker]]:
    """Provide a gateway that knows of an ended session, a moved session, and a revoked grant."""
    publisher, attacker = await leading(redis, ONE, TWO), Attacker(redis)
    await attacker.keep()
    async with following(redis, policy=policy()) as seen:
        await seen.until_equal(publisher)
        await publisher.remove(ONE, "ended", now=time.time())
        await publisher.upsert(TWO, encode(make_route(TWO, rev=2)), now=time.time())
        await publisher.revoke(at=time.time(), sid=TWO, sub="ada")
        await publisher.beat(now=time.time())
        await seen.until_equal(publisher)
        yield seen, publisher, attacker


def check_withdrawn(seen: Following) -> None:
    table = table_of(seen)
    assert table.route(ONE) is None
    two = table.route(TWO)
    assert two is not None
    assert two.rev == 2
    assert f"sub:{TWO}:ada" in table.revocations


Withdrawn = tuple[Following, Publisher, Attacker]


async def test_a_complete_older_redis_content_is_refused(withdrawn: Withdrawn) -> None:
    seen, _, attacker = withdrawn
    await attacker.put_back()
    await until(lambda: seen.follower.noted["rollback"] >= 2)
    check_withdrawn(seen)


@pytest.mark.parametrize("names", [("routes",), ("revoked",), ("routes", "revoked"), ("head",)])
async def test_parts_of_an_older_redis_content_are_refused(
    withdrawn: Withdrawn, names: Any
) -> None:
    seen, publisher, attacker = withdrawn
    await attacker.put_back(*names)
    # A new gateway reads the manipulated parts.
    async with following(attacker.redis, policy=policy()) as fresh:
        if names == ("head",):
            await until(lambda: fresh.follower.noted["snapshot_refused"] >= 1)
        else:
            await until(lambda: fresh.follower.noted["unproven"] >= 1)
        assert fresh.follower.table is None
        await looked(seen)
        check_withdrawn(seen)
        # The leader detects the attack, and service is normal again.
        revoked = {f"sub:{TWO}:ada": time.time() + 86400}
        await publisher.rebuild(routes(TWO, rev=3), revoked, epoch="e2", now=time.time())
        await seen.until_equal(publisher)
        await until(lambda: fresh.position() == seen.position(), seconds=40.0)
        assert held(fresh.follower.table) == {TWO}


async def test_old_log_entries_under_a_new_epoch_are_refused(
    withdrawn: Withdrawn,
) -> None:
    seen, publisher, attacker = withdrawn
    at = event_time(time.time())
    raw = msgspec.Raw(encode(make_route(ONE)))
    signed = _bytes(await attacker.redis.hget(KEYS.head, "signed"))
    event = RouteUpserted(
        epoch="e1", seq=4, at=at, sid=ONE, route=raw, head=signed.decode()
    ).encode()
    await attacker.redis.xadd(KEYS.log, {"event": event}, id="4-0")
    await attacker.redis.hset(KEYS.head, mapping={"seq": 4, "routes": 2})
    await attacker.redis.hset(KEYS.routes, ONE, bytes(raw))
    await attacker.redis.publish(KEYS.events, event)
    await until(lambda: "not the one that was signed" in (seen.follower.last_error or ""))
    check_withdrawn(seen)
    assert seen.position() == ("e1", publisher.seq)


@pytest.mark.parametrize(
    "change", ["swapped", "added", "removed", "altered", "truncated", "rescored"]
)
async def test_a_new_gateway_refuses_a_modified_table(redis: Redis, change: str) -> None:
    publisher = await leading(redis, ONE, TWO)
    await publisher.revoke(at=time.time(), sid=TWO, sub="ada")
    await publisher.revoke(at=time.time(), kid="k1")
    one, two = map(_bytes, await redis.hmget(KEYS.routes, [ONE, TWO]))
    match change:
        case "swapped":
            # The two routes are swapped; both were signed.
            await redis.hset(KEYS.routes, mapping={ONE: two, TWO: one})
        case "added":
            await redis.hset(KEYS.routes, THREE, encode(make_route(THREE)))
            await redis.hset(KEYS.head, "routes", 3)
        case "removed":
            await redis.hdel(KEYS.routes, ONE)
            await redis.hset(KEYS.head, "routes", 1)
        case "altered":
            await redis.hset(KEYS.routes, ONE, one.replace(b"127.0.0.1", b"127.0.0.2"))
        case "truncated":
            await redis.zrem(KEYS.revoked, "kid:k1")
            await redis.hset(KEYS.head, "revoked", 1)
        case "rescored":
            # With a changed score, tokens from before the revocation could be accepted again.
            await redis.zadd(KEYS.revoked, {f"sub:{TWO}:ada": time.time() + 100})
    async with following(redis, policy=policy()) as seen:
        await until(lambda: seen.follower.noted["unproven"] >= 1)
        assert seen.follower.table is None
        assert not seen.follower.serving


async def test_epochs_cannot_be_mixed(redis: Redis) -> None:
    await leading(redis, ONE, TWO)
    attacker = Attacker(redis)
    await attacker.keep()
    after = await leading(redis, TWO, term=2, epoch="e2")
    async with following(redis, policy=policy()) as seen:
        await seen.until_equal(after)
        # The old epoch's table with the new head, and the old head with the new table.
        await attacker.put_back("routes")
        async with following(redis, policy=policy()) as fresh:
            await until(lambda: fresh.follower.noted["snapshot_refused"] >= 1)
            assert fresh.follower.table is None
        await attacker.put_back()
        await until(lambda: seen.follower.noted["rollback"] >= 1)
        assert held(seen.follower.table) == {TWO}


async def test_an_ended_session_stays_ended_under_any_leader(redis: Redis) -> None:
    """A leader with a store from a backup signs the withdrawn session again."""
    publisher = await leading(redis, ONE, TWO)
    async with following(redis, policy=policy()) as seen:
        await seen.until_equal(publisher)
        await publisher.remove(ONE, "ended", now=time.time())
        await seen.until_equal(publisher)
        after = await leading(redis, ONE, TWO, THREE, term=2, epoch="e2")
        await seen.until_equal(after)
        assert set(table_of(seen)) == {ONE, TWO, THREE}
        entry = table_of(seen).entry(ONE)
        assert entry is not None
        assert entry.problem == "the session has ended before"
        # A session that is missing from a table has ended too.
        later = await leading(redis, TWO, term=3, epoch="e3")
        await seen.until_equal(later)
        await until(lambda: seen.follower.policy.has_ended(THREE))
        last = await leading(redis, TWO, THREE, term=4, epoch="e4")
        await seen.until_equal(last)
        assert table_of(seen).route(THREE) is None
        assert table_of(seen).route(TWO) is not None


async def test_no_route_goes_below_its_revision_within_a_term(redis: Redis) -> None:
    publisher = Publisher(redis, KEYS, term=1, signer=signer())
    await publisher.rebuild(routes(ONE, rev=5), {}, epoch="e1", now=time.time())
    async with following(redis, policy=policy()) as seen:
        await seen.until_equal(publisher)
        await publisher.upsert(ONE, encode(make_route(ONE, rev=4)), now=time.time())
        await seen.until_equal(publisher)
        assert table_of(seen).unreadable == 1
        await publisher.upsert(ONE, encode(make_route(ONE, rev=6)), now=time.time())
        await seen.until_equal(publisher)
        assert table_of(seen).unreadable == 0
        # Another leader uses another clock.
        after = Publisher(redis, KEYS, term=2, signer=signer())
        await after.rebuild(routes(ONE, rev=1), {}, epoch="e2", now=time.time())
        await seen.until_equal(after)
        assert table_of(seen).unreadable == 0
