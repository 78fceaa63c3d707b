"""What is said over a WebSocket between a gateway and the hub: ``fumarole.terminal.v1``.

Binary frames are the terminal's bytes: to the hub what is typed, to the client what is shown.
Text frames are JSON objects with a ``type``; types that are not known are passed over, in both
directions, so that either side may learn new ones first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

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


class Resize(msgspec.Struct, frozen=True, tag="resize"):
    """A client gives the terminal a size."""

    # Typed strictly by msgspec: true, 80.0 and "80" are no integers.
    cols: int
    rows: int

    @property
    def size(self) -> Size | None:
        """The size, brought within bounds; None for none."""
        if self.cols < 1 or self.rows < 1:
            return None
        return Size(min(self.cols, MAX_CELLS), min(self.rows, MAX_CELLS))


class Renew(msgspec.Struct, frozen=True, tag="renew"):
    """A client asks for the shell to be begun anew."""


class Seen(msgspec.Struct, frozen=True, tag="seen"):
    """A client has shown everything before *offset*, and wants little ahead of that."""

    offset: int


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    """A client asks whether somebody is there."""


Message: TypeAlias = Resize | Renew | Seen | Ping
_MESSAGE: Final[msgspec.json.Decoder[Message]] = msgspec.json.Decoder(Message)


def read_text(text: str) -> Message | None:
    """Return what a client's *text* says; None where it is not understood.

    A text that is not understood is no reason to end anyone's shell.
    """
    if len(text) > MAX_TEXT_BYTES:
        return None
    try:
        return _MESSAGE.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


class Resume(msgspec.Struct, frozen=True):
    """From where a client wants to be shown what a shell writes.

    A negative *offset* asks for so many of the last bytes. *stream* names the shell whose output
    has that offset; without it the client takes it for this one's.
    """

    offset: int
    stream: str | None = None


_OFFSET: Final = re.compile(r"-?[0-9]{1,15}")
_NAME: Final = re.compile(r"[0-9a-z]{1,32}")


def read_resume(query: Mapping[str, str]) -> Resume | None:
    """Return from where to begin; None for a client of before, which does not say it.

    Raises:
        ValueError: If it cannot be read.
    """
    after, stream = query.get("after"), query.get("stream")
    if after is None:
        return None
    if not _OFFSET.fullmatch(after):
        raise ValueError("after must be a whole number")
    return Resume(int(after), None if stream is None else read_name(stream))


def read_name(name: str) -> str:
    """Return *name*, which a client has given a shell or was told of one.

    Raises:
        ValueError: If it is no such name.
    """
    if not _NAME.fullmatch(name):
        raise ValueError("a name is 1 to 32 lower case letters and digits")
    return name


def attached_text(
    *, mode: Mode, resumed: bool, size: Size, begin: tuple[str, int, int] | None = None
) -> str:
    """Return the first message: how the client is attached, before any output.

    *begin* is for clients that say from where: the stream, the offset at which the output begins
    that follows, and the one up to which it was written before.
    """
    place = {} if begin is None else dict(zip(("stream", "offset", "end"), begin, strict=True))
    return _text("attached", mode=mode, resumed=resumed, cols=size.cols, rows=size.rows, **place)


def shells_text(names: Sequence[str]) -> str:
    """Return the message that the session has these shells; the first one has no name."""
    return _text("shells", shells=names)


def refused_text(message: str) -> str:
    """Return the message that the client gets no shell, and why; the Close follows."""
    return _text("refused", message=message)


def pong_text() -> str:
    """Return the answer to a ping."""
    return _text("pong")


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
