"""Response heads of apps: raw bytes in, a strict head and its end-to-end fields out.

The app is user code. A response that could be read in two ways is refused, and its connection is
not used again. Each refusal is a HeadRefused with the code ``app_bad_answer`` and a reason for the
app's developer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from email.utils import formatdate
from typing import Final

import msgspec

from gateway.core.http.cookies import domain_cookies, may_set_cookie
from gateway.core.http.fields import Fields, joined
from gateway.core.http.framing import Body, ChunkedBody, CloseDelimitedBody, LengthBody, NoBody
from gateway.core.http.heads import (
    MAX_HEAD_BYTES,
    HeadRefused,
    search_end,
    split_fields,
    tokens,
)
from gateway.core.http.names import HOP_BY_HOP, Meaning, response_names
from gateway.core.http.upgrade import is_offered_deflate
from shared.bounded import BoundedDict

BAD_RESPONSE: Final = "app_bad_answer"
STRICT_TRANSPORT: Final = "max-age=31536000"
"""For one year, and for this host alone: other hosts of the domain are not ours to decide about."""
VARY_SERVICE_WORKER: Final = b"Vary: Service-Worker\r\n"
"""For responses to paths in ``/``. Without it, a script that a page has fetched could be taken from
the browser's cache and registered as a worker with ``updateViaCache: "all"``."""

_HTTP: Final = b"HTTP/1."
_TLS_RECORDS: Final = frozenset({b"\x15\x03", b"\x16\x03"})
"""How an alert, and a handshake, of TLS begin (RFC 8446, section 5.1)."""
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: ([\t -~\x80-\xff]*))?")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_WITHOUT_BODY: Final = frozenset({204, 304})


class ResponseFields(msgspec.Struct, eq=False, gc=False):
    """A parsed response field section; immutable by convention.

    ``end_to_end`` holds the fields that the browser gets, our additions included, in canonical
    form, without framing fields. ``length`` is -1 without ``Content-Length``. ``has_date`` is set
    if ``Date`` is among the fields.

    ``has_location`` is set if there is one ``Location``, and it is not a path; ``has_refresh`` if a
    ``Refresh`` names a URL. ``adapts`` is set if so, or if there is a cookie: what a browser gets
    of these depends on the host of its request (:mod:`gateway.core.http.public_fields`).
    ``domain_cookies`` are not in ``end_to_end``.
    """

    length: int = -1
    chunked: bool = False
    close: bool = False
    has_date: bool = False
    adapts: bool = False
    has_location: bool = False
    has_refresh: bool = False
    domain_cookies: tuple[bytes, ...] = ()
    websocket: bool = False
    end_to_end: bytes = b""
    socket_accept: bytes | None = None
    socket_extensions: bytes | None = None
    socket_protocol: bytes | None = None
    upgrade: bytes | None = None


def find_response_end(buffer: bytes, seen: int = 0) -> int:
    """Return where the head in *buffer* ends; 0 while it is incomplete."""
    try:
        end = search_end(buffer, seen)
    except HeadRefused as refused:
        raise _bad(foreign_protocol(buffer) or refused.reason) from None
    if (end or len(buffer) + 1) > MAX_HEAD_BYTES:
        raise _bad(f"the head is larger than {MAX_HEAD_BYTES >> 10} KiB")
    return end


def _bad(reason: str) -> HeadRefused:
    return HeadRefused(BAD_RESPONSE, reason)


def foreign_protocol(begin: bytes) -> str:
    """Return the reason if *begin*, which an app sent first, is no HTTP/1.x; empty if it can be."""
    if begin[:2] in _TLS_RECORDS:
        return "the app speaks TLS on this port; the gateway speaks HTTP with it"
    if not begin.startswith(_HTTP[: len(begin)]):
        return "the response does not begin with HTTP/1.0 or HTTP/1.1"
    return ""


class ResponseHead(msgspec.Struct, eq=False, gc=False):
    """A parsed response head; often that of the next response too.

    ``status_line`` and ``length_field`` are canonical and include their CRLF; the latter is empty
    without a length. ``message_size`` is the size of head and body if ``Content-Length`` alone
    frames the response (to any method but HEAD) and the connection persists; otherwise 0.
    """

    raw: bytes
    minor: int
    status: int
    status_line: bytes
    length_field: bytes
    fields: ResponseFields
    message_size: int = 0


