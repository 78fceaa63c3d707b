"""The heads of apps' responses: raw bytes in, a strict head and what may cross out.

The app is user code. Whatever in its response could be read in two ways is refused, and the
connection it came on is not used again.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from gateway.core.http.cookies import may_set_cookie
from gateway.core.http.framing import Body, ChunkedBody, LengthBody, NoBody, OpenBody
from gateway.core.http.heads import (
    MAX_HEAD_BYTES,
    HeadRefused,
    search_end,
    split_fields,
    tokens,
)
from gateway.core.http.names import HOP_BY_HOP, Meaning, response_names
from gateway.core.http.switches import KnownSwitches

BAD: Final = "app_bad_answer"
STRICT_TRANSPORT: Final = "max-age=31536000"
"""For a year, and for this host alone: what is beside the gateway is not ours to decide."""
VARY_SERVICE_WORKER: Final = b"Vary: Service-Worker\r\n"
"""For responses to paths in ``/``: a script that a page has fetched must not be taken from the
browser's cache when it is registered as a worker with ``updateViaCache: "all"``."""

_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: ([\t -~\x80-\xff]*))?")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_WITHOUT_BODY: Final = frozenset({204, 304})


class ResponseFields(msgspec.Struct, eq=False, gc=False):
    """What a response's field section says, read once; immutable by convention.

    ``crossing`` holds what the browser gets, our additions included, in canonical form, without
    framing. ``length`` is -1 without ``Content-Length``; ``dated`` says whether ``Date`` crosses.
    """

    length: int = -1
    chunked: bool = False
    close: bool = False
    dated: bool = False
    websocket: bool = False
    crossing: bytes = b""
    socket_accept: bytes | None = None
    socket_extensions: bytes | None = None
    socket_protocol: bytes | None = None
    upgrade: bytes | None = None


def find_response_end(buffer: bytes, seen: int = 0) -> int:
    """Return where the head in *buffer* ends; 0 while it is incomplete.

    Raises:
        HeadRefused: ``app_bad_answer``.
    """
    try:
        end = search_end(buffer, seen)
    except HeadRefused:
        raise HeadRefused(BAD) from None
    if (end or len(buffer) + 1) > MAX_HEAD_BYTES:
        raise HeadRefused(BAD)
    return end


class ResponseHead(msgspec.Struct, eq=False, gc=False):
    """A response's head, read once; often the next response's too.

    ``status_line`` and ``length_field``, which is empty without a length, are canonical, with their
    CRLF. ``whole`` is the size of the response, head and body, where its length alone frames it
    (but to HEAD) and the connection stays; else 0.
    """

    raw: bytes
    minor: int
    status: int
    status_line: bytes
    length_field: bytes
    fields: ResponseFields
    whole: int = 0


def read_status_line(line: bytes) -> tuple[int, int, bytes]:
    """Return minor version, status and reason of *line* (without its CRLF).

    Raises:
        HeadRefused: ``app_bad_answer``.
    """
    match = _STATUS.fullmatch(line)
    if match is None:
        raise HeadRefused(BAD)
    return match[1][0] - 0x30, int(match[2]), match[3] or b""


class ResponseReader:
    """Reads field sections of responses.

    Args:
        frame_ancestors: The Content-Security-Policy that every response is given.
        strict_transport: Whether browsers are told to come by TLS alone (RFC 6797).
    """

    __slots__ = ("_added", "_first", "_names", "switches")

    def __init__(self, frame_ancestors: str, *, strict_transport: bool = False) -> None:
        self.switches = KnownSwitches()
        self._names = response_names()
        self._added = [(b"Content-Security-Policy", frame_ancestors.encode("ascii"))]
        transport = (b"Strict-Transport-Security", STRICT_TRANSPORT.encode("ascii"))
        # Of the app's and ours browsers take the first (RFC 6797, section 8.1).
        self._first = [transport] if strict_transport else []

    def read_head(self, raw: bytes) -> ResponseHead:
        """Return what the head *raw*, its empty line included, says.

        Raises:
            HeadRefused: ``app_bad_answer``.
        """
        line_end = raw.find(b"\r\n")
        minor, status, reason = read_status_line(raw[:line_end])
        fields = self.read(raw[line_end + 2 :])
        if status == 426:
            # It must name what to upgrade to (RFC 9110, section 15.5.22), hop-by-hop as that is.
            named = fields.upgrade or b"websocket"
            fields.crossing += b"Connection: Upgrade\r\nUpgrade: %b\r\n" % named
        status_line = b"HTTP/1.1 %d %b\r\n" % (status, reason)
        length = b"Content-Length: %d\r\n" % fields.length if fields.length >= 0 else b""
        counted = status >= 200 and status not in _WITHOUT_BODY and fields.length >= 0
        whole = len(raw) + fields.length if counted and minor and not fields.close else 0
        return ResponseHead(raw, minor, status, status_line, length, fields, whole)

    def read(self, section: bytes) -> ResponseFields:
        """Return what *section* (the lines after the status line, with the empty one) says.

        Raises:
            HeadRefused: ``app_bad_answer``.
        """
        try:
            return self._read(section)
        except HeadRefused:
            raise HeadRefused(BAD) from None

    def _read(self, section: bytes) -> ResponseFields:
        pairs = split_fields(section)
        crossing: list[tuple[bytes, bytes]] = []
        held: dict[int, list[bytes]] = {}
        known = self._names.known
        for name, value in pairs:
            meaning = known.get(name)
            if meaning is None:
                meaning = self._names.meaning(name)
            if meaning == _PASS:
                crossing.append((name, value))
            elif meaning != _DROP:
                held.setdefault(meaning, []).append(value)
                if meaning in _CROSSING or (meaning == _SET_COOKIE and may_set_cookie(value)):
                    crossing.append((name, value))
        fields = ResponseFields()
        _take_framing(fields, held)
        _take_upgrade(fields, held)
        if _CONNECTION in held:
            crossing = _without_nominated(fields, held, crossing)
        fields.dated = _DATE in held
        crossing = self._first + crossing + self._added
        if _CACHE_CONTROL not in held:
            crossing.append((b"Cache-Control", b"private"))
        fields.crossing = b"".join([b"%b: %b\r\n" % pair for pair in crossing])
        return fields


