"""Request heads from a stream of bytes: collected, checked, parsed."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from gateway.core.http.cookies import has_too_many_own_cookies, without_excess
from gateway.core.http.fields import (
    FieldReader,
    Fields,
    Section,
    check_consistency,
    section_from_cache,
)
from gateway.core.http.heads import (
    MAX_TARGET_BYTES,
    HeadRefused,
    StartLine,
    find_end,
    find_start_line,
    read_start_line,
    search_end,
)
from gateway.core.http.upgrade import is_valid_upgrade
from shared.bounded import BoundedDict

_HEAD: Final = b"HEAD "
MAX_EMPTY_LINES: Final = 8
"""Empty lines before a request line: some clients send one after a body."""
_EXPECT: Final = re.compile(rb"^expect:[^\r\n]*\r\n", re.IGNORECASE | re.MULTILINE)

MAX_EXCESS_BYTES: Final = 1 << 20
"""Of cookies that are dropped as a head arrives."""
_DROP_BITS: Final = 17
"""They are dropped whenever another 128 KiB of a head have arrived."""

MAX_SECTIONS: Final = 512
MAX_SECTION_BYTES: Final = 4096
MAX_FIELDS_OF_SECTION: Final = 64
"""Limits of one section. With the parsed values, all sections together take about 6 MiB at most."""

MAX_KEPT_BYTES: Final = 8192
MAX_KEPT_FIELDS: Final = 64
"""Limits of a head whose section is kept for the connection's next head. Browsers send about twenty
fields in one to four KiB. Other heads are parsed anew each time: kept, they would take up to a MiB
of memory while their connection is idle."""

_KEY_FIELD: Final = b"\r\nSec-WebSocket-Key: "
_KEY: Final = re.compile(rb"[A-Za-z0-9+/]{22}==(?=\r\n)")


class CachedSection(msgspec.Struct, eq=False, frozen=True):
    """A section of an admitted request, without its key: see :class:`.fields.Section`."""

    fields: Fields
    end_to_end: bytes


class RequestHead(msgspec.Struct, eq=False, gc=False):
    """The head of one request; immutable by convention, apart from ``raw``.

    - ``end_to_end`` are the fields that the app gets: see :class:`.fields.Section`.
    - ``raw`` is the head as received, until the request is admitted: the app gets the rest. Its
      fields begin at ``begin``.
    - ``cached`` is its section if that was found in the cache.
    """

    start: StartLine
    fields: Fields
    end_to_end: bytes = b""
    raw: bytes = b""
    begin: int = 0
    cached: CachedSection | None = None

    @property
    def path(self) -> bytes:
        """The path as received, without the query."""
        return self.start.target.partition(b"?")[0]

    @property
    def raw_fields(self) -> bytes:
        """The fields as received, until the request is admitted."""
        return self.raw[self.begin :]


NO_REQUEST: Final = RequestHead(StartLine(b"", b"", 1, None), Fields())


class SectionCache:
    """Caches connections' first sections without tokens; the oldest is evicted first.

    The meaning of a section follows from its bytes alone, whichever client sends them. Browsers
    open one WebSocket after the other with the same fields, each on a new connection. Their
    sections differ only in the value of ``Sec-WebSocket-Key``.
    """

    def __init__(self) -> None:
        self._known: BoundedDict[bytes, CachedSection] = BoundedDict(MAX_SECTIONS)

    def __len__(self) -> int:
        return len(self._known)

    def get(self, raw: bytes) -> tuple[CachedSection, Fields] | None:
        """Return the cached section that differs from *raw* at most in the key, and *raw*'s fields.

        The first is the same object for each such *raw*.
        """
        rest, key = _cut(raw)
        known = self._known.get(rest)
        if known is None:
            return None
        if key is None:
            return known, known.fields
        return known, msgspec.structs.replace(known.fields, socket_key=key)

    def put(self, section: Section) -> None:
        """Cache *section*, which was parsed in full and whose credential admitted a request."""
        fields = section.fields
        rest, key = _cut(section.raw)
        secret = fields.token is not None or fields.authorization is not None
        if secret or fields.socket_key != key or len(section.names) > MAX_FIELDS_OF_SECTION:
            return
        if not 0 < len(rest) <= MAX_SECTION_BYTES:
            return
        if key is not None:
            fields = msgspec.structs.replace(fields, socket_key=None)
        self._known[rest] = CachedSection(fields, section.end_to_end)


def _cut(raw: bytes) -> tuple[bytes, bytes | None]:
    """Return *raw* without the key, and the key; empty bytes if the key is invalid.

    A cached section has at most one key, cut out of exactly one field. Only a section with its key
    at the same place equals it without the key.
    """
    at = raw.rfind(_KEY_FIELD) + len(_KEY_FIELD)  # which stands near the end
    if at < len(_KEY_FIELD):
        return raw, None
    key = _KEY.match(raw, at)
    if key is None:
        return b"", None
    return raw[:at] + raw[key.end() :], key[0]


class RequestReader:
    """Reads the heads of one connection, one after the other.

    ``request`` is the last head, until it is released. Browsers send nearly the same section with
    each request, so only the values that differ are parsed again.

    Args:
        fields: Parses sections.
        known: The cache of sections that other connections began with; None for no cache.
    """

    __slots__ = (
        "_empty_lines",
        "_excess",
        "_fields",
        "_known",
        "_refused",
        "partial",
        "request",
        "section",
    )

    def __init__(self, fields: FieldReader, known: SectionCache | None = None) -> None:
        self._fields = fields
        self._known = known
        self._empty_lines = 0
        self.partial = b""
        """The bytes of an incomplete head."""
        self.request: RequestHead | None = None
        self.section: Section | None = None
        """The last head's section, kept for the next head; None if that head was large."""
        self._excess = 0
        """The bytes of cookies that this head has lost."""
        self._refused = b""
        """The bytes of a head that was refused."""

    def read(self, data: bytes) -> bytes | None:
        """Return the bytes after the head that *data* completes; None while it is incomplete.

        Raises:
            HeadRefused: If the request must be refused.
        """
        seen = len(self.partial)
        try:
            if seen:
                data = self.partial + data
            elif end := self._read_first(data) if self.section is None else self._read_again(data):
                return data[end:]
            if data[:1] == b"\r":
                data, seen = self._skip_empty_lines(data), 0
            excess = self._excess
            if (excess + len(data)) >> _DROP_BITS != (excess + seen) >> _DROP_BITS:
                data, seen = self._without_excess(data, seen), 0
            end = find_end(data, seen)
            if not end:
                self.partial = data
                return None
            self.partial = b""
            self._parse(data[:end])
        except HeadRefused:
            self._refused = data
            raise
        return data[end:]

    def _without_excess(self, data: bytes, seen: int) -> bytes:
        """Return *data* without the cookies of its head that nobody gets."""
        end = search_end(data, seen) or len(data)
        head = data[:end]
        if has_too_many_own_cookies([head]):
            raise HeadRefused("head_too_large")
        short = without_excess(head)
        self._excess += end - len(short)
        if self._excess > MAX_EXCESS_BYTES:
            raise HeadRefused("head_too_large")
        return short + data[end:]

    @property
    def unread(self) -> bytes:
        """The bytes of a head that is refused or incomplete."""
        return self._refused or self.partial

    @property
    def asks_for_head(self) -> bool:
        """Whether the method of a head that is refused, or incomplete, is HEAD.

        The response to HEAD has no content, whatever its status (RFC 9110, section 9.3.2).
        """
        return self.unread.startswith(_HEAD)

    def _skip_empty_lines(self, data: bytes) -> bytes:
        """Return *data* without the empty lines before a request line (RFC 9112, section 2.2)."""
        self.partial = b""
        while data.startswith(b"\r\n"):
            self._empty_lines += 1
            if self._empty_lines > MAX_EMPTY_LINES:
                raise HeadRefused("bad_request")
            data = data[2:]
        return data

    def _read_first(self, data: bytes) -> int:
        """Return where the connection's first head ends; 0 if its section is not in the cache."""
        line = find_start_line(data) if self._known is not None else None
        if line is None or self._known is None:
            return 0
        start, begin = line
        # Most clients send nothing more before the response; a cached section ends only once.
        end = len(data) if data.endswith(b"\r\n\r\n") else data.find(b"\r\n\r\n") + 4
        if end < begin:
            return 0
        raw = data[begin:end]
        found = self._known.get(raw)
        if found is None:
            return 0
        cached, fields = found
        if not fields.websocket:  # an upgrade is the connection's last head
            self.section = section_from_cache(raw, fields, cached.end_to_end)
        self._accept(RequestHead(start, fields, cached.end_to_end, data[:end], begin, cached))
        return end

    def _read_again(self, data: bytes) -> int:
        """Return where the head at the start of *data* ends; 0 if its section does not match."""
        last, line = self.section, find_start_line(data)
        if line is None or last is None:
            return 0
        start, begin = line
        found = last.template.match(data, begin)
        if found is None or found[0] > MAX_TARGET_BYTES:
            return 0
        end, end_to_end = found
        self._accept(RequestHead(start, last.fields, end_to_end, data[:end], begin))
        return end

    def _parse(self, head: bytes) -> None:
        begin = head.find(b"\r\n") + 2
        start = read_start_line(head[: begin - 2])
        section = self._fields.read_section(head[begin:], self.section)
        small = len(head) <= MAX_KEPT_BYTES and len(section.names) <= MAX_KEPT_FIELDS
        self.section = section if small else None
        self._accept(RequestHead(start, section.fields, section.end_to_end, head, begin))

    def cache_section(self) -> None:
        """Cache the section of a head that was admitted, for other connections."""
        last, request = self.section, self.request
        if self._known is None or last is None or request is None:
            return
        if last.fields is request.fields:
            self._known.put(last)

    def _accept(self, request: RequestHead) -> None:
        start, fields = request.start, request.fields
        self._empty_lines = self._excess = 0
        if start.minor == 0 or start.authority is not None:
            check_consistency(start, fields)
        if start.minor == 0:
            # An HTTP/1.0 client waits for no 100 (RFC 9110, section 10.1.1).
            request.end_to_end = _EXPECT.sub(b"", request.end_to_end)
        if fields.websocket and not is_valid_upgrade(start, fields):
            raise HeadRefused("bad_upgrade")
        self.request = request

    def release(self) -> None:
        """Release the last request, until the connection's next head."""
        self.request = None

    def clear(self) -> None:
        """Release all memory."""
        self.partial = b""
        self.request = self.section = None