def read_status_line(line: bytes) -> tuple[int, int, bytes]:
    """Return the minor version, status and reason of *line*, given without its CRLF."""
    match = _STATUS.fullmatch(line)
    if match is None:
        raise _bad(foreign_protocol(line) or "the first line is no status line of HTTP/1.x")
    return match[1][0] - 0x30, int(match[2]), match[3] or b""


class ResponseReader:
    """Parses response heads.

    Args:
        frame_ancestors: The Content-Security-Policy added to every response.
        strict_transport: Whether ``Strict-Transport-Security`` is added (RFC 6797).
    """

    def __init__(self, frame_ancestors: str, *, strict_transport: bool = False) -> None:
        self.upgrade_responses = UpgradeResponseCache()
        self._names = response_names()
        self._added = [(b"Content-Security-Policy", frame_ancestors.encode("ascii"))]
        transport = (b"Strict-Transport-Security", STRICT_TRANSPORT.encode("ascii"))
        # Browsers take the first of the app's and ours (RFC 6797, section 8.1).
        self._first = [transport] if strict_transport else []

    def read_head(self, raw: bytes) -> ResponseHead:
        """Return the parsed head *raw*, given with its empty line."""
        line_end = raw.find(b"\r\n")
        minor, status, reason = read_status_line(raw[:line_end])
        fields = self.read(raw[line_end + 2 :])
        if status == 426:
            # A 426 must name the protocol (RFC 9110, section 15.5.22), although ``Upgrade`` is
            # hop-by-hop.
            named = fields.upgrade or b"websocket"
            fields.end_to_end += b"Connection: Upgrade\r\nUpgrade: %b\r\n" % named
        status_line = b"HTTP/1.1 %d %b\r\n" % (status, reason)
        length = b"Content-Length: %d\r\n" % fields.length if fields.length >= 0 else b""
        counted = status >= 200 and status not in _WITHOUT_BODY and fields.length >= 0
        message_size = len(raw) + fields.length if counted and minor and not fields.close else 0
        return ResponseHead(raw, minor, status, status_line, length, fields, message_size)

    def read(self, section: bytes) -> ResponseFields:
        """Return the fields of *section*: the lines after the status line, and the empty line."""
        try:
            return self._read(section)
        except HeadRefused as refused:
            raise _bad(refused.reason) from None

    def _read(self, section: bytes) -> ResponseFields:
        pairs = split_fields(section)
        end_to_end: list[tuple[bytes, bytes]] = []
        values_by_meaning: dict[int, list[bytes]] = {}
        known = self._names.known
        for name, value in pairs:
            meaning = known.get(name)
            if meaning is None:
                meaning = self._names.meaning(name)
            if meaning == _PASS:
                end_to_end.append((name, value))
            elif meaning != _DROP:
                values_by_meaning.setdefault(meaning, []).append(value)
                if meaning in _CROSSING or (meaning == _SET_COOKIE and may_set_cookie(value)):
                    end_to_end.append((name, value))
        fields = ResponseFields()
        _take_framing(fields, values_by_meaning)
        _take_upgrade(fields, values_by_meaning)
        if _CONNECTION in values_by_meaning:
            end_to_end = _without_nominated(fields, values_by_meaning, end_to_end)
        fields.has_date = _DATE in values_by_meaning
        _take_adapted(fields, values_by_meaning)
        end_to_end = self._first + end_to_end + self._added
        if _CACHE_CONTROL not in values_by_meaning:
            end_to_end.append((b"Cache-Control", b"private"))
        fields.end_to_end = b"".join([b"%b: %b\r\n" % pair for pair in end_to_end])
        return fields


_PASS, _DROP = int(Meaning.PASS), int(Meaning.DROP)
_SET_COOKIE, _CONNECTION = int(Meaning.SET_COOKIE), int(Meaning.CONNECTION)
_CACHE_CONTROL, _DATE = int(Meaning.CACHE_CONTROL), int(Meaning.DATE)
_LOCATION, _REFRESH = int(Meaning.LOCATION), int(Meaning.REFRESH)
_LENGTH_FIELD, _CODING, _UPGRADE = int(Meaning.LENGTH), int(Meaning.CODING), int(Meaning.UPGRADE)
_SOCKET_ACCEPT, _SOCKET_EXTENSIONS, _SOCKET_PROTOCOL = map(
    int, (Meaning.SOCKET_ACCEPT, Meaning.SOCKET_EXTENSIONS, Meaning.SOCKET_PROTOCOL)
)
_CROSSING: Final = frozenset({_CACHE_CONTROL, _DATE, _LOCATION, _REFRESH})


