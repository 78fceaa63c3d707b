"""Whether a browser's RFB bytes hold what a person did (RFC 6143, section 7.5)."""

from __future__ import annotations

from typing import Final

_KEY_EVENT, _POINTER_EVENT, _CUT_TEXT, _QEMU = 4, 5, 6, 255
_INPUT: Final = frozenset({_KEY_EVENT, _POINTER_EVENT, _CUT_TEXT, _QEMU})
_SET_ENCODINGS: Final = 2
_LENGTHS: Final = {0: 20, 3: 10, 150: 10, 248: 9}
"""Of what browsers send by themselves: formats, requests for updates, fences."""
_MOST: Final = 16


def has_human_input(data: bytes) -> bool:
    """Say whether a key, pointer or clipboard event is among the first messages of *data*.

    For display only, so it is cheap and may err: *data* is taken to begin with a message, as
    every WebSocket message of the known clients does.
    """
    at = 0
    for _ in range(_MOST):
        if at >= len(data):
            return False
        kind = data[at]
        if kind in _INPUT:
            return True
        if kind == _SET_ENCODINGS:
            at += 4 + 4 * int.from_bytes(data[at + 2 : at + 4], "big")
        elif kind in _LENGTHS:
            at += _LENGTHS[kind]
        else:
            return False
    return False
