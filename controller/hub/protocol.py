"""The messages between gateway and hub on a WebSocket: ``fumarole.terminal.v1``.

Binary frames are the terminal's bytes: input to the hub, output to the client. Text frames are JSON
objects with a ``type``. Unknown types are ignored in both directions, so that either side can be
upgraded first.
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
    """The columns and rows of a terminal."""

    cols: int
    rows: int


DEFAULT_SIZE: Final = Size(80, 24)


class Resize(msgspec.Struct, frozen=True, tag="resize"):
    """The client resizes the terminal."""

    # msgspec is strict: true, 80.0 and "80" are not integers.
    cols: int
    rows: int

    @property
    def size(self) -> Size | None:
        """The size within its bounds; None if it is invalid."""
        if self.cols < 1 or self.rows < 1:
            return None
        return Size(min(self.cols, MAX_CELLS), min(self.rows, MAX_CELLS))


class Renew(msgspec.Struct, frozen=True, tag="renew"):
    """The client requests a new shell."""


class Seen(msgspec.Struct, frozen=True, tag="seen"):
    """The client has shown everything before *offset*, which opens the send window."""

    offset: int


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    """The client checks whether the connection is alive."""


Message: TypeAlias = Resize | Renew | Seen | Ping
_MESSAGE: Final[msgspec.json.Decoder[Message]] = msgspec.json.Decoder(Message)


def read_text(text: str) -> Message | None:
    """Return the message in a client's *text*; None if it is unknown or malformed.

    A malformed message must not end a shell that others share.
    """
    if len(text) > MAX_TEXT_BYTES:
        return None
    try:
        return _MESSAGE.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


class Resume(msgspec.Struct, frozen=True):
    """The position from which a client wants a shell's output.

    A negative *offset* requests that number of last bytes. *stream* identifies the shell that the
    offset belongs to; without it the offset is applied to the current shell.
    """

    offset: int
    stream: str | None = None


_OFFSET: Final = re.compile(r"-?[0-9]{1,15}")
_NAME: Final = re.compile(r"[0-9a-z]{1,32}")


def read_resume(query: Mapping[str, str]) -> Resume | None:
    """Return the position to begin at; None for a client of an earlier version, which sends none.

    Raises:
        ValueError: If the query is malformed.
    """
    after, stream = query.get("after"), query.get("stream")
    if after is None:
        return None
    if not _OFFSET.fullmatch(after):
        raise ValueError("after must be a whole number")
    return Resume(int(after), None if stream is None else read_name(stream))


def read_name(name: str) -> str:
    """Return *name*, the name of a shell or of a stream.

    Raises:
        ValueError: If it is not a valid name.
    """
    if not _NAME.fullmatch(name):
        raise ValueError("a name must have 1 to 32 lower-case letters and digits")
    return name


def attached_text(
    *,
    mode: Mode,
    resumed: bool,
    size: Size,
    begin: tuple[str, int, int] | None = None,
    typed: int | None = None,
) -> str:
    """Return the first message, which precedes any output.

    *begin* is for clients that sent a position: the stream, the offset of the output that follows,
    and the current end of the output. *typed* is for clients that named themselves: how many bytes
    of their input the shell has.
    """
    place: dict[str, Any] = {} if typed is None else {"typed": typed}
    if begin is not None:
        place |= zip(("stream", "offset", "end"), begin, strict=True)
    return _text("attached", mode=mode, resumed=resumed, cols=size.cols, rows=size.rows, **place)


def shells_text(names: Sequence[str]) -> str:
    """Return the message with the names of the session's shells; the first one has no name."""
    return _text("shells", shells=names)


def refused_text(message: str) -> str:
    """Return the message that the client gets no shell, with the reason; a Close follows."""
    return _text("refused", message=message)


def pong_text() -> str:
    """Return the response to a ping."""
    return _text("pong")


def resized_text(size: Size) -> str:
    """Return the message that the terminal was resized."""
    return _text("resized", cols=size.cols, rows=size.rows)


def typed_text(offset: int) -> str:
    """Return the message that the shell has all of the client's input before *offset*."""
    return _text("typed", offset=offset)


def revoked_input_text() -> str:
    """Return the message that a user whose grant is revoked has sent input to the shell."""
    return _text("revoked_input")


def skipped_text(count: int) -> str:
    """Return the message that *count* bytes were skipped because the client is too slow."""
    return _text("skipped", bytes=count)


def exit_text(*, code: int | None, message: str) -> str:
    """Return the message that the shell has exited; *code* is None if it is not known."""
    return _text("exit", code=code, message=message)


def _text(kind: str, **fields: Any) -> str:
    return msgspec.json.encode({"type": kind} | fields).decode()