def _take_framing(fields: ResponseFields, values_by_meaning: dict[int, list[bytes]]) -> None:
    lengths = values_by_meaning.get(_LENGTH_FIELD)
    codings = values_by_meaning.get(_CODING)
    if codings is not None:
        if lengths is not None:
            raise _bad("the response has Content-Length beside Transfer-Encoding")
        if len(codings) != 1 or codings[0].lower() != b"chunked":
            raise _bad("Transfer-Encoding is not one field with the value chunked")
        fields.chunked = True
    if lengths is not None:
        if len(lengths) != 1 or _LENGTH.fullmatch(lengths[0]) is None:
            raise _bad("Content-Length is not one field with one number")
        fields.length = int(lengths[0])


def _take_adapted(fields: ResponseFields, values_by_meaning: dict[int, list[bytes]]) -> None:
    # What several locations mean is the browser's to decide.
    locations = values_by_meaning.get(_LOCATION, ())
    fields.has_location = len(locations) == 1 and not locations[0].startswith(b"/")
    fields.has_refresh = any(b"://" in value for value in values_by_meaning.get(_REFRESH, ()))
    cookies = values_by_meaning.get(_SET_COOKIE)
    if cookies is not None:
        fields.domain_cookies = domain_cookies(cookies)
    fields.adapts = cookies is not None or fields.has_location or fields.has_refresh


def _take_upgrade(fields: ResponseFields, values_by_meaning: dict[int, list[bytes]]) -> None:
    upgrade = values_by_meaning.get(_UPGRADE)
    if upgrade is None:
        return
    fields.upgrade = b", ".join(upgrade)
    fields.socket_accept = joined(values_by_meaning, _SOCKET_ACCEPT)
    fields.socket_extensions = joined(values_by_meaning, _SOCKET_EXTENSIONS)
    fields.socket_protocol = joined(values_by_meaning, _SOCKET_PROTOCOL)
    options = tokens(values_by_meaning.get(_CONNECTION, ()))
    fields.websocket = tokens(upgrade) == {b"websocket"} and b"upgrade" in options


def _without_nominated(
    fields: ResponseFields,
    values_by_meaning: dict[int, list[bytes]],
    end_to_end: list[tuple[bytes, bytes]],
) -> list[tuple[bytes, bytes]]:
    options = tokens(values_by_meaning[_CONNECTION])
    fields.close = b"close" in options
    nominated = options - HOP_BY_HOP - {b"close"}
    if not nominated:
        return end_to_end
    # A nominated field is treated as absent: the gateway adds its own in its place.
    if b"cache-control" in nominated:
        values_by_meaning.pop(_CACHE_CONTROL, None)
    if b"date" in nominated:
        values_by_meaning.pop(_DATE, None)
    if b"location" in nominated:
        values_by_meaning.pop(_LOCATION, None)
    if b"refresh" in nominated:
        values_by_meaning.pop(_REFRESH, None)
    if b"set-cookie" in nominated:
        values_by_meaning.pop(_SET_COOKIE, None)
    return [pair for pair in end_to_end if pair[0].lower() not in nominated]


def response_body(head: ResponseHead, method: bytes, client_minor: int) -> tuple[Body, bytes]:
    """Return a reader for the response's body, and the field that frames it for the browser.

    A response to HEAD, a 204 and a 304 have no body, whatever their fields say. An empty field
    means that the body ends when the connection closes.

    Raises:
        HeadRefused: ``app_bad_answer``: a transfer coding in HTTP/1.0.
    """
    fields = head.fields
    if fields.chunked and head.minor == 0:
        raise _bad("the response has Transfer-Encoding in HTTP/1.0")
    if method == b"HEAD" or head.status in _WITHOUT_BODY:
        return NoBody(), b"" if head.status == 204 else head.length_field
    if fields.chunked:
        framed = client_minor == 1
        body = ChunkedBody(framed=framed, padded=True)
        return body, b"Transfer-Encoding: chunked\r\n" if framed else b""
    return (
        LengthBody(fields.length) if fields.length >= 0 else CloseDelimitedBody()
    ), head.length_field


# A 101: whether it accepts the upgrade, and the 101 that the browser gets. An app's 101 responses
# differ only in ``Sec-WebSocket-Accept``. A head is cached without that value; the next head is
# looked up with the value that it must have.

MAX_UPGRADE_RESPONSES: Final = 256
MAX_UPGRADE_BYTES: Final = 1024
"""How many heads of a 101 are cached, and how long each may be."""

