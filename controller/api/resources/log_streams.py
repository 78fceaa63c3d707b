"""Logs as server-sent events, of one rank or of several; each event's id names its position."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from controller.api.server_sent_events import KEEP_ALIVE_SECONDS, EventStream, encode_event
from controller.kube.errors import KubeError
from controller.logs.live import PodName
from controller.logs.reading import LogReader
from controller.logs.records import LEAST_PIECE, Counter, LogMark, Record, read_mark, records_of
from controller.logs.storage import StorageUnavailable
from controller.store.errors import StoreUnavailable

MOST_BLOCKS: Final = 4
"""The most blocks that wait for the reader, over all ranks."""
WRITE: Final = 16 << 10
"""The bytes that a stream encodes in its turn: some hundred lines, in 3 ms."""
PLACE: Final = r"[0-9a-f]{1,8}\.[0-9a-f]{1,8}\.[0-9a-f]{1,16}\.[0-9a-f]{1,8}"
"""The pattern of one position in an event's id."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogCursor:
    """A position in the log of one pod: the *ordinal*-th pod in the history of its rank."""

    rank: int
    ordinal: int
    mark: LogMark | None

    def text(self) -> str:
        """Return the position as part of an event's id."""
        return f"{self.rank:x}.{self.ordinal:x}.{self.mark.text() if self.mark else ''}"


def read_places(raw: str, *, most: int) -> list[LogCursor]:
    """Return the positions that an event's id names; none for an empty id.

    Raises:
        ValueError: If *raw* is not the id of one of this module's events.
    """
    places = []
    for part in raw.split("_") if raw else []:
        rank, ordinal, mark = part.split(".", 2)
        places.append(LogCursor(_number(rank), _number(ordinal), read_mark(mark)))
    if len(places) > most:
        raise ValueError("too many positions")
    return places


def _number(text: str) -> int:
    if not 1 <= len(text) <= 8 or not set(text) <= set("0123456789abcdef"):
        raise ValueError("not a number")
    return int(text, 16)


@dataclass(frozen=True, slots=True)
class SelectedLog:
    """A pod whose log is sent, and the position to start from."""

    pod: PodName
    place: LogCursor


_Block: TypeAlias = bytes | frozenset[str] | Exception | None


class LogStream:
    """Sends the logs of pods while they are written.

    Backpressure: at most :data:`MOST_BLOCKS` blocks wait for the reader, and no more is read.

    Args:
        chosen: The pods, each with its position.
        tail: Where a log has no position: begin with this many last lines; None: with the first.
        named: Whether each event names its rank.
    """

    def __init__(
        self, reader: LogReader, chosen: Sequence[SelectedLog], *, tail: int | None, named: bool
    ) -> None:
        self._reader = reader
        self._chosen = {one.place.rank: one for one in chosen}
        self._tail = tail
        self._named = named
        self._blocks = asyncio.Queue[tuple[int, _Block]](MOST_BLOCKS)
        self._first: tuple[int, _Block] | None = None
        self._counters = {one.place.rank: Counter(one.place.mark) for one in chosen}
        self._exact = {rank for rank, one in self._chosen.items() if one.place.mark or tail is None}

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Run the readers as long as the context lasts."""
        tasks = [asyncio.create_task(self._read(one)) for one in self._chosen.values()]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def refused(self) -> Exception | None:
        """Return the error of the only log if it fails at once, else None."""
        if len(self._chosen) > 1:
            return None
        try:
            async with asyncio.timeout(KEEP_ALIVE_SECONDS / 3):
                self._first = await self._blocks.get()
        except TimeoutError:
            return None  # the program writes nothing yet
        error = self._first[1]
        return error if isinstance(error, Exception) else None

    async def _read(self, one: SelectedLog) -> None:
        rank = one.place.rank
        tail = self._tail if one.place.mark is None else None
        try:
            blocks = self._reader.records(one.pod, one.place.mark, tail=tail)
            async with aclosing(blocks):
                async for block in blocks:
                    await self._blocks.put((rank, block))
        except (KubeError, StorageUnavailable, StoreUnavailable) as error:
            await self._blocks.put((rank, error))
        except Exception as error:  # the boundary of a task: its reader would wait for ever
            log.exception("cannot read a log", extra={"rank": rank})
            await self._blocks.put((rank, error))
        else:
            await self._blocks.put((rank, None))

    async def send(self, stream: EventStream) -> None:
        """Send events until all logs have ended."""
        left = len(self._chosen)
        while left:
            rank, block = await self._next(stream)
            match block:
                case bytes():
                    await self._send_block(stream, rank, block)
                case frozenset():
                    said = {"why": sorted(block)}
                    await stream.write(encode_event("truncated", self._of(rank, said)))
                case None:
                    left -= 1
                case _:
                    text = {"message": "the log cannot be read to its end"}
                    await stream.event("broken", self._of(rank, text))
                    left -= 1
                    if not left:
                        return
        await stream.event("end", {})

    async def _next(self, stream: EventStream) -> tuple[int, _Block]:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        while True:
            try:
                async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                    return await self._blocks.get()
            except TimeoutError:
                await stream.keep_alive()

    async def _send_block(self, stream: EventStream, rank: int, block: bytes) -> None:
        records = records_of(block)
        while True:
            shown = bytearray()
            async with stream.turn():
                for record in records:
                    shown += self._event(rank, record)
                    if len(shown) >= WRITE:
                        break
            if not shown:
                return
            await stream.write(bytes(shown))

    def _event(self, rank: int, record: Record) -> bytes:
        text = record.text.decode(errors="replace")
        is_piece = not record.ends and len(record.text) >= LEAST_PIECE
        return encode_event(
            "piece" if is_piece else "line",
            {"rank": rank, "text": text} if self._named else text,
            place=self._place_behind(rank, record),
        )

    def _place_behind(self, rank: int, record: Record) -> str | None:
        """Return the event id of *record*; None if it would not be exact.

        In the tail of a log, earlier lines with the first line's time may be missing.
        """
        counter = self._counters[rank]
        if record.at is not None:
            before = counter.mark
            same = before is not None and before.at == record.at
            counter.mark = LogMark(record.at, before.count + 1 if before and same else 1)
            if before is not None and not same:
                self._exact.add(rank)
        if rank not in self._exact or counter.mark is None:
            return None
        return "_".join(
            LogCursor(one, self._chosen[one].place.ordinal, at).text()
            for one, counted in self._counters.items()
            if one in self._exact and (at := counted.mark) is not None
        )

    def _of(self, rank: int, said: dict[str, Any]) -> dict[str, Any]:
        return {"rank": rank, **said} if self._named else said
