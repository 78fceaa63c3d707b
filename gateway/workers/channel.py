"""What supervisor and workers tell each other: messages by a socket.

Each message is MessagePack after its length in four bytes. The socket between two processes of
one gateway is reliable and ordered; both run the same code, so there are no versions.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeAlias, TypeVar, cast

import msgspec

log = logging.getLogger(__name__)

M = TypeVar("M")

_LENGTH: Final = struct.Struct("!I")
MOST_BYTES: Final = 1 << 26
"""Metrics have closed sets of labels: a message takes far less."""


class _Message(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    pass


class StatusRequest(_Message, frozen=True, tag="status-request"):
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


class WorkerStatus(_Message, frozen=True, tag="status"):
    """From a worker: answers :class:`StatusRequest`.

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


Down: TypeAlias = StatusRequest | Drain | SignOut
Up: TypeAlias = WorkerStatus | SignOut

_encoder = msgspec.msgpack.Encoder()
decode_down: Callable[[bytes], Down] = msgspec.msgpack.Decoder(Down).decode
decode_up: Callable[[bytes], Up] = msgspec.msgpack.Decoder(Up).decode


def encode(message: Down | Up) -> bytes:
    """Return *message* as it travels."""
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


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


class Channel(asyncio.Protocol, Generic[M]):
    """One end of the socket: sends messages, and calls *on_message* with those that come."""

    def __init__(self, decode: Callable[[bytes], M], on_message: Callable[[M], None]) -> None:
        self._decode = decode
        self._on_message = on_message
        self._frames = Frames()
        self._transport: asyncio.Transport | None = None
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once the other process has gone, or makes no sense."""

    async def open(self, sock: socket.socket) -> None:
        """Send and receive by *sock* from now on."""
        sock.setblocking(False)
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=sock)

    def send(self, message: Down | Up) -> None:
        """Send *message*, unless the other process has gone."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(encode(message))

    def close(self) -> None:
        """Say and hear no more."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Hand on what came."""
        try:
            for body in self._frames.feed(data):
                self._on_message(self._decode(body))
        except (ValueError, msgspec.DecodeError):
            log.exception("a process of this gateway said what nobody understands")
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Say that the other process has gone."""
        if not self.closed.done():
            self.closed.set_result(None)
