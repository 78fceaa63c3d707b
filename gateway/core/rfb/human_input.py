"""Whether a browser's RFB bytes hold what a person did (RFC 6143, section 7.5)."""

from __future__ import annotations

from typing import Final

from gateway.core.rfb.cut_text import announces_text

_KEY_EVENT, _POINTER_EVENT, _QEMU = 4, 5, 255
_INPUT: Final = frozenset({_KEY_EVENT, _POINTER_EVENT, _QEMU})
_SET_ENCODINGS, _CUT_TEXT, _FENCE = 2, 6, 248
_LENGTHS: Final = {0: 20, 3: 10, 150: 10}
"""Of what browsers send by themselves: formats, and requests for updates."""
_MOST: Final = 16


def has_human_input(data: bytes) -> bool:
    """Say whether a key, pointer or clipboard event is among the first messages of *data*.

    For display only, so it is cheap and may err: *data* is taken to begin with a message, as
    every WebSocket message of the known clients does. Of the clipboard's messages only a text, or
    the news of one, is a person's: a browser answers the others by itself.
    """
    at, size, left = 0, len(data), _MOST
    while at < size and left:
        left -= 1
        kind = data[at]
        if kind in _INPUT:
            return True
        if kind == _SET_ENCODINGS:
            at += 4 + 4 * int.from_bytes(data[at + 2 : at + 4], "big")
        elif kind == _FENCE and size > at + 8:
            at += 9 + data[at + 8]
        elif kind == _CUT_TEXT:
            length = int.from_bytes(data[at + 4 : at + 8], "big", signed=True)
            if announces_text(data[at : at + 12]):
                return True
            at += 8 - length
        elif kind in _LENGTHS:
            at += _LENGTHS[kind]
        else:
            return False
    return False
