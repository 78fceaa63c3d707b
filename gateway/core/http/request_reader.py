"""Request heads out of a stream of bytes: collected, judged, read."""

from __future__ import annotations

from typing import Final

from gateway.core.http.fields import FieldReader, Fields, Section, check_together
from gateway.core.http.heads import HeadRefused, StartLine, find_end, read_start_line
from gateway.core.http.oversize import Oversized, read_oversized
from gateway.core.http.upgrade import is_proper_upgrade

MAX_EMPTY_LINES: Final = 8
"""Before a request line: some clients send one after a body. Nobody means more."""


class RequestReader:
    """Reads the heads of one connection, one after the other.

    ``start``, ``fields`` and ``crossing`` are the last head's. Browsers send nearly the same
    section with each request, so only those lines are read again that differ.
    """

    __slots__ = (
        "_fields",
        "_section",
        "_skipped",
        "crossing",
        "fields",
        "oversized",
        "partial",
        "start",
    )

    def __init__(self, fields: FieldReader) -> None:
        self._fields = fields
        self._section: Section | None = None
        self._skipped = 0
        self.partial = b""
        """A head that is not complete yet."""
        self.start: StartLine | None = None
        self.fields: Fields | None = None
        self.crossing = b""
        """The fields that the app gets as they came: see :class:`Section`."""
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
        if data[:1] == b"\r":
            data, seen = self._skip_empty_lines(data), 0
        try:
            end = find_end(data, seen)
            if not end:
                self.partial = data
                return None
            self.partial, self._skipped = b"", 0
            line_end = data.find(b"\r\n")
            self._parse(data[:line_end], data[line_end + 2 : end])
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

    def _parse(self, line: bytes, section: bytes) -> None:
        start = read_start_line(line)
        last = self._section
        if last is None or section != last.raw:
            last = self._section = self._fields.read_section(section, last)
        fields = self.fields = last.fields
        self.crossing = last.crossing
        if start.minor == 0 or start.authority is not None:
            check_together(start, fields)
        if fields.websocket and not is_proper_upgrade(start, fields):
            raise HeadRefused("bad_upgrade")
        self.start = start

    @property
    def section(self) -> bytes:
        """The last head's fields as they came."""
        return b"" if self._section is None else self._section.raw

    def forget(self) -> None:
        """Let go of everything."""
        self.partial = self.crossing = b""
        self.start = self.fields = self._section = None
