"""What supervisor and worker say to each other, and how it is framed: no I/O.

Each message is MessagePack after its length in four bytes. The socket between two processes of
one gateway is reliable and ordered; both run the same code, so there are no versions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import msgspec

from gateway.core.bus_state import Marks
from shared.events import Head
from shared.routes import Ended, Entry

_LENGTH: Final = struct.Struct("!I")
MOST_BYTES: Final = 1 << 30
"""A route can be as large as a value of Redis, 512 MB."""


class _Message(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    pass


# From the supervisor: the table


class Begins(_Message, frozen=True, tag="begins"):
    """Another table follows: built up from nothing when ``anew``, else from the one in use."""

    head: Head
    anew: bool


class Routes(_Message, frozen=True, tag="routes"):
    """A piece of it: what is held of each session; None where nothing is any more."""

    entries: tuple[tuple[str, Entry | None], ...]


class Revocations(_Message, frozen=True, tag="revocations"):
    """A piece of it: members of the revoked set with their scores."""

    members: dict[str, float]


class Ends(_Message, frozen=True, tag="ends"):
    """The table is whole, and has this hash."""

    hash: int


# From the supervisor: changes of the table, each the next event


class Put(_Message, frozen=True, tag="put"):
    """The session ``sid`` has another entry. ``at`` is when that was published."""

    seq: int
    at: float | None
    sid: str
    entry: Entry


class Drop(_Message, frozen=True, tag="drop"):
    """The session ``sid`` has ended; how, if that is known."""

    seq: int
    at: float | None
    sid: str
    ended: Ended | None = None


class Revoked(_Message, frozen=True, tag="revoked"):
    """Grants have ended: on ``sid``, or anywhere when it is None."""

    seq: int
    at: float | None
    sid: str | None
    member: str
    score: float


class Passed(_Message, frozen=True, tag="passed"):
    """An event that changes nothing here."""

    seq: int
    at: float | None


# From the supervisor: the rest


class Bus(_Message, frozen=True, tag="bus"):
    """What is known of the bus' state, now that the worker has all of the above."""

    marks: Marks


class Look(_Message, frozen=True, tag="look"):
    """Asks how the worker stands, and tells where its table should by now (None: there is none)."""

    number: int
    epoch: str | None
    seq: int
    hash: int


class Measure(_Message, frozen=True, tag="measure"):
    """Asks for what the worker has counted."""

    number: int


class Repaired(_Message, frozen=True, tag="repaired"):
    """Answers :class:`Repair`: all that it led to was sent before."""

    number: int


class Accept(_Message, frozen=True, tag="accept"):
    """The worker has what the supervisor has, and may take connections."""


class Drain(_Message, frozen=True, tag="drain"):
    """Take no further connections, end what is open in time, and exit."""


Down: TypeAlias = (
    Begins
    | Routes
    | Revocations
    | Ends
    | Put
    | Drop
    | Revoked
    | Passed
    | Bus
    | Look
    | Measure
    | Repaired
    | Accept
    | Drain
)

# From the worker


class Standing(_Message, frozen=True, tag="standing"):
    """Answers :class:`Look`."""

    number: int
    epoch: str | None
    seq: int
    hash: int
    lag_seconds: float
    open: int
    accepting: bool
    reasons: tuple[str, ...]


class Strayed(_Message, frozen=True, tag="strayed"):
    """The worker's table is not what it should be: it asks for the whole one."""


class SignOut(_Message, frozen=True, tag="sign-out"):
    """A user has ended the grants of one token, at all workers."""

    sid: str
    jti: str


class Repair(_Message, frozen=True, tag="repair"):
    """Asks for a look at the bus on behalf of a request that waits for so many seconds."""

    number: int
    seconds: float


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


class Measured(_Message, frozen=True, tag="measured"):
    """Answers :class:`Measure`."""

    number: int
    families: tuple[Family, ...]


Up: TypeAlias = Standing | Strayed | SignOut | Repair | Measured

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
