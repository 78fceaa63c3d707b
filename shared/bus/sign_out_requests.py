"""Requests of gateways to the controller to revoke the grant of a user who has signed out.

Gateways add to a stream, which the leader reads from the position of the last leader. A client that
can write to it can end grants by session and token, and nothing else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from redis.asyncio import Redis

from shared.bus.keys import Keys
from shared.bus.translation import translated

MOST_REQUESTS: Final = 10_000
"""The maximum length of the stream; the oldest entries are dropped."""
BEGINNING: Final = "0-0"

_SID: Final = re.compile(r"[a-z2-7]{26}")
_JTI: Final = re.compile(r"[!-~]{1,128}")
_READ: Final = """
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'stream' then
  if kind ~= 'none' then redis.call('DEL', KEYS[1]) end
  return {''}
end
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
local found = {last[1] and last[1][1] or ''}
for _, entry in ipairs(redis.call('XRANGE', KEYS[1], ARGV[1], '+', 'COUNT', ARGV[2] + 1)) do
  local sid, jti, fields = '', '', entry[2]
  for i = 1, math.min(#fields, 16), 2 do
    if #fields[i + 1] <= 128 then
      if fields[i] == 'sid' then sid = fields[i + 1] end
      if fields[i] == 'jti' then jti = fields[i + 1] end
    end
  end
  if entry[1] ~= ARGV[1] and #found <= tonumber(ARGV[2]) then
    found[#found + 1] = {entry[1], sid, jti}
  end
end
return found
"""
"""Returns no value that is too long, since a client with write access may have stored any length.
Deletes a key that is no stream, since gateways could not add to it. The range begins at the
position itself, since the last possible id has no successor.
"""
_FORGET: Final = """
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
if last[1] and last[1][1] == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""


@dataclass(frozen=True, slots=True)
class SignOutRequest:
    """One entry; ``sid`` and ``jti`` are None if it is malformed."""

    id: str
    sid: str | None
    jti: str | None


@dataclass(frozen=True, slots=True)
class SignOutRequests:
    """Some entries in order, and the id of the last entry in the stream; None if it is empty.

    By default an id begins with the milliseconds of Redis' clock at which the entry was added; the
    writer may choose another one.
    """

    entries: tuple[SignOutRequest, ...]
    last: str | None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SignOutWriter:
    """Adds requests to the stream."""

    redis: Redis
    keys: Keys

    async def add(self, sid: str, jti: str) -> None:
        """Request that the grants of the token *jti* on the session *sid* are revoked.

        Raises:
            BusUnavailable: If Redis does not respond; the request may have been added.
        """
        with translated():
            await self.redis.xadd(
                self.keys.asks, {"sid": sid, "jti": jti}, maxlen=MOST_REQUESTS, approximate=False
            )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SignOutReader:
    """Reads requests from the stream."""

    redis: Redis
    keys: Keys

    async def after(self, position: str, *, limit: int) -> SignOutRequests:
        """Return the first *limit* entries after the id *position*."""
        with translated():
            last, *entries = await self.redis.eval(_READ, 1, self.keys.asks, position, str(limit))
            return SignOutRequests(
                tuple(_request_of(*entry) for entry in entries), last.decode() or None
            )

    async def forget(self, last: str) -> None:
        """Delete the stream if *last* is still its last entry."""
        with translated():
            await self.redis.eval(_FORGET, 1, self.keys.asks, last)


def comparable_id(position: str) -> tuple[int, int]:
    """Return an entry's id as a tuple that can be compared."""
    milliseconds, _, number = position.partition("-")
    return int(milliseconds), int(number)


def _request_of(position: bytes, sid: bytes, jti: bytes) -> SignOutRequest:
    texts = sid.decode("latin-1"), jti.decode("latin-1")
    if _SID.fullmatch(texts[0]) and _JTI.fullmatch(texts[1]):
        return SignOutRequest(position.decode(), *texts)
    return SignOutRequest(position.decode(), None, None)
