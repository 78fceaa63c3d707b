"""Provides gateways that follow signed tables, and their publishers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from redis.asyncio import Redis

from gateway.bus.head_policy import HeadPolicy
from shared.bus import Publisher
from shared.jose.jws import read_key_set
from shared.jose.signing_keys import public_key_set
from shared.routes.signed_table import TableSigner, TableVerifier
from shared.routes.table import RouteTable
from tests.gateway.bus.following import KEYS, Following, encode, make_route, sid_of
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


async def looked(seen: Following, times: int = 3) -> None:
    """Wait until the follower has polled the head *times* more."""
    for _ in range(times):
        before = seen.follower.clock._polled_at
        await until(lambda at=before: seen.follower.clock._polled_at != at)
