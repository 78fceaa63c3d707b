"""Stores one pod's log: split into segments, in bounded memory and time; only its tail is kept."""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from controller.logs.records import LEAST_PIECE, Counter, LogMark, records_of, text_of
from controller.logs.storage import LogStorage, StorageUnavailable
from controller.store.errors import StoreUnavailable
from controller.store.jobs.stored_logs import Lost, Segment, StoredLog

MOST_TEXT: Final = 10 << 20
"""The maximum length of a log; only the tail of a longer log is kept."""
MOST_RAW: Final = 4 * MOST_TEXT
"""The bound with the lines' timestamps, which are longer than the text of short lines."""
SEGMENT: Final = 256 << 10
"""Bytes of records in a segment, and so in memory for each followed log."""

MOST_WAITING: Final = 64 << 20
"""Compressed bytes of all logs that wait for the storage."""

FIRST_PAUSE_SECONDS: Final = 0.2
LONGEST_PAUSE_SECONDS: Final = 15.0
GIVE_UP_SECONDS: Final = 600.0
"""The unstored part of a log is dropped this time after its end."""

log = logging.getLogger(__name__)

Commit = Callable[[StoredLog], Awaitable[None]]


class Waiting:
    """Counts the bytes of all logs that wait for the storage, and keeps the reason."""

    def __init__(self) -> None:
        self._bytes = 0
        self.why = ""
        """Why the last write to the storage failed; empty if it succeeded."""

    def change(self, size: int) -> None:
        """Add *size* bytes, which may be negative."""
        self._bytes += size

    @property
    def too_much(self) -> bool:
        """Whether the bound is exceeded."""
        return self._bytes > MOST_WAITING


@dataclass(frozen=True, slots=True)
class _Unstored:
    segment: Segment
    content: bytes


