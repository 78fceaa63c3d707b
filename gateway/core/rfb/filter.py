"""The common part of both directions' filters: messages are measured, then forwarded or dropped.

Clipboard messages are judged here. Plain ones (RFC 6143, sections 7.5.6 and 7.6.4) hold Latin-1.
Extended ones (rfbproto, "Extended Clipboard Pseudo-Encoding") hold UTF-8 and are marked by a
negative length. In the extended form one side announces a text and the other side requests it.
Apart from the first byte both forms are the same in both directions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import IntFlag
from typing import Final, NamedTuple


class RfbError(Exception):
    """The peer violates the protocol; the message is for users and contains no received bytes."""


EXTENDED_CLIPBOARD: Final = -1063131698
"""The pseudo-encoding (0xC0A1E5CE) by which a client announces the extended form."""
_TEXT: Final = 1
"""The one format that may pass; the others are files, images and markup."""


class Action(IntFlag):
    """The action of an extended message, by its flags; exactly one except for capabilities."""

    CAPABILITIES = 1 << 24
    REQUEST = 1 << 25
    PEEK = 1 << 26
    NOTIFY = 1 << 27
    PROVIDE = 1 << 28


_ACTIONS: Final = 0xFF000000
_ASKING: Final = Action.REQUEST | Action.PEEK
_GIVING: Final = Action.NOTIFY | Action.PROVIDE


class CutTextVerdict(NamedTuple):
    """The decision on a message: send *replacement* for it, and forward or drop its bytes."""

    replacement: bytes = b""
    forwarded: int = 0
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class CutTextPolicy:
    """The rights of the side whose messages are filtered.

    Attributes:
        may_send: Whether its clipboard text may reach the other side.
        may_request: Whether it may request the other side's text.
    """

    may_send: bool = False
    may_request: bool = False

    def judge(self, unread: bytes | bytearray) -> CutTextVerdict | None:
        """Return the verdict on the first message of *unread*; None if more bytes are needed."""
        if len(unread) < 8:
            return None
        length = int.from_bytes(unread[4:8], "big", signed=True)
        size = 8 + abs(length)
        if length >= 0:
            return CutTextVerdict(forwarded=size) if self.may_send else CutTextVerdict(dropped=size)
        if length > -4 or not (self.may_send or self.may_request):
            return CutTextVerdict(dropped=size)
        if len(unread) < 12:
            return None
        flags = int.from_bytes(unread[8:12], "big")
        if flags & Action.CAPABILITIES:
            said = bytes(unread[:4]) + self._capabilities(flags)
            return CutTextVerdict(replacement=said, dropped=size)
        may = (_ASKING if self.may_request else 0) | (_GIVING if self.may_send else 0)
        action = flags & _ACTIONS
        passes = action.bit_count() == 1 and action & may
        # Receivers read no more than they need: the rest would be a message that was not filtered.
        passes = passes and (flags & _TEXT if action == Action.PROVIDE else size == 12)
        return CutTextVerdict(forwarded=size) if passes else CutTextVerdict(dropped=size)

    def _capabilities(self, flags: int) -> bytes:
        """Return the capabilities sent in place of *flags*: fewer, and never a text for sizes.

        Capabilities name what their sender understands, so a side that may send is sent requests.
        A size of 0 prevents unsolicited texts.
        """
        known = (_ASKING if self.may_send else 0) | (_GIVING if self.may_request else 0)
        said = flags & (Action.CAPABILITIES | known | _TEXT)
        body = said.to_bytes(4, "big") + bytes(4 * (said & _TEXT))
        return (-len(body)).to_bytes(4, "big", signed=True) + body


def announces_text(head: bytes) -> bool:
    """Return whether a message that starts with the twelve bytes *head* is or announces a text."""
    if int.from_bytes(head[4:8], "big", signed=True) >= 0:
        return True
    return int.from_bytes(head[8:12], "big") & _ACTIONS == Action.NOTIFY


MESSAGES_AT_ONCE: Final = 96
"""The maximum number of messages filtered in one call; they take 0.14 ms. The shortest has one
byte."""


class MessageFilter(ABC):
    """Forwards the allowed messages among those that it is fed.

    Attributes:
        has_more: Whether the last call stopped early. Then feed again, without bytes if need be.
    """

    def __init__(self, clipboard: CutTextPolicy) -> None:
        self._clipboard = clipboard
        self._unread = bytearray()
        self._forward = 0
        """Remaining bytes of a message that is forwarded as it arrives: a text can have 2 GiB."""
        self._drop = 0
        """Remaining bytes of a message that is dropped."""
        self.has_more = False

    def feed(self, data: bytes) -> bytes:
        """Return the bytes to forward, from *data* and from earlier incomplete messages.

        Raises:
            RfbError: For a message whose end cannot be determined.
        """
        self._unread += data
        passed = bytearray()
        self.has_more = False
        left = MESSAGES_AT_ONCE
        while self._unread:
            if not left:
                self.has_more = True
                break
            left -= 1
            if self._forward:
                piece = self._take(self._forward)
                self._forward -= len(piece)
                passed += piece
            elif self._drop:
                self._drop -= len(self._take(self._drop))
            elif not self._judge(passed):
                break
        return bytes(passed)

    @abstractmethod
    def _judge(self, passed: bytearray) -> bool:
        """Decide on the next message; return False if more bytes are needed.

        The message is removed and added to *passed*, or its length is stored in ``_forward`` or
        ``_drop``.
        """

    def _judge_cut_text(self, passed: bytearray) -> bool:
        judged = self._clipboard.judge(self._unread)
        if judged is None:
            return False
        passed += judged.replacement
        self._forward, self._drop = judged.forwarded, judged.dropped
        return True

    def _fence(self, sender: str) -> int:
        """Return the size of a fence, the same in both directions; 0 while it is unknown."""
        if len(self._unread) < 9:
            return 0
        if self._unread[8] > 64:
            raise RfbError(f"the {sender} sent a fence that is too long")
        return 9 + self._unread[8]

    def _take(self, most: int) -> bytes:
        piece = bytes(self._unread[:most])
        del self._unread[: len(piece)]
        return piece
