"""The supervisor's side of the feeds: what the follower learns, sent on to each worker.

:class:`Broadcast` takes what the follower says and keeps it in the journal. A :class:`Feeding` is
one worker's socket: it sends what the worker lacks, waits while the worker does not read, and
takes what comes back.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final, TypeVar, assert_never

import msgspec

from gateway.bus.feed import Feed
from gateway.core.bus_state import BusClock
from gateway.workers import messages as m
from gateway.workers.journal import Journal
from shared.events import (
    Event,
    GrantRevoked,
    Head,
    Heartbeat,
    RouteRemoved,
    RouteUpserted,
    UnknownEvent,
)
from shared.routes import Entry, RouteTable

_ROUTES_AT_ONCE: Final = 100
"""In one message: read and held by the worker in about a millisecond."""
_REVOCATIONS_AT_ONCE: Final = 1000
_BUFFER_BYTES: Final = 1 << 16
_PIECE_BYTES: Final = 1 << 18
_READ_BYTES: Final = 1 << 16

T = TypeVar("T")

log = logging.getLogger(__name__)


class ToldClock(BusClock):
    """A clock that says when it has learned something."""

    def __init__(self, *, bus_grace_seconds: float, controller_grace_seconds: float) -> None:
        super().__init__(
            bus_grace_seconds=bus_grace_seconds, controller_grace_seconds=controller_grace_seconds
        )
        self.tell: Callable[[], None] = lambda: None

    def good(self, at: float) -> None:
        """Pass it on."""
        super().good(at)
        self.tell()

    def heard(self, at: float) -> None:
        """Pass it on."""
        super().heard(at)
        self.tell()

    def attested(self, at: float) -> None:
        """Pass it on."""
        super().attested(at)
        self.tell()

    def looked(self, at: float) -> None:
        """Pass it on."""
        super().looked(at)
        self.tell()

    def subscribed(self, at: float) -> None:
        """Pass it on."""
        super().subscribed(at)
        self.tell()

    def unsubscribed(self, at: float) -> None:
        """Pass it on."""
        super().unsubscribed(at)
        self.tell()


class Broadcast:
    """What the workers are to know; give it to the follower as ``on_change`` and ``on_event``.

    Args:
        clock: The follower's.
        table: Returns the follower's table.
    """

    def __init__(self, clock: ToldClock, *, table: Callable[[], RouteTable | None]) -> None:
        self.journal = Journal()
        self.clock = clock
        self._current = table
        self.table: RouteTable | None = None
        """The follower's; it and the journal's end are one state."""
        self.replaced: RouteTable | None = None
        """The table before, which a worker may still hold."""
        self.feedings: set[Feeding] = set()
        clock.tell = self.wake

    def on_event(self, event: Event) -> None:
        """Keep what *event* has changed."""
        table = self.table
        if table is None:
            return
        message = _change(event, table)
        if message is not None:
            self.journal.append(m.encode(message))

    def on_change(self, _sids: Iterable[str] | None) -> None:
        """Notice another table, and send on what is new."""
        table = self._current()
        if table is not self.table:
            self.table, self.replaced = table, self.table
            self.journal.cut()
        self.wake()

    def forget_replaced(self) -> None:
        """Let the table before go, once no worker holds it any more: it may be large."""
        if not any(feeding.holds is self.replaced for feeding in self.feedings):
            self.replaced = None

    def wake(self) -> None:
        """Have every worker sent what it lacks."""
        for feeding in self.feedings:
            feeding.wake()


def _change(event: Event, table: RouteTable) -> m.Down | None:
    at = None if isinstance(event, UnknownEvent) or event.at is None else event.at.timestamp()
    match event:
        case RouteUpserted(seq=seq, sid=sid):
            entry = table.entry(sid)
            return m.Put(seq, at, sid, entry) if entry is not None else m.Drop(seq, at, sid)
        case RouteRemoved(seq=seq, sid=sid):
            return m.Drop(seq, at, sid, table.ended.get(sid))
        case GrantRevoked(seq=seq, sid=sid):
            entry_of = event.revocation()
            return m.Revoked(seq, at, sid, entry_of.member, entry_of.score)
        case UnknownEvent(seq=seq):
            return m.Passed(seq, at)
        case Heartbeat():
            return None
        case _:
            assert_never(event)


class Feeding:
    """One worker's socket, at the supervisor.

    Args:
        broadcast: What there is to send.
        feed: Repairs the table when the worker asks for it.
        on_standing: Called with what the worker says of itself.
        on_measured: Called with what it has counted.
    """

    def __init__(
        self,
        broadcast: Broadcast,
        feed: Feed,
        *,
        on_standing: Callable[[m.Standing], None],
        on_measured: Callable[[m.Measured], None],
    ) -> None:
        self._broadcast = broadcast
        self._feed = feed
        self._on_standing = on_standing
        self._on_measured = on_measured
        self._position = -1
        self.holds: RouteTable | None = None
        """The table that the worker has whole, but for what the journal holds."""
        self._accepts = False
        self._sent_marks: object = None
        self._look: int | None = None
        self._measure: int | None = None
        self._outbox: deque[m.Down] = deque()
        self._wake = asyncio.Event()
        self._frames = m.Frames()
        self.moved = 0
        """Rises when the worker has said something, or has read so that we could go on."""

    def wake(self) -> None:
        """Send what the worker lacks."""
        self._wake.set()

    def look(self, number: int) -> None:
        """Ask how the worker stands, once it has been sent all."""
        self._look = number
        self.wake()

    def measure(self, number: int) -> None:
        """Ask for what the worker has counted."""
        self._measure = number
        self.wake()

    def drain(self) -> None:
        """Tell the worker to end in time."""
        self._outbox.append(m.Drain())
        self.wake()

    async def run(self, sock: socket.socket) -> None:
        """Feed the worker until its end of *sock* is closed."""
        reader, writer = await asyncio.open_unix_connection(sock=sock)
        writer.transport.set_write_buffer_limits(high=_BUFFER_BYTES)
        self._broadcast.feedings.add(self)
        try:
            async with asyncio.TaskGroup() as tasks:
                writing = tasks.create_task(self._write(writer))
                await self._read(reader, tasks)
                writing.cancel()
        finally:
            self._broadcast.feedings.discard(self)
            writer.transport.abort()

    # Towards the worker

    async def _write(self, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                self._wake.clear()
                if not await self._send_changes(writer):
                    await self._send_table(writer)
                elif not await self._send_rest(writer):
                    await self._wake.wait()
        except OSError:
            return  # the reading side sees the end, too

    async def _put(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        writer.write(data)
        # What the kernel takes at once says nothing: it does so for a worker that stands still.
        held_up = writer.transport.get_write_buffer_size() > _BUFFER_BYTES
        await writer.drain()
        if held_up:
            self.moved += 1

    async def _send_changes(self, writer: asyncio.StreamWriter) -> bool:
        """Send what the journal has; return False when it reaches not far enough back."""
        while frames := self._broadcast.journal.since(self._position):
            self._position += len(frames)
            await self._put(writer, b"".join(frames))
        return frames is not None

    async def _send_rest(self, writer: asyncio.StreamWriter) -> bool:
        """Send what holds only now that all changes were sent; return whether there was any."""
        rest: list[m.Down] = []
        marks = self._broadcast.clock.marks
        if marks != self._sent_marks:
            self._sent_marks = marks
            rest.append(m.Bus(marks))
        if not self._accepts:
            self._accepts = True
            rest.append(m.Accept())
        rest += self._outbox
        self._outbox.clear()
        if self._measure is not None:
            rest.append(m.Measure(self._measure))
            self._measure = None
        if self._look is not None:
            rest.append(_look(self._look, self._broadcast.table))
            self._look = None
        if rest:
            await self._put(writer, b"".join(map(m.encode, rest)))
        return bool(rest)

    async def _send_table(self, writer: asyncio.StreamWriter) -> None:
        """Send the table, or what differs from the one that the worker is known to hold."""
        broadcast = self._broadcast
        table, journal = broadcast.table, broadcast.journal
        complete = self._position == journal.before_cut and self.holds is broadcast.replaced
        base = self.holds if complete else None
        self._position, self.holds = journal.end, None
        broadcast.forget_replaced()
        if table is None:
            return
        for message in _pieces(table, base):
            await self._put(writer, m.encode(message))
            # What changed meanwhile is not made to wait: a revocation may be among it.
            if not await self._send_changes(writer) or broadcast.table is not table:
                return
            await asyncio.sleep(0)
        if not await self._send_changes(writer) or broadcast.table is not table:
            return
        # No wait stands between the last changes and this: the hash is that of their end.
        self.holds = table
        await self._put(writer, m.encode(m.Ends(table.hash)))

    # From the worker

    async def _read(self, reader: asyncio.StreamReader, tasks: asyncio.TaskGroup) -> None:
        repairs: set[asyncio.Task[None]] = set()
        try:
            while data := await reader.read(_READ_BYTES):
                self.moved += 1
                for body in self._frames.feed(data):
                    message = m.decode_up(body)
                    if isinstance(message, m.Repair):
                        task = tasks.create_task(self._repair(message))
                        repairs.add(task)
                        task.add_done_callback(repairs.discard)
                    else:
                        self._take(message)
        except OSError:
            pass
        except (ValueError, msgspec.DecodeError):
            log.exception("a worker said what nobody understands")
        finally:
            for task in repairs:
                task.cancel()

    def _take(self, message: m.Standing | m.Strayed | m.SignOut | m.Measured) -> None:
        match message:
            case m.Standing():
                self._on_standing(message)
            case m.Measured():
                self._on_measured(message)
            case m.SignOut(sid=sid, jti=jti):
                self._feed.end_grant(sid, jti)
            case m.Strayed():
                self._position, self.holds = -1, None
                self.wake()
            case _:
                assert_never(message)

    async def _repair(self, asked: m.Repair) -> None:
        await self._feed.repair(asked.seconds)
        self._outbox.append(m.Repaired(asked.number))
        self.wake()


def _look(number: int, table: RouteTable | None) -> m.Look:
    if table is None:
        return m.Look(number, None, 0, 0)
    return m.Look(number, table.epoch, table.seq, table.hash)


def _pieces(table: RouteTable, base: RouteTable | None) -> Iterator[m.Down]:
    """Yield what makes *table* of *base*, or of nothing, as it is when each piece is taken."""
    head = Head(
        epoch=table.epoch,
        seq=table.seq,
        term=0,
        routes=len(table),
        revoked=len(table.revocations),
        since=table.since,
    )
    yield m.Begins(head, base is None)
    for members in _cut(list(table.revocations.items()), _REVOCATIONS_AT_ONCE):
        yield m.Revocations(dict(members))
    for sids in _cut(list(table), _ROUTES_AT_ONCE):
        yield from map(m.Routes, _small(_differing(sids, table, base)))
    for sids in _cut(list(base or ()), _ROUTES_AT_ONCE):
        gone = tuple((sid, None) for sid in sids if sid not in table)
        if gone:
            yield m.Routes(gone)


def _differing(
    sids: Iterable[str], table: RouteTable, base: RouteTable | None
) -> Iterator[tuple[str, Entry]]:
    for sid in sids:
        entry = table.entry(sid)
        if entry is None:
            continue  # it ended while the table was being sent: that is among the changes
        known = None if base is None else base.entry(sid)
        # The digest is that of what was received, and so says all but whether it could be read.
        if known is None or (known.digest, known.problem) != (entry.digest, entry.problem):
            yield sid, entry


def _small(
    entries: Iterable[tuple[str, Entry]],
) -> Iterator[tuple[tuple[str, Entry | None], ...]]:
    """Yield *entries* in pieces that stay small, also when single ones are not."""
    piece: list[tuple[str, Entry | None]] = []
    size = 0
    for sid, entry in entries:
        piece.append((sid, entry))
        size += len(entry.problem or "")
        if entry.route is not None:  # what has no limit in a route
            size += len(entry.route.message or "") + len(entry.route.sealed or "")
        if size > _PIECE_BYTES:
            yield tuple(piece)
            piece, size = [], 0
    if piece:
        yield tuple(piece)


def _cut(items: list[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while piece := list(islice(iterator, size)):
        yield piece
