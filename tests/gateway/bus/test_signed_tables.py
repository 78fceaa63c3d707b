"""Tests route keys: an attacker who controls Redis cannot make a gateway serve withdrawn sessions.

The attacker reads and writes everything in Redis, publishes any message, and has no key.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, cast

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from redis.asyncio import Redis

from gateway.bus.head_policy import NOT_SIGNED, HeadPolicy
from gateway.core.bus_state import Bus
from shared.bus import BusReader, Publisher
from shared.events import GrantRevoked, RouteUpserted, event_time
from shared.jose.jws import read_key_set
from shared.jose.signing_keys import public_key_set
from shared.routes.signed_table import TableSigner, TableVerifier
from shared.routes.table import RouteTable
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
    sid_of,
)
from tests.waiting import until

THREE = sid_of(3)
KEY, OTHER = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()


def signer(key: Ed25519PrivateKey = KEY) -> TableSigner:
    return TableSigner(key, instance="test")


def policy(
    *keys: Ed25519PrivateKey, wall: Callable[[], float] = time.time, fresh: float = 300.0
) -> HeadPolicy:
    public = read_key_set(json.dumps(public_key_set(keys or (KEY,))).encode())
    return HeadPolicy(
        TableVerifier(public, instance="test"),
        wall=wall,
        monotonic=time.monotonic,
        max_age_seconds=fresh,
    )


def routes(*sids: str, **changes: Any) -> dict[str, bytes]:
    return {sid: encode(make_route(sid, **changes)) for sid in sids}


async def leading(
    redis: Redis, *sids: str, term: int = 1, key: Ed25519PrivateKey = KEY, epoch: str = "e1"
) -> Publisher:
    """Return a leader that has signed a table of these sessions."""
    publisher = Publisher(redis, KEYS, term=term, signer=signer(key))
    await publisher.rebuild(routes(*sids), {}, epoch=epoch, now=time.time())
    return publisher


def table_of(seen: Following) -> RouteTable:
    table = seen.follower.table
    assert table is not None
    return table


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


async def looked(seen: Following, times: int = 3) -> None:
    """Wait until the follower has polled the head *times* more."""
    for _ in range(times):
        before = seen.follower.clock._polled_at
        await until(lambda at=before: seen.follower.clock._polled_at != at)


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
