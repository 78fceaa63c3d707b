"""The gateway's cookies among the app's: extracted, removed, and protected against apps.

The app's own cookies cross byte for byte, whatever their syntax. Only a pair between two semicolons
that has one of the gateway's names is changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Final

from gateway.core.http.names import TOKEN

HTTPS_COOKIE_NAME: Final = b"__Host-fumarole"
HTTP_COOKIE_NAME: Final = b"fumarole"
"""Over http, allowed for localhost only, browsers refuse names with a ``__Host-`` prefix."""
HTTPS_NOTICE_NAME: Final = b"__Host-fumarole-told"
HTTP_NOTICE_NAME: Final = b"fumarole-told"
"""The cookie that records which end its user has seen announced; it gives no access."""
COOKIE_NAMES: Final = frozenset(
    {HTTPS_COOKIE_NAME, HTTP_COOKIE_NAME, HTTPS_NOTICE_NAME, HTTP_NOTICE_NAME}
)
"""The gateway's cookies: no app sees or sets one."""

FOREIGN_BYTES: Final = 32768
"""The app gets only as many of the other cookies as fit: neighbour sessions can set cookies too."""
_LOWER_NAMES: Final = frozenset(name.lower() for name in COOKIE_NAMES)
_MARK: Final = HTTP_COOKIE_NAME
_WHITE: Final = b" \t"
_OURS: Final = re.compile(
    rb";?[ \t]*+(%b)[ \t]*+=([^;]*)" % b"|".join(map(re.escape, sorted(COOKIE_NAMES)))
)
"""A cookie with one of the gateway's names, from one semicolon to the next."""
_MAX_VALUES: Final = 256
"""Values of one name. A browser sends far fewer, and two already make the request invalid."""
MAX_OWN_COOKIES: Final = 1024
"""Cookies of a request that contain the gateway's cookie name: they take a millisecond. Browsers
keep about two hundred cookies of a domain."""
_MENTION: Final = re.compile(rb"%b[^;]*" % re.escape(_MARK))

_LONG_BYTES: Final = 2 * FOREIGN_BYTES
"""A longer field is shortened as it arrives."""
_FIRST_BYTES: Final = FOREIGN_BYTES + 8192
"""Kept of it: what the app gets, and the gateway's cookies among that."""
_COOKIE_BYTES: Final = 4160
"""The maximum of one cookie in it; browsers store 4 KiB of name and value."""
_OWN_KEPT: Final = 2
"""The gateway's cookies of each name kept after those: two of one name make the request invalid."""
_MAX_NAMES: Final = 200
_MAX_PAIRS: Final = 4096
"""The maximum number of pairs examined in all fields together; browsers keep fewer of one
domain."""
_NAME: Final = re.compile(TOKEN)
_LONG_FIELD: Final = re.compile(rb"(\ncookie:)([^\r\n]{%d,})" % (_LONG_BYTES + 1), re.IGNORECASE)

_DOMAIN: Final = re.compile(rb";[ \t]*domain[ \t]*(?:[=;]|$)", re.IGNORECASE)
# Whole attributes; a cookie can have thirty thousand, so they are not split.
_DOMAIN_ATTRIBUTE: Final = re.compile(
    rb";[ \t]*+domain[ \t]*+(?:=([^;]*+))?+(?![^;])", re.IGNORECASE
)
_PATH_ATTRIBUTE: Final = re.compile(
    rb";[ \t]*+path[ \t]*+(?:=[ \t]*+([^;]*+))?+(?![^;])", re.IGNORECASE
)
_FRAME_ATTRIBUTE: Final = re.compile(
    rb";[ \t]*+(?:samesite|secure|partitioned)[ \t]*+(?:=[^;]*+)?+(?![^;])", re.IGNORECASE
)


def cut_cookie(value: bytes, name: bytes) -> tuple[bytes | None, list[bytes]]:
    """Return a ``Cookie`` value without our cookies, and the first values of those called *name*.

    All of the gateway's names are removed, whichever is requested. None stands for a field that is
    empty afterwards. Only a cookie that contains the gateway's name is examined: a field can hold a
    hundred thousand cookies.
    """
    kept: list[bytes] = []
    ours: list[bytes] = []
    crossed = 0
    for match in _own_cookies(value, 0, len(value)):
        kept.append(value[crossed : match.start()])
        crossed = match.end()
        if match[1] == name and len(ours) < _MAX_VALUES:
            ours.append(match[2].strip(_WHITE))
    if not crossed:
        return value, []
    left = b"".join((*kept, value[crossed:]))
    if left.startswith(b";") and not value.startswith(b";"):
        left = left[1:].lstrip(_WHITE)
    return (left if left.strip(b" \t;") else None), ours


def _own_cookies(value: bytes, begin: int, until: int) -> Iterator[re.Match[bytes]]:
    """Yield the cookies of *value* that have one of our names, each with the semicolon before."""
    found = value.find(_MARK, begin, until)
    while found >= 0:
        begin = max(begin, value.rfind(b";", begin, found))
        end = value.find(b";", found, until)
        end = until if end < 0 else end
        match = _OURS.fullmatch(value, begin, end)
        if match is not None:
            yield match
        begin, found = end, value.find(_MARK, end, until)


