"""What both directions' filters share: messages are measured, and pass or are left out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from gateway.core.rfb.cut_text import CutTextPolicy


class RfbError(Exception):
    """What came is not what may come; the message is for people and holds nothing of it."""


MESSAGES_AT_ONCE: Final = 96
"""Messages judged in one call: 0.14 ms. The shortest has one byte."""


class MessageFilter(ABC):
    """Lets pass some of the messages that it is fed.

    Attributes:
        has_more: Whether there is more to judge than one call may. Feed it again, without bytes if
            need be.
    """

    def __init__(self, clipboard: CutTextPolicy) -> None:
        self._clipboard = clipboard
        self._unread = bytearray()
        self._pass = 0
        """What is left of a message that passes as it comes: a text may have 2 GiB."""
        self._drop = 0
        """What is left of a message that is left out."""
        self.has_more = False

    def feed(self, data: bytes) -> bytes:
        """Return what of *data*, and of what was incomplete before, may pass.

        Raises:
            RfbError: For a message whose end cannot be known.
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
            if self._pass:
                piece = self._take(self._pass)
                self._pass -= len(piece)
                passed += piece
            elif self._drop:
                self._drop -= len(self._take(self._drop))
            elif not self._judge(passed):
                break
        return bytes(passed)

    @abstractmethod
    def _judge(self, passed: bytearray) -> bool:
        """Decide on what begins here; False where more bytes are needed for that.

        The message is taken and added to *passed*, or its length goes to ``_pass`` or ``_drop``.
        """

    def _judge_cut_text(self, passed: bytearray) -> bool:
        judged = self._clipboard.judge(self._unread)
        if judged is None:
            return False
        passed += judged.instead
        self._pass, self._drop = judged.passes, judged.drops
        return True

    def _take(self, most: int) -> bytes:
        piece = bytes(self._unread[:most])
        del self._unread[: len(piece)]
        return piece
