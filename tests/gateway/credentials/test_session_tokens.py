"""Tests session tokens at a running gateway: verified and used once, whatever Redis does."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from gateway.core.access.opening import OpeningRefused
from gateway.credentials.session_tokens import BearerTokens, SessionTokens, SignatureChecks
from shared.bus import BusReader, Publisher
from shared.jose.jwks import KeySource
from shared.jose.jws import read_key_set
from shared.tokens import SessionClaims
from tests.gateway.bus.following import KEYS, Following, following, make_route, published, sid_of
from tests.gateway.signing import ISSUER, Signer

SID = sid_of(1)
HERE = "192.0.2.1"


class Desk:
    """Everything that verifies tokens."""

    def __init__(self, redis: Redis, seen: Following, publisher: Publisher, folder: Path) -> None:
        self.redis = redis
        self.seen = seen
        self.publisher = publisher
        self.signer = Signer()
        self.path = folder / "jwks.json"
        self.signer.publish(self.path)
        self.keys = KeySource(str(self.path), clock=time.monotonic)
        self.ahead = 0.0
        self.checks = SignatureChecks(of_address=100, of_all=100, queued=4, clock=time.monotonic)
        self.tokens = SessionTokens(
            keys=self.keys,
            issuer=ISSUER,
            reader=BusReader(redis, KEYS),
            follower=seen.follower,
            wall=self.wall,
            checks=self.checks,
        )
        self.bearers = BearerTokens(self.tokens)

    def wall(self) -> float:
        return time.time() + self.ahead

    async def claims(self, **changes: object) -> SessionClaims:
        claims, _ = await self.tokens.verify(self.signer.token(SID, **changes), address=HERE)
        return claims


@pytest.fixture
async def desk(redis: Redis, tmp_path: Path) -> AsyncIterator[Desk]:
    publisher = await published(redis, make_route(SID))
    async with following(redis) as seen:
        await seen.until_equal(publisher)
        one = Desk(redis, seen, publisher, tmp_path)
        yield one
        one.checks.close()


async def refusal(desk: Desk, claims: SessionClaims, use: str) -> str:
    with pytest.raises(OpeningRefused) as refused:
        await desk.tokens.mark(claims, use)  # type: ignore[arg-type]  # one of the two words
    return refused.value.code


async def test_a_token_opens_once_under_concurrent_attempts(desk: Desk) -> None:
    claims = await desk.claims()
    outcomes = await asyncio.gather(
        *(desk.tokens.mark(claims, "open") for _ in range(20)), return_exceptions=True
    )
    assert outcomes.count(None) == 1
    codes = {one.code for one in outcomes if isinstance(one, OpeningRefused)}
    assert codes == {"token_spent"}


async def test_the_first_use_decides(desk: Desk) -> None:
    opened, borne = await desk.claims(), await desk.claims()
    await desk.tokens.mark(opened, "open")
    assert await refusal(desk, opened, "bearer") == "token_spent"
    await desk.tokens.mark(borne, "bearer")
    await desk.tokens.mark(borne, "bearer")
    assert await refusal(desk, borne, "open") == "token_spent"


async def test_a_used_token_mark_outlives_the_token_by_a_minute(desk: Desk) -> None:
    claims = await desk.claims()
    await desk.tokens.mark(claims, "open")
    kept = await desk.redis.ttl(KEYS.used(claims.jti))
    assert claims.exp + 60 - time.time() <= kept <= claims.exp + 62 - time.time()


async def test_a_redis_without_a_head_marks_no_token(desk: Desk) -> None:
    claims = await desk.claims()
    await desk.redis.delete(KEYS.head)
    assert await refusal(desk, claims, "open") == "bus_lost"


async def test_an_opening_waits_for_a_new_epoch_without_spending_the_token(desk: Desk) -> None:
    claims = await desk.claims()
    follower = desk.seen.follower
    old = follower.table
    await desk.publisher.rebuild({}, {}, epoch="e2", now=time.time())
    assert follower.table is old
    await desk.tokens.mark(claims, "open")
    assert follower.table is not None
    assert follower.table.epoch == "e2"


async def test_a_token_older_than_a_data_loss_is_not_looked_up(desk: Desk) -> None:
    claims = await desk.claims()
    await desk.publisher.rebuild({}, {}, epoch="e2", now=time.time(), since=time.time())
    await desk.seen.until_equal(desk.publisher)
    assert await refusal(desk, claims, "open") == "token_unsure"
    assert await desk.redis.exists(KEYS.used(claims.jti)) == 0


async def test_with_a_lost_bus_no_token_is_marked(desk: Desk) -> None:
    claims = await desk.claims()
    desk.seen.clock.ahead += 6
    assert await refusal(desk, claims, "open") == "bus_lost"
    assert await desk.redis.exists(KEYS.used(claims.jti)) == 0


async def test_a_token_of_another_session_is_refused_before_verification(
    desk: Desk,
) -> None:
    with pytest.raises(OpeningRefused) as refused:
        desk.tokens.peek(Signer().token(sid_of(2)), sid=SID)
    assert refused.value.code == "other_session"


async def test_a_bearer_is_verified_and_marked_once(desk: Desk) -> None:
    token = desk.signer.token(SID)
    assert desk.bearers.remembered(token) is None
    claims = await desk.bearers.verify(token, address=HERE)
    assert desk.bearers.remembered(token) is None
    await desk.bearers.mark(claims)
    assert desk.bearers.remembered(token) == claims
    # Redis is silent, and the token is accepted.
    desk.seen.clock.ahead += 6
    await desk.bearers.mark(claims)
    assert desk.bearers.remembered(token) == claims


async def test_a_bearer_is_forgotten_ten_seconds_after_it_expired(desk: Desk) -> None:
    token = desk.signer.token(SID)
    claims = await desk.bearers.verify(token, address=HERE)
    await desk.bearers.mark(claims)
    desk.ahead = claims.exp + 9 - time.time()
    assert desk.bearers.remembered(token) == claims
    desk.ahead = claims.exp + 10 - time.time()
    assert desk.bearers.remembered(token) is None
    with pytest.raises(OpeningRefused):
        await desk.bearers.verify(token, address=HERE)


async def test_a_removed_key_invalidates_cached_tokens(desk: Desk) -> None:
    token = desk.signer.token(SID)
    await desk.bearers.mark(await desk.bearers.verify(token, address=HERE))
    desk.keys.keys = type(desk.keys.keys)()
    assert desk.bearers.remembered(token) is None


async def test_the_cache_of_bearers_is_bounded(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.credentials.session_tokens._MOST_MARKED", 10)
    monkeypatch.setattr("gateway.credentials.session_tokens._MOST_VERIFIED", 10)
    for _ in range(30):
        await desk.bearers.mark(await desk.bearers.verify(desk.signer.token(SID), address=HERE))
    assert len(desk.bearers._marked) <= 10
    assert len(desk.bearers._verified) <= 10


async def test_a_spent_bearer_is_refused_as_such(desk: Desk) -> None:
    token = desk.signer.token(SID)
    claims = await desk.bearers.verify(token, address=HERE)
    await desk.tokens.mark(claims, "open")
    with pytest.raises(OpeningRefused) as refused:
        await desk.bearers.mark(claims)
    assert refused.value.code == "token_spent"


async def test_a_token_refused_by_a_full_queue_is_not_invalid(desk: Desk) -> None:
    desk.tokens.checks = SignatureChecks(of_address=1, of_all=1, queued=0, clock=time.monotonic)
    await desk.claims()
    with pytest.raises(OpeningRefused) as refused:
        await desk.claims()
    assert refused.value.code == "too_many_checks"
    with pytest.raises(OpeningRefused) as bearer:
        await desk.bearers.verify(desk.signer.token(SID), address=HERE)
    assert bearer.value.code == "too_many_checks"
    desk.tokens.checks.close()


async def test_verification_in_the_thread_gives_the_same_result(desk: Desk) -> None:
    desk.tokens.checks = SignatureChecks(of_address=1, of_all=1, queued=9, clock=time.monotonic)
    good = await asyncio.gather(*(desk.claims() for _ in range(5)))
    assert {claims.sid for claims in good} == {SID}
    with pytest.raises(OpeningRefused) as refused:
        await desk.tokens.verify(Signer().token(SID), address=HERE)
    assert refused.value.code == "bad_credential"
    desk.tokens.checks.close()


@pytest.mark.parametrize("after", ["gone", "another"])
async def test_a_token_is_cached_only_with_the_key_that_verified_it(desk: Desk, after: str) -> None:
    desk.tokens.checks = SignatureChecks(of_address=1, of_all=1, queued=9, clock=time.monotonic)
    await desk.claims()
    token, go = desk.signer.token(SID), threading.Event()
    desk.tokens.checks._thread.submit(go.wait, 30)
    asked = asyncio.create_task(desk.bearers.verify(token, address=HERE))
    while not desk.tokens.checks.waiting:
        await asyncio.sleep(0)
    others = {"keys": [Signer("k1" if after == "another" else "k2").jwk()]}
    desk.keys.keys = read_key_set(json.dumps(others).encode())
    go.set()
    claims = await asked
    await desk.bearers.mark(claims)
    assert desk.bearers.remembered(token) is None
    desk.tokens.checks.close()


async def test_an_undetected_failover_opens_no_token(desk: Desk, redis: Redis) -> None:
    claims = await desk.claims()
    # As after a failover without loss: only the server process is another one.
    await redis.hset(KEYS.head, "server", "another")
    assert await refusal(desk, claims, "open") == "token_unsure"
