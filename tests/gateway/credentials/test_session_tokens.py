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


class TokenRig:
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
async def token_rig(redis: Redis, tmp_path: Path) -> AsyncIterator[TokenRig]:
    publisher = await published(redis, make_route(SID))
    async with following(redis) as seen:
        await seen.until_equal(publisher)
        one = TokenRig(redis, seen, publisher, tmp_path)
        yield one
        one.checks.close()


async def refusal(token_rig: TokenRig, claims: SessionClaims, use: str) -> str:
    with pytest.raises(OpeningRefused) as refused:
        await token_rig.tokens.mark(claims, use)  # type: ignore[arg-type]  # one of the two words
    return refused.value.code


async def test_a_token_opens_once_under_concurrent_attempts(token_rig: TokenRig) -> None:
    claims = await token_rig.claims()
    outcomes = await asyncio.gather(
        *(token_rig.tokens.mark(claims, "open") for _ in range(20)), return_exceptions=True
    )
    assert outcomes.count(None) == 1
    codes = {one.code for one in outcomes if isinstance(one, OpeningRefused)}
    assert codes == {"token_spent"}


async def test_the_first_use_decides(token_rig: TokenRig) -> None:
    opened, borne = await token_rig.claims(), await token_rig.claims()
    await token_rig.tokens.mark(opened, "open")
    assert await refusal(token_rig, opened, "bearer") == "token_spent"
    await token_rig.tokens.mark(borne, "bearer")
    await token_rig.tokens.mark(borne, "bearer")
    assert await refusal(token_rig, borne, "open") == "token_spent"


async def test_a_used_token_mark_outlives_the_token_by_a_minute(token_rig: TokenRig) -> None:
    claims = await token_rig.claims()
    await token_rig.tokens.mark(claims, "open")
    kept = await token_rig.redis.ttl(KEYS.used(claims.jti))
    assert claims.exp + 60 - time.time() <= kept <= claims.exp + 62 - time.time()


async def test_a_redis_without_a_head_opens_nothing(token_rig: TokenRig) -> None:
    claims = await token_rig.claims()
    await token_rig.redis.delete(KEYS.head)
    assert await refusal(token_rig, claims, "open") == "bus_lost"


async def test_an_opening_waits_for_a_new_epoch_without_spending_the_token(
    token_rig: TokenRig,
) -> None:
    claims = await token_rig.claims()
    follower = token_rig.seen.follower
    old = follower.table
    await token_rig.publisher.rebuild({}, {}, epoch="e2", now=time.time())
    assert follower.table is old
    await token_rig.tokens.mark(claims, "open")
    assert follower.table is not None
    assert follower.table.epoch == "e2"


async def test_an_epoch_whose_table_cannot_be_read_spends_no_token(token_rig: TokenRig) -> None:
    claims = await token_rig.claims()
    follower = token_rig.seen.follower
    await token_rig.publisher.rebuild({}, {}, epoch="e2", now=time.time())
    await token_rig.redis.hset(KEYS.routes, "extra", "{}")
    async with asyncio.timeout(10):
        while follower.catch_up.wanted is None:
            await follower.repair()
    assert await refusal(token_rig, claims, "open") == "bus_lost"
    assert await token_rig.redis.exists(KEYS.used(claims.jti)) == 0
    await token_rig.redis.hdel(KEYS.routes, "extra")
    await token_rig.tokens.mark(claims, "open")


async def test_a_token_older_than_a_data_loss_is_not_looked_up(token_rig: TokenRig) -> None:
    claims = await token_rig.claims()
    await token_rig.publisher.rebuild({}, {}, epoch="e2", now=time.time(), since=time.time())
    await token_rig.seen.until_equal(token_rig.publisher)
    assert await refusal(token_rig, claims, "open") == "token_unsure"
    assert await token_rig.redis.exists(KEYS.used(claims.jti)) == 0


async def test_with_a_lost_bus_no_token_is_marked(token_rig: TokenRig) -> None:
    claims = await token_rig.claims()
    token_rig.seen.clock.ahead += 6
    assert await refusal(token_rig, claims, "open") == "bus_lost"
    assert await token_rig.redis.exists(KEYS.used(claims.jti)) == 0


async def test_a_token_of_another_session_is_refused_before_verification(
    token_rig: TokenRig,
) -> None:
    with pytest.raises(OpeningRefused) as refused:
        token_rig.tokens.peek(Signer().token(sid_of(2)), sid=SID)
    assert refused.value.code == "other_session"