_LINE: Final = b"HTTP/1.1 101 Switching Protocols\r\n"
_TO_ACCEPT: Final = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: "


class UpgradeResponse(msgspec.Struct, eq=False, gc=False):
    """The 101 that the browser gets: its end-to-end fields, a date if it has none, ``suffix``."""

    fields: ResponseFields
    suffix: bytes
    extensions: bytes | None
    protocol: bytes | None
    at: int = 0
    """Where the accept value was cut out of the cached head."""

    def write(self, end_to_end: bytes, accept: bytes, date: bytes) -> bytes:
        """Return the head in canonical form, with the value *accept* and the field *date*.

        *end_to_end* are the fields as the browser must see them.
        """
        date_field = b"" if self.fields.has_date else date
        return b"".join((_LINE, end_to_end, date_field, _TO_ACCEPT, accept, self.suffix))


def read_upgrade_response(head: ResponseHead, request: Fields, accept: bytes) -> UpgradeResponse:
    """Return the parsed 101.

    Args:
        head: The head of a 101.
        request: The fields of a valid upgrade.
        accept: The ``Sec-WebSocket-Accept`` that it must have.

    Raises:
        HeadRefused: ``app_bad_answer``: it does not accept *request* (RFC 6455, section 4.1).
    """
    fields = head.fields
    if head.minor == 0 or not fields.websocket or fields.chunked or fields.length > 0:
        raise _bad("the 101 does not upgrade the connection to a WebSocket")
    if fields.socket_accept != accept:
        raise _bad("Sec-WebSocket-Accept of the 101 does not fit the request's key")
    lines = [b"\r\n"]
    if fields.socket_extensions is not None:
        lines.append(b"Sec-WebSocket-Extensions: %b\r\n" % fields.socket_extensions)
    if fields.socket_protocol is not None:
        lines.append(b"Sec-WebSocket-Protocol: %b\r\n" % fields.socket_protocol)
    response = UpgradeResponse(
        fields=fields,
        suffix=b"".join((*lines, b"\r\n")),
        extensions=fields.socket_extensions,
        protocol=fields.socket_protocol,
    )
    if not _was_offered(response, request):
        raise _bad("the 101 selects a subprotocol or an extension that was not offered")
    return response


class UpgradeResponseCache:
    """Caches the heads of 101 responses, within limits; the oldest is evicted first."""

    def __init__(self) -> None:
        self._known: BoundedDict[bytes, UpgradeResponse] = BoundedDict(MAX_UPGRADE_RESPONSES)

    def __len__(self) -> int:
        return len(self._known)

    def get(
        self, data: bytes, request: Fields, accept: bytes
    ) -> tuple[UpgradeResponse, int] | None:
        """Return the cached response to the head at the start of *data*, and where the head ends.

        None if no cached head differs in *accept* alone, or if the app selected what *request* did
        not offer.
        """
        end = data.find(b"\r\n\r\n", 0, MAX_UPGRADE_BYTES) + 4
        at = data.find(accept, 0, end)
        if at < 0:
            return None
        response = self._known.get(data[:at] + data[at + len(accept) : end])
        if response is None or response.at != at or not _was_offered(response, request):
            return None
        return response, end

    def put(self, raw: bytes, response: UpgradeResponse, accept: bytes) -> None:
        """Cache *response*, which was parsed from the head *raw* with the value *accept*."""
        if len(raw) > MAX_UPGRADE_BYTES or raw.count(accept) != 1:
            return
        response.at = raw.find(accept)
        self._known[raw.replace(accept, b"")] = response


def _was_offered(response: UpgradeResponse, request: Fields) -> bool:
    """Return whether *request* offered the extension and the subprotocol that the app selected."""
    if not is_offered_deflate(response.extensions, offered=request.socket_extensions):
        return False
    if response.protocol is None:
        return True
    offered = (request.socket_protocols or b"").split(b",")
    return response.protocol in [protocol.strip(b" \t") for protocol in offered]


class HttpDate:
    """Makes the ``Date`` field (RFC 9110, section 6.6.1), once a second.

    Args:
        wall: Returns unix seconds.
    """

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._second = -1
        self._field = b""

    def field(self) -> bytes:
        """Return the whole field, with its CRLF."""
        second = int(self._wall())
        if second != self._second:
            self._second = second
            self._field = b"Date: %b\r\n" % formatdate(second, usegmt=True).encode("ascii")
        return self._field
