"""Reads logs for the API: of pods that are there, and of pods that are gone."""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from controller.kube.errors import KubeError, NotFound
from controller.logs.live import PodLogs, PodName
from controller.logs.records import Counter, LogMark, Resumer, records_of, text_of
from controller.logs.storage import LogStorage, Missing
from controller.logs.writer import SEGMENT
from controller.store.database import Store
from controller.store.jobs.stored_logs import Segment, StoredLog, ended, find_log

LOOK_SECONDS: Final = 0.25
MOST_LOOKS: Final = 40
"""So long is waited for the rest of a log whose pod is gone: it is being stored."""

_MOST_RAW: Final = 16 * SEGMENT
"""Of a segment; one is as long as a full one and the block that made it so."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogText:
    """A log, a piece after the other, and why it is not all of it."""

    pieces: AsyncIterator[bytes]
    lost: frozenset[str]


class LogReader:
    """Reads logs, each from where all of it is.

    A log that is stored whole is read there. Else the pod is asked, and if it is gone, what is
    stored is what there is.

    Args:
        store: Knows what is stored.
        logs: The cluster's.
        storage: Where logs are kept; None where none is.
    """

    def __init__(self, store: Store, logs: PodLogs, storage: LogStorage | None) -> None:
        self._store = store
        self._logs = logs
        self._storage = storage

    @asynccontextmanager
    async def text(self, pod: PodName, *, tail: int | None = None) -> AsyncIterator[LogText]:
        """Give the log of *pod* as it is now, or its last lines.

        Raises:
            NotFound: If its pod is gone, and its log with it.
            KubeError: If it is in the cluster alone, which does not give it.
            StorageUnavailable: If it is in the storage alone, which cannot be asked.
            StoreUnavailable: If the store cannot be asked.
        """
        async with AsyncExitStack() as stack:
            stored = await self._complete(pod)
            if stored is None:
                # With times, which what a kubelet says in place of a log does not have.
                live = self._logs.records(pod, None, follow=False, tail=tail)
                try:
                    pieces = await _begun(live, stack)
                except KubeError as error:
                    stored = await self._left_of(pod, error)
                else:
                    yield LogText(pieces, frozenset())
                    return
            blocks = self._stored_records(stored, None, tail=tail)
            yield LogText(await _begun(blocks, stack), frozenset(stored.lost))

    async def records(
        self, pod: PodName, mark: LogMark | None, *, tail: int | None = None
    ) -> AsyncGenerator[bytes | frozenset[str], None]:
        """Yield what comes behind *mark* in the log of *pod*, until that has ended.

        What is lost of it is yielded too, as a set of reasons.

        Raises:
            As :meth:`text`.
        """
        counter = Counter(mark)
        stored = await self._complete(pod)
        if stored is None:
            live = self._logs.records(pod, mark, follow=True, tail=tail, again=False)
            try:
                async with aclosing(live):
                    async for block in live:
                        tail = None
                        counter.see(block)
                        yield block
            except NotFound as error:
                stored = await self._left_of(pod, error)
            else:
                return
        if stored.lost and counter.mark is None:
            yield frozenset(stored.lost)
        rest = self._stored_records(stored, counter.mark, tail=tail)
        async with aclosing(rest):
            async for block in rest:
                yield block

    async def _find(self, pod: PodName) -> StoredLog | None:
        if self._storage is None:
            return None
        async with self._store.read() as transaction:
            return await find_log(transaction, pod.job_id, pod.uid)

    async def _complete(self, pod: PodName) -> StoredLog | None:
        found = await self._find(pod)
        return found if found and found.state == "whole" and not found.lost else None

    async def _left_of(self, pod: PodName, error: KubeError) -> StoredLog:
        """Return what is stored of a log that the cluster does not give.

        Raises:
            KubeError: If nothing is.
        """
        found = await self._find(pod)
        for _ in range(MOST_LOOKS):
            if found is None or found.state == "whole":
                break
            await asyncio.sleep(LOOK_SECONDS)
            found = await self._find(pod)
        if found is None:
            raise error
        # One that is still not whole waits for the storage, which does not take it.
        return found if found.state == "whole" else ended(found, "store_away")

    async def _stored_records(
        self, stored: StoredLog, mark: LogMark | None, *, tail: int | None
    ) -> AsyncGenerator[bytes, None]:
        segments = list(stored.segments)
        if mark is not None:
            before = next((i for i, one in enumerate(segments) if one.at >= mark.at), len(segments))
            segments = segments[before:]
        skip = 0
        if tail is not None:
            segments, skip = _last(segments, tail)
        resumer = Resumer(mark)
        for segment in segments:
            block = resumer.pass_on(await self._records_in(segment))
            block, skip = _without(block, skip)
            if block:
                yield block

    async def _records_in(self, segment: Segment) -> bytes:
        if self._storage is None:
            return b""
        try:
            content = await self._storage.get(segment.name)
            return await asyncio.to_thread(_unpacked, content)
        except Missing:
            return b""  # removed by somebody else, or meanwhile with its job
        except zlib.error:
            log.warning("a part of a log is damaged and left out", extra={"segment": segment.name})
            return b""


def _last(segments: Sequence[Segment], lines: int) -> tuple[list[Segment], int]:
    """Return the segments that the last lines are in, and how many lines come before these."""
    chosen: list[Segment] = []
    found = 0
    for segment in reversed(segments):
        if found >= lines:
            break
        chosen.insert(0, segment)
        found += segment.lines
    return chosen, max(0, found - lines)


def _without(block: bytes, lines: int) -> tuple[bytes, int]:
    """Return *block* without so many of its first lines, and how many are left to leave out."""
    begin = 0
    while lines and begin < len(block):
        end = block.find(b"\n", begin) + 1 or len(block)
        lines -= sum(one.ends for one in records_of(block[begin:end]))
        begin = end
    return block[begin:], lines


def _unpacked(content: bytes) -> bytes:
    return zlib.decompressobj().decompress(content, _MOST_RAW)


async def _begun(
    blocks: AsyncGenerator[bytes, None], stack: AsyncExitStack
) -> AsyncIterator[bytes]:
    """Return the log that *blocks* are, once its first piece has come.

    Before a response begins: that it cannot be read has a status of its own.
    """
    pieces = await stack.enter_async_context(aclosing(_texts(blocks)))
    return _with_first(await anext(pieces, b""), pieces)


async def _texts(blocks: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(blocks):
        async for block in blocks:
            yield text_of(block)


async def _with_first(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in rest:
        yield piece
