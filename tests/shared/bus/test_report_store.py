"""Tests reports in a real Redis: written and read back; parts that are too long are not read."""

from __future__ import annotations

from typing import Any

import msgspec
from redis.asyncio import Redis

from shared.bus import BusInspector, Keys, ReportReader, ReportWriter
from shared.bus.parser import MOST_VALUE_BYTES
from shared.reports import MOST_PARTS, Activity, GatewayReport, encode_report
from tests.shared.samples import SID, make_sid

KEYS = Keys("test")
NOW = 1_800_000_000.0


def part(*subs: str) -> bytes:
    return encode_report(Activity(at=NOW, last_input_at=NOW, subs=subs))


async def activity_of(reader: ReportReader, sid: str) -> Activity | None:
    return (await reader.activities_of([sid], now=NOW)).get(sid)


async def test_reports_of_two_gateways_are_merged(redis: Redis) -> None:
    reader = ReportReader(redis, KEYS)
    assert await activity_of(reader, SID) is None
    for name, sub in (("one", "ada"), ("two", "bob")):
        writer = ReportWriter(redis, KEYS, name)
        await writer.write(b"{}")
        await writer.write_activities({SID: part(sub), make_sid(2): part(sub)})
    activity = await activity_of(reader, SID)
    assert activity is not None
    assert activity.subs == ("ada", "bob")
    await redis.delete(KEYS.gateway("one"))
    activity = await activity_of(reader, SID)
    assert activity is not None
    assert activity.subs == ("bob",)


async def test_reports_expire(redis: Redis) -> None:
    writer = ReportWriter(redis, KEYS, "one")
    await writer.write(b"{}")
    await writer.write_activities({SID: part("ada")})
    assert 0 < await redis.ttl(KEYS.gateway("one")) <= 10
    assert 3500 < await redis.ttl(KEYS.activity(SID)) <= 3600


async def test_malformed_or_many_reports_do_not_hide_valid_ones(redis: Redis) -> None:
    await redis.hset(KEYS.activity(SID), "garbage", "x")
    await redis.hset(KEYS.activity(SID), "long", "x" * 1_000_000)
    await redis.hset(KEYS.activity(SID), "n" * 1000, part("eve"))
    await ReportWriter(redis, KEYS, "good").write(b"{}")
    await ReportWriter(redis, KEYS, "good").write_activities({SID: part("ada")})
    activity = await activity_of(ReportReader(redis, KEYS), SID)
    assert activity is not None
    assert activity.subs == ("ada",)
    other = make_sid(3)
    flood: dict[Any, Any] = {
        f"g{n}": encode_report(Activity(at=NOW, bytes_in=1)) for n in range(5000)
    }
    await redis.hset(KEYS.activity(other), mapping=flood)
    activity = await activity_of(ReportReader(redis, KEYS), other)
    assert activity is not None
    assert activity.bytes_in <= MOST_PARTS
    # An unreadable part hides no other session's activity.
    await redis.set(KEYS.activity(make_sid(4)), "x")
    reader = ReportReader(redis, KEYS)
    found = await reader.activities_of([make_sid(4), SID, make_sid(5)], now=NOW)
    assert {sid: one.subs for sid, one in found.items()} == {SID: ("ada",)}


async def test_values_that_a_gateway_has_written_too_long_do_not_hide_the_others(
    redis: Redis,
) -> None:
    report = GatewayReport(at=NOW, version="1", epoch=None, seq=0, lag_seconds=0.0)
    await ReportWriter(redis, KEYS, "good").write(msgspec.json.encode(report))
    for key in (KEYS.gateway("long"), KEYS.used("t")):
        await redis.set(key, "x" * (MOST_VALUE_BYTES + 1))
    await redis.set(KEYS.used("u"), "open")
    inspector = BusInspector(redis, KEYS)
    assert await inspector.gateways() == {"good": report}
    uses = [(await inspector.standing(SID, jti=jti)).used for jti in ("t", "u", "v")]
    assert uses == ["x" * 16, "open", None]
