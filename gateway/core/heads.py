"""Request heads: raw bytes in, a strict head or a refusal out.

llhttp splits fields and checks their characters. Where it is lax (line ends, the start line, two
codings, lengths) the raw bytes are judged here. What depends on the field section alone is read
once for a kept-alive connection that sends the same section again: see :class:`Fields`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import httptools

from gateway.core.cookies import cut_cookie
from gateway.core.names import HOP_BY_HOP, NEVER_NOMINATED, Meaning, Names, request_names
from gateway.core.origins import Provenance

MAX_HEAD_BYTES: Final = 65536
MAX_TARGET_BYTES: Final = 16384
MAX_FIELDS: Final = 256
MAX_LENGTH_DIGITS: Final = 18

IANA_METHODS: Final = frozenset(
    (
        b"ACL BASELINE-CONTROL BIND CHECKIN CHECKOUT CONNECT COPY DELETE GET HEAD LABEL LINK LOCK "
        b"MERGE MKACTIVITY MKCALENDAR MKCOL MKREDIRECTREF MKWORKSPACE MOVE OPTIONS ORDERPATCH "
        b"PATCH POST PROPFIND PROPPATCH PUT QUERY REBIND REPORT SEARCH TRACE UNBIND UNCHECKOUT "
        b"UNLINK UNLOCK UPDATE UPDATEREDIRECTREF VERSION-CONTROL"
    ).split()
)
"""The registry of HTTP methods, without ``*`` and ``PRI``, which are reserved and never used."""
_REFUSED_METHODS: Final = frozenset({b"CONNECT", b"TRACE"})

_TARGET = rb"[!\"$-\[\]-~]+"
_START = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+) (" + _TARGET + rb") HTTP/1\.([01])")
_ABSOLUTE = re.compile(rb"https?://([^/?]*)(.*)", re.IGNORECASE)
_HOST = re.compile(rb"(?:[A-Za-z0-9._-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{0,5})?")
_LENGTH = re.compile(rb"[0-9]{1,%d}" % MAX_LENGTH_DIGITS)

_REQUEST_LINE: Final = b"POST / HTTP/1.1\r\n"
_ANSWER_LINE: Final = b"HTTP/1.1 200 OK\r\n"


class HeadRefused(Exception):
    """A head that must not be acted upon; ``code`` names the answer."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class StartLine:
    """A start line in canonical parts: ``target`` is in origin-form."""

    __slots__ = ("authority", "method", "minor", "target")

    def __init__(self, method: bytes, target: bytes, minor: int, authority: bytes | None) -> None:
        self.method = method
        self.target = target
        self.minor = minor
        self.authority = authority


class Fields:
    """What a field section says, read once; immutable by convention.

    ``crossing`` holds the end-to-end fields in canonical form, without ``Host``, framing, and all
    that is ours. ``length`` is -1 without ``Content-Length``.
    """

    __slots__ = (
        "accept",
        "authorization",
        "chunked",
        "close",
        "cookies",
        "crossing",
        "forwarded_for",
        "host",
        "length",
        "provenance",
        "socket_extensions",
        "socket_key",
        "socket_protocols",
        "socket_version",
        "token",
        "upgrade_nominated",
        "websocket",
    )

    def __init__(self) -> None:
        self.host = ""
        self.length = -1
        self.chunked = False
        self.close = False
        self.upgrade_nominated = False
        self.websocket = False
        self.crossing: bytes = b""
        self.cookies: tuple[bytes, ...] = ()
        self.token: bytes | None = None
        self.authorization: bytes | None = None
        self.accept: bytes = b""
        self.forwarded_for: bytes | None = None
        self.provenance = _SAYS_NOTHING
        self.socket_key: bytes | None = None
        self.socket_version: bytes | None = None
        self.socket_extensions: bytes | None = None
        self.socket_protocols: bytes | None = None


_SAYS_NOTHING = Provenance(origin=None, site=None, mode=None, dest=None)


def find_end(buffer: bytes) -> int:
    """Return where the head in *buffer* ends, after its CRLF CRLF; 0 while it is incomplete.

    A bare LF or CR is looked for before anything else, since it could hide the end for good.

    Raises:
        HeadRefused: ``bad_request``, ``target_too_long`` or ``head_too_large``.
    """
    end = buffer.find(b"\r\n\r\n") + 4
    if end == 3:
        check_line_ends(buffer, complete=False)
        _check_sizes(buffer, len(buffer), complete=False)
        return 0
    _check_sizes(buffer, end, complete=True)
    return end


