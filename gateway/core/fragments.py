"""Large WebSocket frames as fragments (RFC 6455, section 5.4), for a parser that collects frames.

The library delivers a frame once all of it has arrived. A peer that announces megabytes and stalls
would have them kept for as long as its connection is open. Split into fragments, no more than
:data:`FRAGMENT_BYTES` wait. The messages are the same, and so is what violates the protocol.
"""

from __future__ import annotations

from typing import Final

FRAGMENT_BYTES: Final = 65536
"""A multiple of the mask's length: all fragments of a masked frame have its mask."""
_MASKED: Final = 0x80
_FIN: Final = 0x80
_EXTENDED: Final = {126: 2, 127: 8}
_MASK_BYTES: Final = 4


class Fragmenter:
    """Splits the large frames of one stream.

    Args:
        largest: A frame over this size is left as it is: the parser refuses it by its header.
    """

    __slots__ = ("_fin", "_header", "_largest", "_left", "_mask", "_piece")

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._header = b""
        """The bytes of an incomplete header."""
        self._piece = 0
        """Bytes of the current frame or fragment that have not arrived."""
        self._left = 0
        """Bytes of the current frame after that fragment."""
        self._fin = 0
        self._mask = b""

    @property
    def at_boundary(self) -> bool:
        """Whether the last byte fed ended a frame, or no byte was fed."""
        return not (self._header or self._piece or self._left)

    def feed(self, data: bytes) -> bytes:
        """Return *data* with fragments in place of large frames; an incomplete header waits."""
        if len(data) < self._piece:
            self._piece -= len(data)
            return data
        data, self._header = self._header + data, b""
        out: list[bytes] = []
        at, size = 0, len(data)
        while at < size or (self._left and not self._piece):
            if self._piece:
                piece = data[at : at + self._piece]
                out.append(piece)
                self._piece -= len(piece)
                at += len(piece)
            elif self._left:
                out.append(self._next_fragment())
            else:
                end = self._read_header(data, at, out)
                if not end:
                    self._header = data[at:]
                    break
                at = end
        return b"".join(out)

    def _read_header(self, data: bytes, at: int, out: list[bytes]) -> int:
        """Add the header at *at* to *out*; return where it ends, 0 while it is incomplete."""
        if len(data) < at + 2:
            return 0
        first, second = data[at], data[at + 1]
        extended = _EXTENDED.get(second & 0x7F, 0)
        masked = second & _MASKED
        end = at + 2 + extended + (_MASK_BYTES if masked else 0)
        if len(data) < end:
            return 0
        length = second & 0x7F
        if extended:
            length = int.from_bytes(data[at + 2 : at + 2 + extended], "big")
        if not FRAGMENT_BYTES < length <= self._largest:
            out.append(data[at:end])
            self._piece = length
            return end
        self._mask = data[end - _MASK_BYTES : end] if masked else b""
        self._fin = first & _FIN
        self._left = length - FRAGMENT_BYTES
        out.append(self._fragment_header(first & ~_FIN, FRAGMENT_BYTES))
        return end

    def _next_fragment(self) -> bytes:
        size = min(self._left, FRAGMENT_BYTES)
        self._left -= size
        return self._fragment_header(0 if self._left else self._fin, size)

    def _fragment_header(self, first: int, size: int) -> bytes:
        self._piece = size
        masked = _MASKED if self._mask else 0
        if size < 126:
            head = bytes((first, masked | size))
        elif size < 65536:
            head = bytes((first, masked | 126)) + size.to_bytes(2, "big")
        else:
            head = bytes((first, masked | 127)) + size.to_bytes(8, "big")
        return head + self._mask
