"""Request heads out of a stream of bytes: collected, judged, read."""

from __future__ import annotations

from typing import Final

from gateway.core.http.fields import (
    FieldReader,
    Fields,
    Section,
    check_together,
    known_section,
)
from gateway.core.http.heads import (
    MAX_TARGET_BYTES,
    HeadRefused,
    StartLine,
    find_end,
    find_start_line,
    read_start_line,
)
from gateway.core.http.known_sections import KnownSections
from gateway.core.http.oversize import Oversized, read_oversized
from gateway.core.http.upgrade import is_proper_upgrade

MAX_EMPTY_LINES: Final = 8
"""Before a request line: some clients send one after a body. Nobody means more."""


class RequestReader:
    """Reads the heads of one connection, one after the other.

    ``start``, ``fields``, ``crossing`` and :attr:`section` are the last head's. Browsers send
    nearly the same section with each request, so only those values are read again that differ.

    Args:
        fields: Reads sections.
        known: Sections with which other connections began, read by the same; None for none.
    """

    __slots__ = (
        "_begin",
        "_fields",
        "_head",
        "_known",
        "_last",
        "_skipped",
        "crossing",
        "fields",
        "oversized",
        "partial",
        "start",
    )

    def __init__(self, fields: FieldReader, known: KnownSections | None = None) -> None:
        self._fields = fields
        self._known = known
        self._last: Section | None = None
        self._skipped = 0
        self.partial = b""
        """A head that is not complete yet."""
        self.start: StartLine | None = None
        self.fields: Fields | None = None
        self.crossing = b""
        """The fields that the app gets as they came: see :class:`Section`."""
        self._head, self._begin = b"", 0
        """The last head as it came, and where its fields begin."""
        self.oversized: Oversized | None = None
        """What the head that was refused as too large says."""

    def read(self, data: bytes) -> bytes | None:
        """Return what follows the head that *data* completes; None while it is incomplete.

        Raises:
            HeadRefused: If it must not be acted upon.
        """
        seen = len(self.partial)
        if seen:
            data = self.partial + data
        elif end := self._read_first(data) if self._last is None else self._read_again(data):
            return data[end:]
        if data[:1] == b"\r":
            data, seen = self._skip_empty_lines(data), 0
        try:
            end = find_end(data, seen)
            if not end:
                self.partial = data
                return None
            self.partial = b""
            self._parse(data[:end])
        except HeadRefused as refused:
            if refused.code == "head_too_large":
                self.oversized = read_oversized(data)
            raise
        return data[end:]

    def _skip_empty_lines(self, data: bytes) -> bytes:
        """Return *data* without the empty lines before a request line (RFC 9112, section 2.2)."""
        self.partial = b""
        while data.startswith(b"\r\n"):
            self._skipped += 1
            if self._skipped > MAX_EMPTY_LINES:
                raise HeadRefused("bad_request")
            data = data[2:]
        return data

    def _read_first(self, data: bytes) -> int:
        """Return where the connection's first head ends; 0 if nobody began with such a section."""
        line = find_start_line(data) if self._known is not None else None
        if line is None or self._known is None:
            return 0
        start, begin = line
        # Most send nothing else before it is answered; a section that is known ends but once.
        end = len(data) if data.endswith(b"\r\n\r\n") else data.find(b"\r\n\r\n") + 4
        if end < begin:
            return 0
        raw = data[begin:end]
        found = self._known.find(raw)
        if found is None:
            return 0
        fields, crossing = found
        if not fields.websocket:  # or this head is the connection's last one
            self._last = known_section(raw, fields, crossing)
        self._head, self._begin = data[:end], begin
        self._take(start, fields, crossing)
        return end

    def _read_again(self, data: bytes) -> int:
        """Return where the head ends that *data* begins with; 0 if its section is a new one."""
        last, line = self._last, find_start_line(data)
        if line is None or last is None:
            return 0
        start, begin = line
        found = last.template.fit(data, begin)
        if found is None or found[0] > MAX_TARGET_BYTES:
            return 0
        end, crossing = found
        self._head, self._begin = data[:end], begin
        self._take(start, last.fields, crossing)
        return end

    def _parse(self, head: bytes) -> None:
        self._head, self._begin = head, head.find(b"\r\n") + 2
        start = read_start_line(head[: self._begin - 2])
        section = self._last = self._fields.read_section(head[self._begin :], self._last)
        self._take(start, section.fields, section.crossing)

    def remember(self) -> None:
        """Have other connections know the section of a head by which somebody was let in."""
        last = self._last
        if self._known is not None and last is not None and last.fields is self.fields:
            self._known.keep(last)

    def _take(self, start: StartLine, fields: Fields, crossing: bytes) -> None:
        self.fields, self.crossing, self._skipped = fields, crossing, 0
        if start.minor == 0 or start.authority is not None:
            check_together(start, fields)
        if fields.websocket and not is_proper_upgrade(start, fields):
            raise HeadRefused("bad_upgrade")
        self.start = start

    @property
    def section(self) -> bytes:
        """The last head's fields as they came."""
        return self._head[self._begin :]

    def forget(self) -> None:
        """Let go of everything."""
        self.partial = self.crossing = self._head = b""
        self.start = self.fields = self._last = None
