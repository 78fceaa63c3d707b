"""Reports in Redis: gateways write them, the controller reads them, for display and diagnosis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from redis.asyncio import Redis

from shared.bus.keys import Keys, bytes_of, text_of
from shared.bus.reader import parse_head
from shared.bus.translation import translated
from shared.events import Head
from shared.reports import (
    ACTIVITY_KEPT_SECONDS,
    MOST_PART_BYTES,
    MOST_PARTS,
    REPORT_KEPT_SECONDS,
    Activity,
    GatewayReport,
    decode_activity,
    merge_activities,
)

ACTIVITIES_AT_ONCE: Final = 20
"""Sessions in one read: at most 40 MiB, even if an attacker has written the parts."""

_PARTS: Final = """
local all = {}
for _, key in ipairs(KEYS) do
  local found = {}
  local read = redis.pcall('HSCAN', key, '0', 'COUNT', ARGV[1])
  local parts = read.err and {} or read[2]
  for i = 1, math.min(#parts, 2 * tonumber(ARGV[1])), 2 do
    if #parts[i] <= 64 and #parts[i + 1] <= tonumber(ARGV[2]) then
      local alive = redis.call('EXISTS', ARGV[3] .. parts[i])
      found[#found + 1] = {parts[i], parts[i + 1], alive}
    end
  end
  all[#all + 1] = found
end
return all
"""
"""Returns no part that is too long: a client with write access may have stored any length."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ReportWriter:
    """Writes the reports of one gateway process.

    Args:
        name: The unique name of the process.
    """

    redis: Redis
    keys: Keys
    name: str

    async def write(self, report: bytes) -> None:
        """Write the report of this process."""
        with translated():
            await self.redis.set(self.keys.gateway(self.name), report, ex=REPORT_KEPT_SECONDS)

    async def leave(self) -> None:
        """Remove the report of this process, so that its users do not count as connected.

        Sets a time to live of 0, since gateways may not delete keys (``deploy/redis/users.acl``).
        """
        with translated():
            await self.redis.expire(self.keys.gateway(self.name), 0)

    async def write_activities(self, activities: Mapping[str, bytes]) -> None:
        """Write this process' part of the activities of these sessions, in one round trip.

        Raises:
            BusUnavailable: If Redis does not respond; some of them may have been written.
        """
        with translated():
            async with self.redis.pipeline(transaction=False) as pipe:
                for sid, activity in activities.items():
                    key = self.keys.activity(sid)
                    pipe.hset(key, self.name, activity)
                    pipe.expire(key, ACTIVITY_KEPT_SECONDS)
                await pipe.execute()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ReportReader:
    """Reads the reports of gateways."""

    redis: Redis
    keys: Keys

    async def activities_of(self, sids: Sequence[str], *, now: float) -> dict[str, Activity]:
        """Return the activities of :data:`ACTIVITIES_AT_ONCE` sessions at most.

        Sessions without a report are left out.
        """
        with translated():
            found = await self.redis.eval(
                _PARTS,
                len(sids),
                *(self.keys.activity(sid) for sid in sids),
                str(MOST_PARTS),
                str(MOST_PART_BYTES),
                self.keys.gateway(""),
            )
            read = {sid: _activity(parts, now) for sid, parts in zip(sids, found, strict=True)}
        return {sid: activity for sid, activity in read.items() if activity is not None}


def _activity(found: Sequence[tuple[bytes, bytes, int]], now: float) -> Activity | None:
    parts: dict[str, Activity] = {}
    living: set[str] = set()
    for name, raw, alive in found:
        activity = decode_activity(raw)
        if activity is not None:
            text = text_of(name)
            parts[text] = activity
            if alive:
                living.add(text)
    return merge_activities(parts, living, now) if parts else None


# The state of one session in Redis, for diagnosis

MOST_GATEWAYS: Final = 256
MOST_REPORT_BYTES: Final = 1 << 20
_SCANNED: Final = 1_000_000
"""The maximum number of keys that a scan examines."""
_AT_ONCE: Final = 1000

_decode = msgspec.json.Decoder(GatewayReport).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class BusStanding:
    """The head, a session's route as written, and the use of a token, read in one transaction."""

    head: Head | None
    route: bytes | None
    used: str | None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BusInspector:
    """Reads the state of one session, and the gateways' reports."""

    redis: Redis
    keys: Keys

    async def standing(self, sid: str, *, jti: str | None) -> BusStanding:
        """Return the state of the session *sid* and of the token *jti*."""
        with translated():
            async with self.redis.pipeline(transaction=True) as pipe:
                pipe.hgetall(self.keys.head)
                pipe.hget(self.keys.routes, sid)
                # A client with write access may have stored a value of any length.
                pipe.getrange(self.keys.used(jti or "-"), 0, 15)
                head, route, used = await pipe.execute()
            mark = text_of(used) if jti is not None and used else None
            found = None if route is None else bytes_of(route)
            return BusStanding(head=parse_head(head), route=found, used=mark)

    async def gateways(self) -> dict[str, GatewayReport]:
        """Return the reports of the gateways by name."""
        found: dict[str, GatewayReport] = {}
        prefix, scanned = self.keys.gateway(""), 0
        with translated():
            async for key in self.redis.scan_iter(match=_literal(prefix) + "*", count=_AT_ONCE):
                scanned += 1
                name = text_of(key).removeprefix(prefix)[:64]
                report = await self._report(key)
                if report is not None:
                    found[name] = report
                if len(found) >= MOST_GATEWAYS or scanned >= _SCANNED:
                    break
        return found

    async def _report(self, key: bytes) -> GatewayReport | None:
        # A client with write access may have stored a value of any length.
        raw = await self.redis.getrange(key, 0, MOST_REPORT_BYTES - 1)
        try:
            return _decode(raw)
        except msgspec.DecodeError:
            return None


def _literal(text: str) -> str:
    """Return *text* escaped as a Redis glob pattern."""
    return "".join(f"\\{one}" if one in "*?[]^\\" else one for one in text)
