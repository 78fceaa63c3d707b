"""What is said over a WebSocket between a gateway and the hub: ``fumarole.terminal.v1``.

Binary frames are the terminal's bytes: to the hub what is typed, to the client what is shown.
Text frames are JSON objects with a ``type``; types that are not known are passed over, in both
directions, so that either side may learn new ones first.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from shared.tokens import Mode

SUBPROTOCOL: Final = "fumarole.terminal.v1"
MAX_FRAME_BYTES: Final = 1 << 20
MAX_TEXT_BYTES: Final = 4096
MAX_CELLS: Final = 4096

ENDED: Final = 4410
REVOKED: Final = 4401
REPLACED: Final = 1012
TRY_LATER: Final = 1013
REFUSED: Final = 1008

CloseCode = Literal[4410, 4401, 1012, 1013, 1008]


class Size(msgspec.Struct, frozen=True):
    """How many columns and rows a terminal has."""

    cols: int
    rows: int


DEFAULT_SIZE: Final = Size(80, 24)


class _Resize(msgspec.Struct):
    # Typed strictly by msgspec: true, 80.0 and "80" are no integers.
    type: Literal["resize"]
    cols: int
    rows: int


_RESIZE = msgspec.json.Decoder(_Resize)


def read_resize(text: str) -> Size | None:
    """Return the size that the client's *text* asks for, brought within bounds; None for others.

    A text that is not understood is no reason to end anyone's shell.
    """
    if len(text) > MAX_TEXT_BYTES:
        return None
    try:
        asked = _RESIZE.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    if asked.cols < 1 or asked.rows < 1:
        return None
    return Size(min(asked.cols, MAX_CELLS), min(asked.rows, MAX_CELLS))


class _Renew(msgspec.Struct):
    type: Literal["renew"]


_RENEW = msgspec.json.Decoder(_Renew)


def asks_to_renew(text: str) -> bool:
    """Say whether the client's *text* asks for the shell to be begun anew."""
    try:
        return len(text) <= MAX_TEXT_BYTES and _RENEW.decode(text) is not None
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False


def attached_text(*, mode: Mode, resumed: bool, size: Size) -> str:
    """Return the first message: how the client is attached, before the scrollback."""
    return _text("attached", mode=mode, resumed=resumed, cols=size.cols, rows=size.rows)


def resized_text(size: Size) -> str:
    """Return the message that the terminal has another size now."""
    return _text("resized", cols=size.cols, rows=size.rows)


def revoked_input_text() -> str:
    """Return the message that somebody has typed into the shell whose grant was revoked since."""
    return _text("revoked_input")


def skipped_text(count: int) -> str:
    """Return the message that *count* bytes were not sent, because the client is too slow."""
    return _text("skipped", bytes=count)


def exit_text(*, code: int | None, message: str) -> str:
    """Return the message that the shell has ended; *code* is None where it is not known."""
    return _text("exit", code=code, message=message)


def _text(kind: str, **fields: Any) -> str:
    return msgspec.json.encode({"type": kind} | fields).decode()
