"""Cookies that are too much: which ones there are, and how a browser is made to forget them.

Apps set cookies, neighbours can set some for the whole base domain, a browser sends them all, and
once they are more than a head may hold the user cannot get out of it: every page of that host is
refused. So the refusal offers to take them away, by the user's click. The click is a request whose
head is too large again: it is understood as far as is needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gateway.core.access.grants import COOKIE_NAMES
from gateway.core.http.accept import wants_page
from gateway.core.http.heads import MAX_FIELDS
from gateway.core.http.names import TOKEN

CLEAR_PATH: Final = b"/.fumarole/cookies"
"""Where the click leads; also served where the head is not too large."""
_MOST: Final = 200
_MOST_PAIRS: Final = 4096
"""That are looked at, of all fields together: more than browsers keep of one domain."""
_NAME: Final = re.compile(TOKEN)


@dataclass(frozen=True, slots=True)
class Oversized:
    """What a head that is too large says, as far as it was read.

    ``clears`` says that it is the click by which *cookies* are to be forgotten.
    """

    accept: bytes
    cookies: tuple[bytes, ...]
    clears: bool = False
    languages: bytes = b""

    def expiring(self, *, base: str, secure: bool) -> tuple[tuple[str, str], ...]:
        """Return the fields that make a browser forget the cookies, where that was asked for."""
        names = self.cookies if self.clears else ()
        return tuple(
            ("Set-Cookie", line) for line in expiring_lines(names, base=base, secure=secure)
        )


def expiring_lines(names: Iterable[bytes], *, base: str, secure: bool) -> list[str]:
    """Return a ``Set-Cookie`` that expires each of *names* for its host, and one for all of *base*.

    Both for the path ``/``: a cookie for a folder is sent there alone.
    """
    rest = "=; Path=/; Max-Age=0" + ("; Secure" if secure else "")
    texts = [name.decode("ascii") for name in names]
    return [text + rest + domain for text in texts for domain in ("", f"; Domain={base}")]


def foreign_names(values: Iterable[bytes]) -> tuple[bytes, ...]:
    """Return the names of the cookies in *values* that are not ours, so many as are told at once.

    Ours is not among them: to lose it would end the session. Nor is what could forge a field.
    """
    found: dict[bytes, None] = {}
    left = _MOST_PAIRS
    for value in values:
        pairs = value.split(b";", left)[:left]
        left -= len(pairs)
        for pair in pairs:
            name = pair.partition(b"=")[0].strip(b" \t")
            if name not in COOKIE_NAMES and _NAME.fullmatch(name):
                found[name] = None
            if len(found) == _MOST:
                return tuple(found)
    return tuple(found)


def read_oversized(raw: bytes) -> Oversized:
    """Return what *raw*, the beginning of a head, says; never fails.

    Cookies are named only when they are more than half of it, and only to a browser's navigation.
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
    if size * 2 < len(raw) or not wants_page(accept):
        return Oversized(accept, (), languages=languages)
    clears = line.startswith(b"GET %b HTTP/" % CLEAR_PATH) and is_own_click(
        said.get(b"sec-fetch-site"), said.get(b"sec-fetch-mode")
    )
    return Oversized(accept, foreign_names(values), clears, languages)


_SAID: Final = frozenset({b"accept", b"accept-language", b"sec-fetch-site", b"sec-fetch-mode"})


def is_own_click(site: bytes | None, mode: bytes | None) -> bool:
    """Say whether a request comes from a link on a page of its own host (Fetch Metadata)."""
    return site == b"same-origin" and mode in (None, b"navigate")
