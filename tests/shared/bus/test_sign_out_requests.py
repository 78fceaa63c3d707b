"""Tests sign-out requests in a real Redis: read in order; malformed entries are ignored."""

from __future__ import annotations

import pytest
from redis.asyncio import Redis

from shared.bus import Keys, SignOutReader, SignOutWriter, comparable_id
from shared.bus import sign_out_requests as module
from shared.bus.sign_out_requests import BEGINNING
from tests.shared.samples import SID, make_sid

KEYS = Keys("test")


async def test_sign_out_requests_are_read_in_order_from_a_position(redis: Redis) -> None:
    writer, reader = SignOutWriter(redis, KEYS), SignOutReader(redis, KEYS)
    assert await reader.after(BEGINNING, limit=10) == module.SignOutRequests((), None)
    for number in range(5):
        await writer.add(make_sid(number), f"t{number}")
    first = await reader.after(BEGINNING, limit=3)
    assert [request.jti for request in first.entries] == ["t0", "t1", "t2"]
    rest = await reader.after(first.entries[-1].id, limit=3)
    assert [(request.sid, request.jti) for request in rest.entries] == [
        (make_sid(3), "t3"),
        (make_sid(4), "t4"),
    ]
    assert rest.last == first.last == rest.entries[-1].id
    assert (await reader.after(rest.entries[-1].id, limit=3)).entries == ()


@pytest.mark.parametrize(
    "fields",
    [
        {"x": "y"},
        {"sid": SID},
        {"jti": "t"},
        {"sid": "SHORT", "jti": "t"},
        {"sid": SID, "jti": ""},
        {"sid": SID, "jti": "t" * 129},
        {"sid": SID, "jti": "a b"},
        {"sid": SID, "jti": "\u00e9"},
        {"sid": SID + "\n", "jti": "t"},
        {"sid": SID, "jti": "x" * 1_000_000},
        {f"f{n}": "x" for n in range(100)},
    ],
)
async def test_a_malformed_sign_out_request_is_read_as_none(
    redis: Redis, fields: dict[str, str]
) -> None:
    await redis.xadd(KEYS.asks, fields)  # type: ignore[arg-type]  # redis wants its own union
    await redis.xadd(KEYS.asks, {"later": "field", "sid": SID, "jti": "good"})
    bad, good = (await SignOutReader(redis, KEYS).after(BEGINNING, limit=10)).entries
    assert (bad.sid, bad.jti) == (None, None)
    assert (good.sid, good.jti) == (SID, "good")


async def test_the_stream_is_bounded(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_REQUESTS", 10)
    writer = SignOutWriter(redis, KEYS)
    for number in range(25):
        await writer.add(SID, f"t{number}")
    assert await redis.xlen(KEYS.asks) == 10


async def test_a_key_of_another_type_is_removed(redis: Redis) -> None:
    await redis.set(KEYS.asks, "x")
    assert await SignOutReader(redis, KEYS).after(BEGINNING, limit=10) == module.SignOutRequests(
        (), None
    )
    await SignOutWriter(redis, KEYS).add(SID, "t")
    (request,) = (await SignOutReader(redis, KEYS).after(BEGINNING, limit=10)).entries
    assert request.jti == "t"


async def test_only_the_stream_that_was_read_is_deleted(redis: Redis) -> None:
    reader = SignOutReader(redis, KEYS)
    await redis.xadd(KEYS.asks, {"sid": SID, "jti": "a"}, id="5-1")
    await redis.xadd(KEYS.asks, {"sid": SID, "jti": "b"}, id="6-0")
    await reader.forget("5-1")
    assert await redis.xlen(KEYS.asks) == 2
    await reader.forget("6-0")
    assert await redis.exists(KEYS.asks) == 0


def test_stream_positions_are_compared_as_numbers() -> None:
    assert (
        comparable_id("9-0")
        < comparable_id("10-0")
        < comparable_id("10-2")
        < comparable_id("10-10")
    )