def check_line_ends(raw: bytes, *, complete: bool) -> None:
    """Refuse a CR or LF that stands alone; the last byte of what is incomplete may be a CR.

    Raises:
        HeadRefused: ``bad_request``.
    """
    pairs = raw.count(b"\r\n")
    returns = raw.count(b"\r")
    if not complete and raw.endswith(b"\r"):
        returns -= 1
    if pairs != raw.count(b"\n") or pairs != returns:
        raise HeadRefused("bad_request")


def _check_sizes(buffer: bytes, size: int, *, complete: bool) -> None:
    # The longest method and the version leave less than 64 bytes beside the target.
    line = buffer.find(b"\r\n", 0, size)
    if (size if line < 0 else line) > MAX_TARGET_BYTES + 64:
        raise HeadRefused("target_too_long")
    if size > MAX_HEAD_BYTES or (not complete and size == MAX_HEAD_BYTES):
        raise HeadRefused("head_too_large")


def read_start_line(line: bytes) -> StartLine:
    """Return the parts of *line* (without its CRLF).

    Raises:
        HeadRefused: ``bad_request``, ``method_not_allowed``, ``method_unknown`` or
            ``target_too_long``.
    """
    match = _START.fullmatch(line)
    if match is None:
        raise HeadRefused("bad_request")
    method, target, minor = match.groups()
    if method not in IANA_METHODS:
        raise HeadRefused("method_unknown")
    if method in _REFUSED_METHODS:
        raise HeadRefused("method_not_allowed")
    if len(target) > MAX_TARGET_BYTES:
        raise HeadRefused("target_too_long")
    if target[0] == 0x2F:
        return StartLine(method, target, minor[0] - 0x30, None)
    return _absolute(method, target, minor[0] - 0x30)


def _absolute(method: bytes, target: bytes, minor: int) -> StartLine:
    match = _ABSOLUTE.fullmatch(target)
    if match is None:
        raise HeadRefused("bad_request")
    authority, path = match.groups()
    return StartLine(method, path if path[:1] == b"/" else b"/" + path, minor, authority)


class _Pairs(list[tuple[bytes, bytes]]):
    """Collects what llhttp finds."""

    __slots__ = ()

    def on_header(self, name: bytes, value: bytes) -> None:
        self.append((name, value))


def split_fields(section: bytes, *, answer: bool = False) -> list[tuple[bytes, bytes]]:
    """Return names and values of *section*, which ends with an empty line.

    llhttp gets a start line of ours before it: the real one has its own, stricter reader, and
    llhttp does not know all of HTTP's methods.

    Raises:
        HeadRefused: ``bad_request`` or ``head_too_large``.
    """
    check_line_ends(section, complete=True)
    pairs = _Pairs()
    if section == b"\r\n":
        return pairs
    parser = (httptools.HttpResponseParser if answer else httptools.HttpRequestParser)(pairs)
    try:
        parser.feed_data((_ANSWER_LINE if answer else _REQUEST_LINE) + section)
    except httptools.HttpParserUpgrade:
        pass
    except httptools.HttpParserError:
        raise HeadRefused("bad_request") from None
    if len(pairs) > MAX_FIELDS:
        raise HeadRefused("head_too_large")
    if len(pairs) != section.count(b"\r\n") - 1:
        # llhttp saw another number of lines than there are: whatever that means, not here.
        raise HeadRefused("bad_request")
    return pairs


class FieldReader:
    """Reads field sections of requests.

    Args:
        cookie_name: The name under which our cookie counts here.
    """

    __slots__ = ("_cookie_name", "_names")

    def __init__(self, cookie_name: bytes) -> None:
        self._cookie_name = cookie_name
        self._names: Names = request_names()

    def read(self, section: bytes) -> Fields:
        """Return what *section* (the lines after the start line, with the empty one) says.

        Raises:
            HeadRefused: If it must not be acted upon.
        """
        fields = Fields()
        crossing: list[tuple[bytes, bytes]] = []
        single: dict[int, bytes] = {}
        lists: dict[int, list[bytes]] = {}
        known = self._names.known
        for name, value in split_fields(section):
            meaning = known.get(name)
            if meaning is None:
                meaning = self._names.meaning(name)
            if value and value[-1] <= 0x20:
                value = value.rstrip(b" \t")
            if meaning == _PASS:
                crossing.append((name, value))
            elif meaning != _DROP:
                if meaning in _CROSSING:
                    crossing.append((name, value))
                if meaning in _LISTS:
                    lists.setdefault(meaning, []).append(value)
                elif meaning in single:
                    raise HeadRefused("bad_request")
                else:
                    single[meaning] = value
        _take_singles(fields, single)
        _take_lists(fields, lists)
        crossing = self._without_nominated(fields, lists.get(Meaning.CONNECTION), crossing)
        if Meaning.COOKIE in lists:
            crossing = self._without_our_cookies(fields, crossing)
        fields.crossing = b"".join([b"%b: %b\r\n" % pair for pair in crossing])
        return fields

    def _without_nominated(
        self,
        fields: Fields,
        connection: list[bytes] | None,
        crossing: list[tuple[bytes, bytes]],
    ) -> list[tuple[bytes, bytes]]:
        if connection is None:
            return crossing
        options = tokens(connection)
        fields.close = b"close" in options
        fields.upgrade_nominated = b"upgrade" in options
        nominated = options - HOP_BY_HOP - {b"close"}
        if (nominated | options) & NEVER_NOMINATED:
            raise HeadRefused("bad_request")
        if not nominated:
            return crossing
        return [pair for pair in crossing if pair[0].lower() not in nominated]

    def _without_our_cookies(
        self, fields: Fields, crossing: list[tuple[bytes, bytes]]
    ) -> list[tuple[bytes, bytes]]:
        kept: list[tuple[bytes, bytes]] = []
        for name, value in crossing:
            if self._names.meaning(name) == Meaning.COOKIE:
                left, ours = cut_cookie(value, self._cookie_name)
                fields.cookies += tuple(ours)
                if left is None:
                    continue
                kept.append((name, left))
            else:
                kept.append((name, value))
        return kept


