"""Texts of the clipboard, in either direction: which of them may pass.

Plain ones (RFC 6143, sections 7.5.6 and 7.6.4) are in Latin-1. The extended ones (rfbproto,
"Extended Clipboard Pseudo-Encoding") are in UTF-8, and marked by a negative length. There one side
announces that it has a text, and the other one asks for it. Both forms look the same in both
directions, but for the first byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag
from typing import Final, NamedTuple

EXTENDED_CLIPBOARD: Final = -1063131698
"""The pseudo-encoding (0xC0A1E5CE) by which a client announces that it knows the extended form."""
_TEXT: Final = 1
"""The one format that may pass; others are files, pictures and markup."""


class Action(IntFlag):
    """What an extended message does, by its flags; exactly one, but for the capabilities."""

    CAPABILITIES = 1 << 24
    REQUEST = 1 << 25
    PEEK = 1 << 26
    NOTIFY = 1 << 27
    PROVIDE = 1 << 28


_ACTIONS: Final = 0xFF000000
_ASKING: Final = Action.REQUEST | Action.PEEK
_GIVING: Final = Action.NOTIFY | Action.PROVIDE


class Judged(NamedTuple):
    """What becomes of a message: *instead* is sent for it, so many bytes of it pass, or go."""

    instead: bytes = b""
    passes: int = 0
    drops: int = 0


@dataclass(frozen=True, slots=True)
class CutTextPolicy:
    """What the side whose messages are read may do.

    Attributes:
        gives: Whether a text of its own may reach the other side.
        takes: Whether it may ask for a text of the other side.
    """

    gives: bool = False
    takes: bool = False

    def judge(self, unread: bytes | bytearray) -> Judged | None:
        """Decide on the message that *unread* begins with; None where more bytes are needed."""
        if len(unread) < 8:
            return None
        length = int.from_bytes(unread[4:8], "big", signed=True)
        size = 8 + abs(length)
        if length >= 0:
            return Judged(passes=size) if self.gives else Judged(drops=size)
        if length > -4 or not (self.gives or self.takes):
            return Judged(drops=size)
        if len(unread) < 12:
            return None
        flags = int.from_bytes(unread[8:12], "big")
        if flags & Action.CAPABILITIES:
            said = bytes(unread[:4]) + self._capabilities(flags)
            return Judged(instead=said, drops=size)
        may = (_ASKING if self.takes else 0) | (_GIVING if self.gives else 0)
        action = flags & _ACTIONS
        passes = action.bit_count() == 1 and action & may
        # Readers take no more than they need: the rest would be a message that nobody judged.
        passes = passes and (flags & _TEXT if action == Action.PROVIDE else size == 12)
        return Judged(passes=size) if passes else Judged(drops=size)

    def _capabilities(self, flags: int) -> bytes:
        """Return what is said instead of *flags*: less, and never a text in the place of sizes.

        Capabilities name what their sender understands, so one that may give is asked. A size of 0
        has nothing sent that was not asked for.
        """
        known = (_ASKING if self.gives else 0) | (_GIVING if self.takes else 0)
        said = flags & (Action.CAPABILITIES | known | _TEXT)
        body = said.to_bytes(4, "big") + bytes(4 * (said & _TEXT))
        return (-len(body)).to_bytes(4, "big", signed=True) + body


def announces_text(head: bytes) -> bool:
    """Say whether a message that begins with the twelve bytes *head* is a text, or news of one."""
    if int.from_bytes(head[4:8], "big", signed=True) >= 0:
        return True
    return int.from_bytes(head[8:12], "big") & _ACTIONS == Action.NOTIFY
