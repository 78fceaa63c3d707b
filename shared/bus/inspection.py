"""The state of one session in Redis, for diagnosis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec
from redis.asyncio import Redis

from shared.bus.connection import translated
from shared.bus.keys import Keys
from shared.bus.reader import parse_head
from shared.events import Head
from shared.reports import GatewayReport

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
                pipe.get(self.keys.used(jti or "-"))
                head, route, used = await pipe.execute()
        mark = used.decode(errors="replace")[:16] if jti is not None and used is not None else None
        return BusStanding(head=parse_head(head), route=route, used=mark)

    async def gateways(self) -> dict[str, GatewayReport]:
        """Return the reports of the gateways by name."""
        found: dict[str, GatewayReport] = {}
        prefix, scanned = self.keys.gateway(""), 0
        with translated():
            async for key in self.redis.scan_iter(match=_literal(prefix) + "*", count=_AT_ONCE):
                scanned += 1
                name = key.decode(errors="replace").removeprefix(prefix)[:64]
                report = await self._report(key)
                if report is not None:
                    found[name] = report
                if len(found) >= MOST_GATEWAYS or scanned >= _SCANNED:
                    break
        return found

    async def _report(self, key: bytes) -> GatewayReport | None:
        # A client with write access may have stored a value of any length.
        raw = await self.redis.getrange(key, 0, MOST_REPORT_BYTES)
        try:
            return _decode(raw)
        except msgspec.DecodeError:
            return None


def _literal(text: str) -> str:
    """Return *text* escaped as a Redis glob pattern."""
    return "".join(f"\\{one}" if one in "*?[]^\\" else one for one in text)