async def test_a_bearer_is_verified_and_marked_once(token_rig: TokenRig) -> None:
    token = token_rig.signer.token(SID)
    assert token_rig.bearers.remembered(token) is None
    claims = await token_rig.bearers.verify(token, address=HERE)
    assert token_rig.bearers.remembered(token) is None
    await token_rig.bearers.mark(claims)
    assert token_rig.bearers.remembered(token) == claims
    # Redis is silent, and the token is accepted.
    token_rig.seen.clock.ahead += 6
    await token_rig.bearers.mark(claims)
    assert token_rig.bearers.remembered(token) == claims


async def test_a_bearer_is_forgotten_ten_seconds_after_it_expired(token_rig: TokenRig) -> None:
    token = token_rig.signer.token(SID)
    claims = await token_rig.bearers.verify(token, address=HERE)
    await token_rig.bearers.mark(claims)
    token_rig.ahead = claims.exp + 9 - time.time()
    assert token_rig.bearers.remembered(token) == claims
    token_rig.ahead = claims.exp + 10 - time.time()
    assert token_rig.bearers.remembered(token) is None
    with pytest.raises(OpeningRefused):
        await token_rig.bearers.verify(token, address=HERE)


async def test_a_removed_key_invalidates_cached_tokens(token_rig: TokenRig) -> None:
    token = token_rig.signer.token(SID)
    await token_rig.bearers.mark(await token_rig.bearers.verify(token, address=HERE))
    token_rig.keys.keys = type(token_rig.keys.keys)()
    assert token_rig.bearers.remembered(token) is None


async def test_the_cache_of_bearers_is_bounded(
    token_rig: TokenRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.credentials.session_tokens._MOST_MARKED", 10)
    monkeypatch.setattr("gateway.credentials.session_tokens._MOST_VERIFIED", 10)
    bearers = BearerTokens(token_rig.tokens)
    for _ in range(30):
        await bearers.mark(await bearers.verify(token_rig.signer.token(SID), address=HERE))
    assert (len(bearers._marked), len(bearers._verified)) == (10, 10)


async def test_a_spent_bearer_is_refused_as_such(token_rig: TokenRig) -> None:
    token = token_rig.signer.token(SID)
    claims = await token_rig.bearers.verify(token, address=HERE)
    await token_rig.tokens.mark(claims, "open")
    with pytest.raises(OpeningRefused) as refused:
        await token_rig.bearers.mark(claims)
    assert refused.value.code == "token_spent"


async def test_a_token_refused_by_a_full_queue_is_not_invalid(token_rig: TokenRig) -> None:
    token_rig.tokens.checks = SignatureChecks(
        of_address=1, of_all=1, queued=0, clock=time.monotonic
    )
    await token_rig.claims()
    with pytest.raises(OpeningRefused) as refused:
        await token_rig.claims()
    assert refused.value.code == "too_many_checks"
    with pytest.raises(OpeningRefused) as bearer:
        await token_rig.bearers.verify(token_rig.signer.token(SID), address=HERE)
    assert bearer.value.code == "too_many_checks"
    token_rig.tokens.checks.close()


async def test_verification_in_the_thread_gives_the_same_result(token_rig: TokenRig) -> None:
    token_rig.tokens.checks = SignatureChecks(
        of_address=1, of_all=1, queued=9, clock=time.monotonic
    )
    good = await asyncio.gather(*(token_rig.claims() for _ in range(5)))
    assert {claims.sid for claims in good} == {SID}
    with pytest.raises(OpeningRefused) as refused:
        await token_rig.tokens.verify(Signer().token(SID), address=HERE)
    assert refused.value.code == "bad_credential"
    token_rig.tokens.checks.close()


@pytest.mark.parametrize("after", ["gone", "another"])
async def test_a_token_is_cached_only_with_the_key_that_verified_it(
    token_rig: TokenRig, after: str
) -> None:
    token_rig.tokens.checks = SignatureChecks(
        of_address=1, of_all=1, queued=9, clock=time.monotonic
    )
    await token_rig.claims()
    token, go = token_rig.signer.token(SID), threading.Event()
    token_rig.tokens.checks._thread.submit(go.wait, 30)
    asked = asyncio.create_task(token_rig.bearers.verify(token, address=HERE))
    while not token_rig.tokens.checks.waiting:
        await asyncio.sleep(0)
    others = {"keys": [Signer("k1" if after == "another" else "k2").jwk()]}
    token_rig.keys.keys = read_key_set(json.dumps(others).encode())
    go.set()
    claims = await asked
    await token_rig.bearers.mark(claims)
    assert token_rig.bearers.remembered(token) is None
    token_rig.tokens.checks.close()


async def test_an_undetected_failover_opens_no_token(token_rig: TokenRig, redis: Redis) -> None:
    claims = await token_rig.claims()
    # As after a failover without loss: only the server process is another one.
    await redis.hset(KEYS.head, "server", "another")
    assert await refusal(token_rig, claims, "open") == "token_unsure"
