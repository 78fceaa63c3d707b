"""A parsed field section as a template: sections that match it mean the same to the gateway."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_VALUE: Final = re.compile(rb"[!-~\x80-\xff][\t -~\x80-\xff]*+(?<![\t ])(?=\r\n)")
"""A field's value (RFC 9110, section 5.5) up to the line's end, without surrounding spaces."""


class Template:
    """Recognises field sections that differ at most in values without meaning to the gateway.

    The constant text is compared in long pieces: the cost of a request depends on its new values,
    not on its number of fields.

    Args:
        raw: A parsed section, with its empty line.
        end_to_end: Its end-to-end fields.
    """

    __slots__ = ("_crossing", "_last", "_steps")

    def __init__(self, raw: bytes, end_to_end: bytes) -> None:
        self._steps: list[tuple[bytes, bytes]] = []
        """For each value that may differ: the constant text before it, and its end-to-end part."""
        self._last = raw
        self._crossing = end_to_end

    def allow_any_value(
        self, lines: Sequence[bytes], parts: Sequence[bytes], names: Sequence[bytes], at: set[int]
    ) -> None:
        """Let the lines *at* these places have any value.

        Each must have its name in canonical form, with one space after the colon, and must be
        forwarded as a whole.

        Args:
            lines: The lines of the section, the empty one included.
            parts: The end-to-end part of each line.
            names: The names of the fields.
            at: The places of lines without meaning to the gateway.
        """
        begin, end = 0, b""
        for place in sorted(at):
            name = names[place] + b": "
            before = b"".join((end, *lines[begin:place], name))
            self._steps.append((before, b"".join((end, *parts[begin:place], name))))
            begin, end = place + 1, b"\r\n"
        self._last = b"".join((end, *lines[begin:]))
        self._crossing = b"".join((end, *parts[begin:]))

    def match(self, data: bytes, at: int) -> tuple[int, bytes] | None:
        """Return where the section at *at* in *data* ends, and its end-to-end fields.

        None if it does not match or is incomplete.
        """
        end_to_end: list[bytes] = []
        for before, crosses in self._steps:
            if not data.startswith(before, at):
                return None
            value = _VALUE.match(data, at + len(before))
            if value is None:
                return None
            end_to_end += (crosses, value[0])
            at = value.end()
        if not data.startswith(self._last, at):
            return None
        end_to_end.append(self._crossing)
        return at + len(self._last), b"".join(end_to_end)
