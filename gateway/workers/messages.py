"""What supervisor and worker say to each other, and how it is framed: no I/O.

Each message is MessagePack after its length in four bytes. The socket between two processes of
one gateway is reliable and ordered; both run the same code, so there are no versions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import msgspec

_LENGTH: Final = struct.Struct("!I")
MOST_BYTES: Final = 1 << 26
"""Metrics have closed sets of labels: a message takes far less."""


class _Message(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    pass


class Look(_Message, frozen=True, tag="look"):
    """From the supervisor: asks how the worker stands.

    With ``measured`` also for what it has counted, with ``described`` for what it knows of the
    table, and of ``host`` in it.
    """

    number: int
    measured: bool = False
    described: bool = False
    host: str | None = None


class Drain(_Message, frozen=True, tag="drain"):
    """From the supervisor: take no further connections, end what is open in time, and exit."""


class SignOut(_Message, frozen=True, tag="sign-out"):
    """A user has ended the grants of one token: from one worker to the supervisor to the others."""

    sid: str
    jti: str


class Sample(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One number of a family."""

    name: str
    labels: dict[str, str]
    value: float


class Family(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A family of metrics as Prometheus names them."""

    name: str
    text: str
    kind: str
    samples: tuple[Sample, ...]


class Measured(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a worker has counted, and how the table and the bus stand for it."""

    counted: tuple[Family, ...]
    table: tuple[Family, ...]


class Standing(_Message, frozen=True, tag="standing"):
    """From a worker: answers :class:`Look`.

    ``rank`` orders workers by what they know of the bus: the least is furthest behind.
    ``described`` is JSON: what routes hold is the controller's to say, and of any size.
    """

    number: int
    epoch: str | None
    seq: int
    hash: int
    rank: tuple[int, ...]
    lag_seconds: float
    open: int
    accepting: bool
    reasons: tuple[str, ...]
    measured: Measured | None = None
    described: str | None = None


Down: TypeAlias = Look | Drain | SignOut
Up: TypeAlias = Standing | SignOut

_encoder = msgspec.msgpack.Encoder()
_down: Any = msgspec.msgpack.Decoder(Down)
_up: Any = msgspec.msgpack.Decoder(Up)


def encode(message: Down | Up) -> bytes:
    """Return *message* as it travels."""
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


def decode_down(body: bytes) -> Down:
    """Return the supervisor's message in *body*."""
    message: Down = _down.decode(body)
    return message


def decode_up(body: bytes) -> Up:
    """Return the worker's message in *body*."""
    message: Up = _up.decode(body)
    return message


class Frames:
    """Cuts what comes from a socket into the bodies of messages."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the bodies that *data* completes; take all before feeding more.

        Raises:
            ValueError: If a length cannot be true.
        """
        data = self._rest + data if self._rest else data
        start, length_of = 0, _LENGTH.unpack_from
        while start + 4 <= len(data):
            (length,) = length_of(data, start)
            if length > MOST_BYTES:
                raise ValueError("a message is longer than any")
            if start + 4 + length > len(data):
                break
            yield data[start + 4 : start + 4 + length]
            start += 4 + length
        self._rest = data[start:]
