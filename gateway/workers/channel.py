"""Messages between the supervisor and the workers, over a socket.

Each message is MessagePack, preceded by its length in four bytes. Both ends are processes of one
gateway and run the same code, so messages have no version.
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
"""The maximum length of a message. Metrics have closed sets of labels and take far less."""


class _Message(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    pass


class StatusRequest(_Message, frozen=True, tag="status-request"):
    """From the supervisor: requests a :class:`WorkerStatus`.

    ``measured`` requests the worker's metrics; ``described`` requests a description of its table,
    and of ``host`` in it.
    """

    number: int
    measured: bool = False
    described: bool = False
    host: str | None = None


class Drain(_Message, frozen=True, tag="drain"):
    """From the supervisor: accept no more connections, drain, and exit."""


class SignOut(_Message, frozen=True, tag="sign-out"):
    """A user has ended the grants of one token: one worker sends it to all others."""

    sid: str
    jti: str


class Sample(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One sample of a metric family."""

    name: str
    labels: dict[str, str]
    value: float


class Family(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A metric family, as in Prometheus' data model."""

    name: str
    text: str
    kind: str
    samples: tuple[Sample, ...]


class Measured(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The metrics of a worker: ``counted`` is summed over workers, ``table`` is not."""

    counted: tuple[Family, ...]
    table: tuple[Family, ...]


class WorkerStatus(_Message, frozen=True, tag="status"):
    """From a worker: the response to a :class:`StatusRequest`.

    ``rank`` orders workers by how far they follow the bus: the smallest is furthest behind.
    ``described`` is JSON, which is passed on as it is.
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
    degraded: tuple[str, ...] = ()
    measured: Measured | None = None
    described: str | None = None


Down: TypeAlias = StatusRequest | Drain | SignOut
Up: TypeAlias = WorkerStatus | SignOut

_encoder = msgspec.msgpack.Encoder()
decode_down: Callable[[bytes], Down] = msgspec.msgpack.Decoder(Down).decode
decode_up: Callable[[bytes], Up] = msgspec.msgpack.Decoder(Up).decode


def encode(message: Down | Up) -> bytes:
    """Return *message* with its length, as it is sent."""
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


class Frames:
    """Splits a byte stream into the bodies of messages."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the bodies that *data* completes; exhaust the iterator before the next call.

        Raises:
            ValueError: If a length exceeds :data:`MOST_BYTES`.
        """
        data = self._rest + data if self._rest else data
        start, length_of = 0, _LENGTH.unpack_from
        while start + 4 <= len(data):
            (length,) = length_of(data, start)
            if length > MOST_BYTES:
                raise ValueError(f"a message is longer than {MOST_BYTES} bytes")
            if start + 4 + length > len(data):
                break
            yield data[start + 4 : start + 4 + length]
            start += 4 + length
        self._rest = data[start:]


class Channel(asyncio.Protocol, Generic[M]):
    """One end of the socket: sends messages, and calls *on_message* with received ones."""

    def __init__(self, decode: Callable[[bytes], M], on_message: Callable[[M], None]) -> None:
        self._decode = decode
        self._on_message = on_message
        self._frames = Frames()
        self._transport: asyncio.Transport | None = None
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once the other process has closed the socket, or has sent a malformed message."""

    async def open(self, sock: socket.socket) -> None:
        """Send and receive over *sock* from now on."""
        sock.setblocking(False)
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=sock)

    def send(self, message: Down | Up) -> None:
        """Send *message*, unless the socket is closed."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(encode(message))

    def close(self) -> None:
        """Close the socket."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Decode complete messages and pass them on."""
        try:
            for body in self._frames.feed(data):
                self._on_message(self._decode(body))
        except (ValueError, msgspec.DecodeError):
            log.exception("received a malformed message from another process of this gateway")
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Complete :attr:`closed`."""
        if not self.closed.done():
            self.closed.set_result(None)