_PASS, _DROP = int(Meaning.PASS), int(Meaning.DROP)
_LISTS: Final = frozenset(
    int(meaning)
    for meaning in (
        Meaning.CONNECTION,
        Meaning.UPGRADE,
        Meaning.COOKIE,
        Meaning.ACCEPT,
        Meaning.FORWARDED_FOR,
        Meaning.SOCKET_EXTENSIONS,
        Meaning.SOCKET_PROTOCOL,
    )
)
"""Fields that may come several times; all others of a meaning may not."""
_CROSSING: Final = frozenset(
    int(meaning)
    for meaning in (
        Meaning.COOKIE,
        Meaning.ORIGIN,
        Meaning.FETCH_SITE,
        Meaning.FETCH_MODE,
        Meaning.FETCH_DEST,
        Meaning.ACCEPT,
    )
)
"""Fields that we read and the app gets too. ``Authorization`` is added when it is the app's."""


def tokens(values: Iterable[bytes]) -> set[bytes]:
    """Return the lower-case members of a list field."""
    return {token.strip(b" \t").lower() for value in values for token in value.split(b",")} - {b""}


def _take_singles(fields: Fields, single: dict[int, bytes]) -> None:
    host = single.get(Meaning.HOST)
    if host is None or _HOST.fullmatch(host) is None:
        raise HeadRefused("bad_request")
    fields.host = host.decode("ascii")
    _take_framing(fields, single)
    fields.token = single.get(Meaning.TOKEN)
    fields.authorization = single.get(Meaning.AUTHORIZATION)
    fields.socket_key = single.get(Meaning.SOCKET_KEY)
    fields.socket_version = single.get(Meaning.SOCKET_VERSION)
    fields.provenance = Provenance(
        origin=single.get(Meaning.ORIGIN),
        site=single.get(Meaning.FETCH_SITE),
        mode=single.get(Meaning.FETCH_MODE),
        dest=single.get(Meaning.FETCH_DEST),
    )


def _take_framing(fields: Fields, single: dict[int, bytes]) -> None:
    length = single.get(Meaning.LENGTH)
    coding = single.get(Meaning.CODING)
    if coding is not None:
        if coding.lower() != b"chunked" or length is not None:
            raise HeadRefused("bad_request")
        fields.chunked = True
    if length is not None:
        if _LENGTH.fullmatch(length) is None:
            raise HeadRefused("bad_request")
        fields.length = int(length)


def _take_lists(fields: Fields, lists: dict[int, list[bytes]]) -> None:
    fields.accept = b",".join(lists.get(Meaning.ACCEPT, ()))
    if Meaning.UPGRADE in lists:
        fields.websocket = b"websocket" in tokens(lists[Meaning.UPGRADE])
    for meaning, name in (
        (Meaning.FORWARDED_FOR, "forwarded_for"),
        (Meaning.SOCKET_EXTENSIONS, "socket_extensions"),
        (Meaning.SOCKET_PROTOCOL, "socket_protocols"),
    ):
        if meaning in lists:
            setattr(fields, name, b", ".join(lists[meaning]))


def check_together(start: StartLine, fields: Fields) -> None:
    """Refuse what start line and fields are only together: read both first.

    Raises:
        HeadRefused: ``bad_request``.
    """
    if start.minor == 0 and fields.chunked:
        raise HeadRefused("bad_request")
    if start.authority is not None and start.authority.lower() != fields.host.lower().encode():
        raise HeadRefused("bad_request")