class LogWriter:
    """Stores a log, as its only writer; raises LeadershipLost once another controller leads.

    Args:
        stored: The stored part of the log, which is continued.
        commit: Lists segments in the store; fenced, so that it fails once another leader exists.
        prefix: The prefix of this writer's segment names, unique for this log.
        waiting: Counts the bytes that all writers hold.
        clock: Seconds that only grow.
    """

    def __init__(
        self,
        stored: StoredLog,
        *,
        storage: LogStorage,
        commit: Commit,
        prefix: str,
        waiting: Waiting,
        clock: Callable[[], float],
    ) -> None:
        self._log = stored
        self._storage = storage
        self._commit = commit
        self._prefix = prefix
        self._waiting = waiting
        self._clock = clock
        last = stored.segments[-1] if stored.segments else None
        self._counter = Counter(LogMark(last.at, last.count) if last and last.at else None)
        self._number = 0
        self._records = bytearray()
        self._partial: Segment | None = None
        self._over: list[str] = []
        self._flushed = 0
        self._unstored: list[_Unstored] = []
        self._pause = 0.0
        self._again_at = 0.0
        self._lock = asyncio.Lock()

    @property
    def mark(self) -> LogMark | None:
        """The position after the last added record."""
        return self._counter.mark

    async def add(self, block: bytes) -> None:
        """Add records; full segments are stored."""
        async with self._lock:
            self._counter.see(block)
            self._records += block
            if len(self._records) >= SEGMENT:
                await self._seal()
                await self._store()

    async def flush(self) -> None:
        """Store all added records, so that the next leader can continue after them."""
        async with self._lock:
            await self._store()
            size = len(self._records)
            if size > self._flushed and not self._unstored and self._clock() >= self._again_at:
                one = await self._make_segment(bytes(self._records))
                await self._try(self._store_partial(one, size))

    async def close(self, *lost: Lost) -> None:
        """Store the rest and mark the log as complete; *lost* are reasons for missing parts.

        Returns after ten minutes at most, whatever the storage does.
        """
        until = self._clock() + GIVE_UP_SECONDS
        if self._records:
            await self._seal()
        self._log = replace(self._log, lost=self._log.lost | set(lost))
        while self._unstored and self._clock() < until:
            await self._store()
            if self._unstored:
                await asyncio.sleep(max(0.0, self._again_at - self._clock()))
        while self._unstored:
            self._give_up_oldest()
        await self._end(until)

    def drop(self) -> None:
        """Release all memory, because this process does not lead any more."""
        while self._unstored:
            self._waiting.change(-len(self._unstored.pop().content))

    async def _end(self, until: float) -> None:
        while True:
            try:
                await self._commit(replace(self._log, state="whole"))
            except StoreUnavailable as error:
                if self._clock() >= until:
                    log.warning("cannot mark a log as complete", extra=self._about(error))
                    return
                await asyncio.sleep(1.0)
            else:
                await self._remove_over()
                return

    async def _seal(self) -> None:
        records = bytes(self._records)
        self._records.clear()
        self._flushed = 0
        one = await self._make_segment(records)
        self._unstored.append(one)
        self._waiting.change(len(one.content))
        self._trim()

    async def _make_segment(self, records: bytes) -> _Unstored:
        text, lines, content = await asyncio.to_thread(_packed, records)
        name = f"{self._log.key}/{self._prefix}-{self._number}"
        self._number += 1
        at, count = (self.mark.at, self.mark.count) if self.mark else (0, 0)
        segment = Segment(
            name=name,
            text=text,
            raw=len(records),
            lines=lines,
            at=at,
            count=count,
        )
        return _Unstored(segment, content)

    def _trim(self) -> None:
        """Drop the oldest segments beyond the bounds of a log or of this process."""
        while len(self._all()) > 1 and self._is_too_long():
            if first := self._log.segments[:1]:
                self._over.append(first[0].name)
                self._log = replace(self._log, segments=self._log.segments[1:])
            else:
                self._waiting.change(-len(self._unstored.pop(0).content))
            self._log = replace(self._log, lost=self._log.lost | {"size"})
        while self._waiting.too_much and self._unstored:
            self._give_up_oldest()

    def _all(self) -> list[Segment]:
        stored = self._log.segments
        if self._unstored:  # the partial segment is part of the first unstored one
            stored = tuple(one for one in stored if one != self._partial)
        return [*stored, *(one.segment for one in self._unstored)]

    def _is_too_long(self) -> bool:
        every = self._all()
        texts, raws = sum(one.text for one in every), sum(one.raw for one in every)
        return texts > MOST_TEXT or raws > MOST_RAW

    def _give_up_oldest(self) -> None:
        self._waiting.change(-len(self._unstored.pop(0).content))
        self._log = replace(self._log, lost=self._log.lost | {"store_away"})
        self._partial = None  # it is all that is left of that segment

    async def _store(self) -> None:
        """Store sealed segments, unless the storage has just failed."""
        while self._unstored and self._clock() >= self._again_at:
            if not await self._try(self._store_first()):
                return

    async def _try(self, work: Awaitable[None]) -> bool:
        try:
            await work
        except (StorageUnavailable, StoreUnavailable) as error:
            if isinstance(error, StorageUnavailable):
                self._waiting.why = str(error)
            self._pause = min(max(2 * self._pause, FIRST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)
            self._again_at = self._clock() + self._pause
            log.warning("cannot store a log now", extra=self._about(error))
            return False
        self._pause, self._waiting.why = 0.0, ""
        return True

    def _about(self, error: Exception) -> dict[str, str]:
        return {"job": self._log.job_id, "pod": self._log.pod_uid, "why": str(error)}

    async def _store_first(self) -> None:
        first = self._unstored[0]
        await self._storage.put(first.segment.name, first.content)
        await self._list(first.segment, partial=False)
        self._unstored.pop(0)
        self._waiting.change(-len(first.content))

    async def _store_partial(self, one: _Unstored, size: int) -> None:
        await self._storage.put(one.segment.name, one.content)
        await self._list(one.segment, partial=True)
        self._flushed = size

    async def _list(self, segment: Segment, *, partial: bool) -> None:
        """List a segment in the store, instead of its partial version."""
        before = self._log.segments
        kept = tuple(one for one in before if one != self._partial)
        listed = replace(self._log, segments=(*kept, segment))
        await self._commit(listed)
        self._log = listed
        if self._partial in before:
            self._over.append(self._partial.name)
        self._partial = segment if partial else None
        await self._remove_over()

    async def _remove_over(self) -> None:
        """Remove objects that are not listed any more. A failure leaves them until the log goes."""
        over, self._over = self._over, []
        with suppress(StorageUnavailable):
            for name in over:
                await self._storage.remove(name)


def _packed(records: bytes) -> tuple[int, int, bytes]:
    text = text_of(records)
    lines = text.count(b"\n") + _has_open_end(records)
    return len(text), lines, zlib.compress(records, 1)


def _has_open_end(records: bytes) -> bool:
    """Return whether the last record is a line without a line break, and not a piece of one."""
    begin = records.rfind(b"\n", 0, len(records) - 1) + 1
    return any(not one.ends and len(one.text) < LEAST_PIECE for one in records_of(records[begin:]))
