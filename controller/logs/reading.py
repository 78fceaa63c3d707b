"""Reads logs for the API: of existing pods, and of pods that are gone."""

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
"""How long a reader waits for the rest of a log that is still being stored."""

_MOST_RAW: Final = 16 * SEGMENT
"""The most records of a segment: a full one, and the block that filled it."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogText:
    """The text of a log in pieces, and the reasons why it is incomplete."""

    pieces: AsyncIterator[bytes]
    lost: frozenset[str]


@dataclass(slots=True, eq=False, repr=False)
class LogReader:
    """Reads each log from where it is complete.

    A log that is completely stored is read from the storage. Otherwise the pod is read, and if it
    is gone, the stored part.
    """

    store: Store
    """Lists what is stored."""
    logs: PodLogs
    storage: LogStorage | None
    """The storage; None without one."""

    @asynccontextmanager
    async def text(self, pod: PodName, *, tail: int | None = None) -> AsyncIterator[LogText]:
        """Open the current log of *pod*, or its last lines.

        Raises:
            NotFound: If the pod is gone, and its log is not stored.
            KubeError: If the log is only in the cluster, which does not return it.
            StorageUnavailable: If the log is only in the storage, which does not respond.
            StoreUnavailable: If the store does not respond.
        """
        async with AsyncExitStack() as stack:
            stored = await self._complete(pod)
            if stored is None:
                # With timestamps, which a kubelet's error message in place of a log lacks.
                live = self.logs.records(pod, None, follow=False, tail=tail)
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
        """Yield the records after *mark* in the log of *pod*, until it has ended.

        The reasons for lost parts are yielded too, as a set.

        Raises:
            As :meth:`text`.
        """
        counter = Counter(mark)
        stored = await self._complete(pod)
        if stored is None:
            live = self.logs.records(pod, mark, follow=True, tail=tail, again=False)
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
        if self.storage is None:
            return None
        async with self.store.read() as transaction:
            return await find_log(transaction, pod.job_id, pod.uid)

    async def _complete(self, pod: PodName) -> StoredLog | None:
        found = await self._find(pod)
        return found if found and found.state == "whole" and not found.lost else None

    async def _left_of(self, pod: PodName, error: KubeError) -> StoredLog:
        """Return what is stored of a log that the cluster does not return.

        Raises:
            KubeError: If nothing is stored.
        """
        found = await self._find(pod)
        for _ in range(MOST_LOOKS):
            if found is None or found.state == "whole":
                break
            await asyncio.sleep(LOOK_SECONDS)
            found = await self._find(pod)
        if found is None:
            raise error
        # A log that is still incomplete waits for the storage.
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
        if self.storage is None:
            return b""
        try:
            content = await self.storage.get(segment.name)
            return await asyncio.to_thread(_unpacked, content)
        except Missing:
            return b""  # removed by others, or meanwhile with its job
        except zlib.error:
            log.warning("skipping a damaged part of a log", extra={"segment": segment.name})
            return b""


def _last(segments: Sequence[Segment], lines: int) -> tuple[list[Segment], int]:
    """Return the segments with the last *lines*, and the number of lines to skip in them."""
    chosen: list[Segment] = []
    found = 0
    for segment in reversed(segments):
        if found >= lines:
            break
        chosen.insert(0, segment)
        found += segment.lines
    return chosen, max(0, found - lines)


def _without(block: bytes, lines: int) -> tuple[bytes, int]:
    """Return *block* without its first *lines*, and how many lines remain to be skipped."""
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
    """Return the log in *blocks* once its first piece has arrived.

    So an error is known before a response begins, and has its own status.
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
