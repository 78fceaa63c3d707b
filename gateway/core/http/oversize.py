"""Heads with too many cookies: which cookies they are, and how the user can remove them.

Apps set cookies, neighbour sessions can set some for the whole base domain, and the browser sends
them all. Once they exceed the limit of a head, every page of that host is refused, and the user
cannot escape. The refusal page therefore offers a link that removes the cookies. The request for
that link has a head that is too large again; it is parsed as far as necessary.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gateway.core.access.grants import COOKIE_NAMES
from gateway.core.http.accept import prefers_html
from gateway.core.http.heads import MAX_FIELDS
from gateway.core.http.names import TOKEN

CLEAR_PATH: Final = b"/.fumarole/cookies"
"""The target of that link; it is also served if the head is not too large."""
_MAX_NAMES: Final = 200
_MAX_PAIRS: Final = 4096
"""The maximum number of pairs examined in all fields together; browsers keep fewer of one
domain."""
_NAME: Final = re.compile(TOKEN)


@dataclass(frozen=True, slots=True)
class OversizedHead:
    """What was parsed of a head that is too large.

    ``clears_cookies`` is set if the request is the click that removes *cookies*.
    """

    accept: bytes
    cookies: tuple[bytes, ...]
    clears_cookies: bool = False
    languages: bytes = b""

    def expiry_fields(
        self, *, base: str, secure: bool, framed: bool
    ) -> tuple[tuple[str, str], ...]:
        """Return the fields that make a browser forget the cookies, if the request asks for it."""
        names = self.cookies if self.clears_cookies else ()
        lines = expiry_lines(names, base=base, secure=secure, framed=framed)
        return tuple(("Set-Cookie", line) for line in lines)


def expiry_lines(names: Iterable[bytes], *, base: str, secure: bool, framed: bool) -> list[str]:
    """Return ``Set-Cookie`` lines that expire each of *names*, for its host and for all of *base*.

    All are for the path ``/``: a cookie for a folder is sent to that folder only. With *framed*,
    cookies of frames of other sites (Partitioned) are expired, too.
    """
    end = "=; Path=/; Max-Age=0"
    ends = [end + ("; Secure" if secure else "") + domain for domain in ("", f"; Domain={base}")]
    if framed:
        ends.append(f"{end}; SameSite=None; Secure; Partitioned")
    return [name.decode("ascii") + each for name in names for each in ends]


def foreign_cookie_names(values: Iterable[bytes]) -> tuple[bytes, ...]:
    """Return the names of the cookies in *values* that are not ours, up to a limit.

    The gateway's cookies are left out, since losing them would end the session. So are names that
    could inject a field.
    """
    found: dict[bytes, None] = {}
    left = _MAX_PAIRS
    for value in values:
        pairs = value.split(b";", left)[:left]
        left -= len(pairs)
        for pair in pairs:
            name = pair.partition(b"=")[0].strip(b" \t")
            if name not in COOKIE_NAMES and _NAME.fullmatch(name):
                found[name] = None
            if len(found) == _MAX_NAMES:
                return tuple(found)
    return tuple(found)


def read_oversized(raw: bytes) -> OversizedHead:
    """Return what *raw*, the start of a head, contains; never fails.

    Cookies are listed only if they make up more than half of it, and only for a browser's
    navigation.
    """
    line, _, rest = raw.partition(b"\r\n")
    said: dict[bytes, bytes] = {}
    values, size = list[bytes](), 0
    for field in rest.split(b"\r\n", MAX_FIELDS)[:MAX_FIELDS]:
        name, _, value = field.partition(b":")
        name = name.lower()
        if name == b"cookie":
            values.append(value)
            size += len(field)
        elif name in _SAID:
            said[name] = value.strip(b" \t")
    accept, languages = said.get(b"accept", b""), said.get(b"accept-language", b"")
    if size * 2 < len(raw) or not prefers_html(accept):
        return OversizedHead(accept, (), languages=languages)
    clears_cookies = line.startswith(b"GET %b HTTP/" % CLEAR_PATH) and is_same_origin_navigation(
        said.get(b"sec-fetch-site"), said.get(b"sec-fetch-mode")
    )
    return OversizedHead(accept, foreign_cookie_names(values), clears_cookies, languages)


_SAID: Final = frozenset({b"accept", b"accept-language", b"sec-fetch-site", b"sec-fetch-mode"})


def is_same_origin_navigation(site: bytes | None, mode: bytes | None) -> bool:
    """Return whether a request comes from a link on a page of its own host (Fetch Metadata)."""
    return site == b"same-origin" and mode in (None, b"navigate")
