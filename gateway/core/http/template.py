"""A field section that was read, as a template: others that fit mean the same to the gateway."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_VALUE: Final = re.compile(rb"[!-~\x80-\xff][\t -~\x80-\xff]*+(?<![\t ])(?=\r\n)")
"""A field's value (RFC 9110, section 5.5), without space around it, up to the line's end."""


class Template:
    """Recognises field sections that differ in values that mean nothing to the gateway, if at all.

    All that has to be the same is compared in long pieces: a request costs what its new values
    cost, however many fields it has.

    Args:
        raw: A section that was read, with its empty line.
        crossing: The part of it that the app gets.
    """

    __slots__ = ("_crossing", "_last", "_steps")

    def __init__(self, raw: bytes, crossing: bytes) -> None:
        self._steps: list[tuple[bytes, bytes]] = []
        """For each value that may differ what stands before it, and what crosses of that."""
        self._last = raw
        self._crossing = crossing

    def loosen(
        self, lines: Sequence[bytes], parts: Sequence[bytes], names: Sequence[bytes], at: set[int]
    ) -> None:
        """Let the lines *at* these places have any value.

        Each must have its name in canonical form, with one space after the colon, and cross whole.

        Args:
            lines: Those of the section, the empty one included.
            parts: The part of each that the app gets.
            names: Those of the fields.
            at: Places of lines that mean nothing to the gateway.
        """
        begin, end = 0, b""
        for place in sorted(at):
            name = names[place] + b": "
            before = b"".join((end, *lines[begin:place], name))
            self._steps.append((before, b"".join((end, *parts[begin:place], name))))
            begin, end = place + 1, b"\r\n"
        self._last = b"".join((end, *lines[begin:]))
        self._crossing = b"".join((end, *parts[begin:]))

    def fit(self, data: bytes, at: int) -> tuple[int, bytes] | None:
        """Return where the section at *at* in *data* ends, and what crosses of it.

        None where it is another one, or not complete.
        """
        crossing: list[bytes] = []
        for before, crosses in self._steps:
            if not data.startswith(before, at):
                return None
            value = _VALUE.match(data, at + len(before))
            if value is None:
                return None
            crossing += (crosses, value[0])
            at = value.end()
        if not data.startswith(self._last, at):
            return None
        crossing.append(self._crossing)
        return at + len(self._last), b"".join(crossing)
