"""Heads that grew too large because of cookies: which ones, so that they can be expired.

Apps set cookies, a browser sends them all, and once they are more than a head may hold the user
cannot get out of it: every page of that host is refused. So the refusal takes them away.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from gateway.core.accept import wants_page
from gateway.core.grants import HTTP_COOKIE_NAME, HTTPS_COOKIE_NAME
from gateway.core.names import TOKEN

_OURS: Final = frozenset({HTTPS_COOKIE_NAME, HTTP_COOKIE_NAME})
_MOST: Final = 200
_NAME: Final = re.compile(TOKEN)


@dataclass(frozen=True, slots=True)
class Oversized:
    """What a head that is too large says, as far as it was read."""

    accept: bytes
    cookies: tuple[bytes, ...]

    def expiring(self, *, secure: bool) -> tuple[tuple[str, str], ...]:
        """Return the fields that make a browser forget the cookies, for this host and path /."""
        rest = "=; Path=/; Max-Age=0" + ("; Secure" if secure else "")
        return tuple(("Set-Cookie", name.decode("ascii") + rest) for name in self.cookies)


def read_oversized(raw: bytes) -> Oversized:
    """Return what *raw*, the beginning of a head, says; never fails.

    Cookies are named only when they are more than half of it, and ours is none of them: losing it
    would end the session. Only browsers' navigations are told, so nothing is taken away unseen.
    """
    accept, values, size = b"", list[bytes](), 0
    for line in raw.split(b"\r\n"):
        name, _, value = line.partition(b":")
        match name.lower():
            case b"accept":
                accept = value.strip(b" \t")
            case b"cookie":
                values.append(value)
                size += len(line)
    if size * 2 < len(raw) or not wants_page(accept):
        return Oversized(accept, ())
    pairs = [pair.partition(b"=")[0].strip(b" \t") for v in values for pair in v.split(b";")]
    names = dict.fromkeys(name for name in pairs if _NAME.fullmatch(name) and name not in _OURS)
    return Oversized(accept, tuple(names)[:_MOST])