_PASS, _DROP = int(Meaning.PASS), int(Meaning.DROP)
_SET_COOKIE, _CONNECTION = int(Meaning.SET_COOKIE), int(Meaning.CONNECTION)
_CACHE_CONTROL, _DATE = int(Meaning.CACHE_CONTROL), int(Meaning.DATE)
_LENGTH_FIELD, _CODING, _UPGRADE = int(Meaning.LENGTH), int(Meaning.CODING), int(Meaning.UPGRADE)
_SOCKET_ACCEPT, _SOCKET_EXTENSIONS, _SOCKET_PROTOCOL = map(
    int, (Meaning.SOCKET_ACCEPT, Meaning.SOCKET_EXTENSIONS, Meaning.SOCKET_PROTOCOL)
)
_CROSSING: Final = frozenset({_CACHE_CONTROL, _DATE})


def _take_framing(fields: ResponseFields, held: dict[int, list[bytes]]) -> None:
    lengths = held.get(_LENGTH_FIELD)
    codings = held.get(_CODING)
    if codings is not None:
        if lengths is not None or len(codings) != 1 or codings[0].lower() != b"chunked":
            raise HeadRefused(BAD)
        fields.chunked = True
    if lengths is not None:
        if len(lengths) != 1 or _LENGTH.fullmatch(lengths[0]) is None:
            raise HeadRefused(BAD)
        fields.length = int(lengths[0])


def _take_upgrade(fields: ResponseFields, held: dict[int, list[bytes]]) -> None:
    upgrade = held.get(_UPGRADE)
    if upgrade is None:
        return
    fields.upgrade = b", ".join(upgrade)
    fields.socket_accept = _joined(held, _SOCKET_ACCEPT)
    fields.socket_extensions = _joined(held, _SOCKET_EXTENSIONS)
    fields.socket_protocol = _joined(held, _SOCKET_PROTOCOL)
    options = tokens(held.get(_CONNECTION, ()))
    fields.websocket = tokens(upgrade) == {b"websocket"} and b"upgrade" in options


def _joined(held: dict[int, list[bytes]], meaning: int) -> bytes | None:
    values = held.get(meaning)
    return b", ".join(values) if values is not None else None


def _without_nominated(
    fields: ResponseFields, held: dict[int, list[bytes]], crossing: list[tuple[bytes, bytes]]
) -> list[tuple[bytes, bytes]]:
    options = tokens(held[_CONNECTION])
    fields.close = b"close" in options
    nominated = options - HOP_BY_HOP - {b"close"}
    if not nominated:
        return crossing
    # What goes no further is as if it had never been there: both are given in its place.
    if b"cache-control" in nominated:
        held.pop(_CACHE_CONTROL, None)
    if b"date" in nominated:
        held.pop(_DATE, None)
    return [pair for pair in crossing if pair[0].lower() not in nominated]


def response_body(head: ResponseHead, method: bytes, client_minor: int) -> tuple[Body, bytes]:
    """Return how the response's body is read, and the field that frames it for the browser.

    A response to HEAD, a 204 and a 304 have no body, whatever their fields say. An empty field says
    that the body ends with the connection.

    Raises:
        HeadRefused: ``app_bad_answer``: a coding in HTTP/1.0.
    """
    fields = head.fields
    if fields.chunked and head.minor == 0:
        raise HeadRefused(BAD)
    if method == b"HEAD" or head.status in _WITHOUT_BODY:
        return NoBody(), b"" if head.status == 204 else head.length_field
    if fields.chunked:
        framed = client_minor == 1
        return ChunkedBody(framed=framed), b"Transfer-Encoding: chunked\r\n" if framed else b""
    return (LengthBody(fields.length) if fields.length >= 0 else OpenBody()), head.length_field
