"""Removes sequences that set the viewer's clipboard from a program's output.

A terminal that implements OSC 52 (xterm, "Operating System Commands") writes text that a program
sends to the clipboard. The page of this project does not, but other clients may. The sequences are
removed if a session's text must not leave the session.
"""

from __future__ import annotations

import re
from typing import Final

_LONGEST_PREFIX: Final = 16
"""The most bytes that are held back because they may begin a sequence."""
_EXECUTED: Final = re.compile(rb"\x1b([\x00-\x17\x19\x1c-\x1f\x7f]+)")
"""Control characters after ESC: terminals execute or ignore them, and go on with the sequence."""
_BEGIN: Final = re.compile(
    rb"(?:\x1b\]|\xc2\x9d)(?:0{0,6}52;|[0-9]{0,8}[\x00-\x06\x08-\x17\x19\x1c-\x1f\x7f]|[0-9]{9})"
)
"""Terminals ignore control characters within a number, and some take 4294967348 for 52. Neither
has a purpose except to evade this pattern, so they match too."""
_PERHAPS: Final = re.compile(rb"(?:\x1b|(?:\x1b\]|\xc2\x9d)[0-9]{0,8}|\xc2)\Z")
_END: Final = re.compile(rb"\x07|\xc2\x9c|\x1b\\|[\x18\x1a]|\x1b(?=[^\\])")
"""BEL or ST end a sequence; CAN, SUB and any other ESC abort it (ECMA-48, xterm's parser)."""


class ClipboardGuard:
    """Removes OSC 52 sequences from a stream, however it is split."""

    def __init__(self) -> None:
        self._held = b""
        self._within = False

    def feed(self, data: bytes) -> bytes:
        """Return the part of *data*, and of data held back before, that may be shown."""
        data = _EXECUTED.sub(b"\\1\x1b", self._held + data)
        self._held, shown, at = b"", bytearray(), 0
        while at < len(data):
            at = self._leave_out(data, at) if self._within else self._show(data, at, shown)
        return bytes(shown)

    def _show(self, data: bytes, at: int, shown: bytearray) -> int:
        begin = _BEGIN.search(data, at)
        if begin is not None:
            shown += data[at : begin.start()]
            self._within = True
            return begin.end()
        perhaps = _PERHAPS.search(data, max(at, len(data) - _LONGEST_PREFIX))
        until = perhaps.start() if perhaps is not None else len(data)
        shown += data[at:until]
        self._held = data[until:]
        return len(data)

    def _leave_out(self, data: bytes, at: int) -> int:
        end = _END.search(data, at)
        if end is None:
            # This may be the first half of a terminator.
            self._held = data[-1:] if data[-1:] in (b"\x1b", b"\xc2") else b""
            return len(data)
        self._within = False
        broken_off = end[0] == b"\x1b"
        return end.start() if broken_off else end.end()