def without_excess(head: bytes) -> bytes:
    """Return *head*, or the beginning of one, without cookies that are too many for anybody.

    Apps and neighbour sessions can have a browser send 700 KB of cookies: 180 of 4 KiB for a
    domain. The app gets the first ones, the gateway its own. Semicolons take the place of the
    others, so that no later cookie counts as one of the first. The last one may be incomplete. A
    field with a cookie that no browser stores is kept: it may be too large.
    """
    return _LONG_FIELD.sub(
        lambda field: field[1] + _shortened(field[2], complete=field.end() < len(head)), head
    )


def _shortened(value: bytes, *, complete: bool) -> bytes:
    if _has_oversized_cookie(value):
        return value
    end = len(value) if complete else max(0, value.rfind(b";"))
    first = truncate_cookies(value[:end], _FIRST_BYTES)
    own: dict[bytes, list[bytes]] = {}
    for one in _own_cookies(value, len(first), end):
        own.setdefault(one[1], []).append(one[0])
    kept = chain.from_iterable(same[:_OWN_KEPT] for same in own.values())
    return b"".join((first.ljust(_FIRST_BYTES, b";"), *kept, value[end:]))


def _has_oversized_cookie(value: bytes) -> bool:
    begin = 0
    while len(value) - begin > _COOKIE_BYTES:
        end = value.rfind(b";", begin, begin + _COOKIE_BYTES + 1)
        if end < 0:
            return True
        begin = end + 1
    return False


def has_too_many_own_cookies(values: Sequence[bytes]) -> bool:
    """Return whether more cookies in *values* contain our name than may be examined."""
    if sum(map(len, values)) <= MAX_OWN_COOKIES * len(_MARK):
        return False
    found = chain.from_iterable(map(_MENTION.finditer, values))
    return sum(1 for _ in islice(found, MAX_OWN_COOKIES + 1)) > MAX_OWN_COOKIES


def truncate_cookies(value: bytes, most: int) -> bytes:
    """Return the first cookies of *value* that fit into *most* bytes, without the last ``;``.

    Browsers send cookies with longer paths and older cookies first (RFC 6265, section 5.4).
    """
    if len(value) <= most:
        return value
    return value[: max(0, value.rfind(b";", 0, most + 1))].rstrip(b"; \t")


def may_set_cookie(value: bytes) -> bool:
    """Return whether an app's ``Set-Cookie`` may reach the browser as it is.

    That is not the case if it has one of the gateway's names, or a ``Domain``: the neighbour hosts
    are other users' sessions. :func:`without_own_domain` makes a cookie with ``Domain`` safe.
    """
    return not _has_gateway_name(value) and _DOMAIN.search(value) is None


def _has_gateway_name(value: bytes) -> bool:
    """Return whether a ``Set-Cookie`` sets one of the gateway's cookies.

    Case does not matter, since browsers compare the prefix case-insensitively. A cookie without a
    name counts if its value would come back as one of the gateway's cookies.
    """
    pair = value.partition(b";")[0]
    key, equals, content = pair.partition(b"=")
    name = (key if equals else b"").strip(_WHITE).lower()
    if not name:
        bare = (content if equals else key).strip(_WHITE).lower()
        name = bare.partition(b"=")[0].strip(_WHITE)
    return name in _LOWER_NAMES


def domain_cookies(values: Sequence[bytes]) -> tuple[bytes, ...]:
    """Return the ``Set-Cookie`` *values* with a ``Domain`` that could be meant for one host alone.

    The same cookie without ``Domain`` takes precedence: an app that removes its former cookie of a
    domain and sets one for its host must not lose the latter.
    """
    scoped = [value for value in values if _DOMAIN.search(value) is not None]
    if not scoped:
        return ()
    taken: dict[bytes, set[bytes | None]] = {}
    for value in values:
        if _DOMAIN.search(value) is None:
            taken.setdefault(_name_of(value), set()).add(_path_of(value))
    return tuple(
        value
        for value in scoped
        if not _has_gateway_name(value)
        and not _may_replace(_path_of(value), taken.get(_name_of(value), set()))
    )


def _name_of(value: bytes) -> bytes:
    return value.partition(b";")[0].partition(b"=")[0].strip(_WHITE)


def _path_of(value: bytes) -> bytes | None:
    """Return the path of a ``Set-Cookie``; None for that of the request.

    The last attribute counts (RFC 6265, section 5.3).
    """
    paths = _PATH_ATTRIBUTE.findall(value)
    path = paths[-1].rstrip(_WHITE) if paths else b""
    return path if path.startswith(b"/") else None


def _may_replace(path: bytes | None, others: set[bytes | None]) -> bool:
    """Return whether a cookie at *path* may be one of those of its name at the *others*."""
    return bool(others) and (path is None or None in others or path in others)


def without_own_domain(value: bytes, host: bytes) -> bytes | None:
    """Return a ``Set-Cookie`` without its ``Domain``; None if that is not *host* itself.

    No host is below that of a session, so the cookie has the same scope without the attribute.
    *host* is in lower case and without a port.
    """
    for domain in _DOMAIN_ATTRIBUTE.findall(value):
        if domain.strip(_WHITE).lower().removeprefix(b".") != host:
            return None
    return _DOMAIN_ATTRIBUTE.sub(b"", value)


def framed_cookie(value: bytes) -> bytes:
    """Return a ``Set-Cookie`` that a browser accepts in a frame of another site (CHIPS).

    Without these attributes browsers drop every cookie that is set in such a frame.
    """
    return _FRAME_ATTRIBUTE.sub(b"", value) + b"; SameSite=None; Secure; Partitioned"


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
