"""The common part of both directions' filters: messages are measured, then forwarded or dropped."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from gateway.core.rfb.cut_text import CutTextPolicy


class RfbError(Exception):
    """The peer violates the protocol; the message is for users and contains no received bytes."""


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

    def _take(self, most: int) -> bytes:
        piece = bytes(self._unread[:most])
        del self._unread[: len(piece)]
        return piece
