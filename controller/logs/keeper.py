"""Stores the logs of pods, as the leader: reads ended pods, and follows those that may be deleted.

The reconciler calls it for each job. It never delays the reconciler, except for the few seconds
that an ended pod stays so that its log can be read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import Any, Final
from weakref import WeakValueDictionary

from controller.jobs.containment import Containment
from controller.jobs.history.pod_records import is_of
from controller.jobs.reconcile.observe import LogObserver
from controller.jobs.spec.accepted import may_restart
from controller.kube.errors import Forbidden, Invalid, KubeError, NotFound, Unavailable
from controller.logs.live import CALL_SECONDS, PodLogs, PodName
from controller.logs.storage import LogStorage, StorageUnavailable
from controller.logs.wanted import Why, why_wanted
from controller.logs.writer import GIVE_UP_SECONDS, LogWriter, Waiting
from controller.store.database import FencedStore
from controller.store.errors import StoreUnavailable
from controller.store.jobs.job_rows import JobRecord, find_jobs
from controller.store.jobs.progress import pod_records_of
from controller.store.jobs.stored_logs import (
    Lost,
    StoredLog,
    dropped_keys,
    ended,
    forget_log,
    logs_in,
    logs_of,
    open_log,
    write_log,
)
from controller.volcano.observed import ObservedPod

MOST_RESTARTABLE: Final = 128
MOST_ENDING: Final = 128
MOST_READ: Final = 32
"""Concurrently read logs. Others wait, except restartable pods: they are read at their end."""

REMOVAL_WAITS_SECONDS: Final = 10.0
"""The longest that the removal of an ended pod waits for its log."""

FLUSH_SECONDS: Final = 10.0
"""The most seconds of a followed log that are only in memory."""

LAST_WORDS_SECONDS: Final = 5.0
MOST_LAST_BYTES: Final = 2048
MOST_LAST_LINES: Final = 80
"""The part of a log in a pod's status (Kubernetes, "Determine the Reason for Pod Failure")."""

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 30.0
CLEAN_SECONDS: Final = 60.0
AT_ONCE: Final = 100

log = logging.getLogger(__name__)


class _Slots:
    """Bounds the concurrently read logs, and those of one node to half of them.

    Otherwise, a node that hangs or is cut off would block the logs of all others.
    """

    def __init__(self, most: int) -> None:
        self._all = asyncio.Semaphore(most)
        self._share = max(1, most // 2)
        self._of_nodes = WeakValueDictionary[str, asyncio.Semaphore]()

    @asynccontextmanager
    async def take(self, node: str) -> AsyncIterator[None]:
        """Wait for a slot, and hold it as long as the context lasts."""
        of_node = self._of_nodes.setdefault(node, asyncio.Semaphore(self._share))
        async with of_node, self._all:
            yield


@dataclass(slots=True, eq=False)
class _Kept:
    """A pod whose log is read."""

    pod: PodName
    over: bool
    node: str = ""
    finished: bool = False
    read_until: float | None = None
    last_words: str = ""
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def look_at(self, pod: ObservedPod, *, gone: bool) -> None:
        """Update the state of the pod; *gone*: this was its last state."""
        self.over = pod.is_over
        if pod.ended is not None:
            self.last_words = pod.ended.message
        if pod.is_over or gone:
            self.ended.set()


@dataclass(slots=True, eq=False, repr=False)
class LogKeeper(LogObserver):
    """Stores logs, as the leader of *term*."""

    store: FencedStore
    """Lists the segments of each log."""
    _: KW_ONLY
    logs: PodLogs
    storage: LogStorage
    shown: Callable[[], Iterable[ObservedPod]]
    """Returns the pods in the informer."""
    clock: Callable[[], float]
    """Unix seconds."""
    random: Callable[[int], bytes]
    done: Callable[[str], None]
    """Called with a job's id once one of its logs was read."""
    failed: InitVar[Callable[[Exception], None]]
    _contained: Containment = field(init=False)
    _tasks: asyncio.TaskGroup | None = None
    _kept: dict[str, dict[str, _Kept]] = field(default_factory=dict, init=False)
    _restartable: int = 0
    _slots: Any = field(
        default_factory=lambda: {
            "ending": _Slots(MOST_ENDING),
            "ended": _Slots(MOST_READ),
        },
        init=False,
    )
    _waiting: Waiting = field(default_factory=Waiting, init=False)
    _writers: int = 0

    def __post_init__(self, failed: Callable[[Exception], None]) -> None:
        self._contained = Containment("cannot store a log", failed)

    @property
    def problems(self) -> tuple[str, ...]:
        """Why logs cannot be stored now."""
        why = self._waiting.why
        return (f"logs are not stored: {why}",) if why else ()

    # For the reconciler: without waiting and without I/O

    def observe(
        self,
        record: JobRecord,
        pods: Sequence[ObservedPod],
        departed: Sequence[ObservedPod],
        written: Collection[str],
    ) -> float | None:
        """Begin to read the logs of the job's pods as needed; *written* are the recorded pods.

        Returns:
            Until when ended pods of the job must stay for their logs; None: they need not stay.
        """
        if self._tasks is None:
            return None
        kept = self._kept.setdefault(record.id, {})
        restarts = may_restart(record.spec)
        for pod, gone in [*((pod, False) for pod in pods), *((pod, True) for pod in departed)]:
            if pod.uid not in kept and pod.uid in written and is_of(pod, record.uid, written):
                why = why_wanted(record, pod, restarts=restarts)
                if why is not None and self._may_begin(why):
                    self._begin(pod, why)
            if pod.uid in kept:
                kept[pod.uid].look_at(pod, gone=gone)
        self._forget_but({pod.uid for pod in (*pods, *departed)}, record.id)
        return self._removal_waits_until(record)

    def _removal_waits_until(self, record: JobRecord) -> float | None:
        """Return until when ended pods must stay; those of a cancelled job need not."""
        unread = [
            one for one in self._kept.get(record.id, {}).values() if one.over and not one.finished
        ]
        if record.desired == "ended" or not unread:
            return None
        for one in unread:
            one.read_until = one.read_until or self.clock() + REMOVAL_WAITS_SECONDS
        return max(one.read_until or 0.0 for one in unread)

    def forget(self, job_id: str) -> None:
        """Forget the job, which is gone."""
        self._forget_but((), job_id)

    def _forget_but(self, present: Collection[str], job_id: str) -> None:
        kept = self._kept.get(job_id, {})
        for uid in [uid for uid, one in kept.items() if one.finished and uid not in present]:
            del kept[uid]
        if not kept:
            self._kept.pop(job_id, None)

    def _may_begin(self, why: Why) -> bool:
        return why != "restartable" or self._restartable < MOST_RESTARTABLE

    def _begin(self, pod: ObservedPod, why: Why) -> None:
        if self._tasks is None:
            return
        name = PodName(pod.namespace, pod.name, pod.uid, pod.job_id)
        one = _Kept(name, pod.is_over, pod.node)
        self._kept[pod.job_id][pod.uid] = one
        self._restartable += why == "restartable"
        self._tasks.create_task(self._keep(one, why, self._tasks))

    # The leader's task

    async def run(self) -> None:
        """Store logs until LeadershipLost."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                await self._until_resumed()
                await self._contained.repeat(self._clean, lambda: CLEAN_SECONDS)
            finally:
                self._tasks = None

    async def _until_resumed(self) -> None:
        while True:
            try:
                with self._contained.of("logs of the previous leader"):
                    await self._resume()
            except StoreUnavailable as error:
                log.warning("logs wait: the store is unavailable", extra={"why": str(error)})
                await asyncio.sleep(2.0)
            else:
                return

    async def _resume(self) -> None:
        """Continue the previous leader's logs, and close those that cannot be continued.

        The reconciler does not visit ended jobs, but their pods may still exist.
        """
        pods: dict[str, list[ObservedPod]] = {}
        for pod in self.shown():
            pods.setdefault(pod.job_id, []).append(pod)
        uids = {pod.uid for some in pods.values() for pod in some}
        async with self.store.read() as transaction:
            left = [one for one in await logs_in(transaction, "open") if one.pod_uid not in uids]
        for one in left:
            if one.pod_uid not in self._kept.get(one.job_id, {}):
                await self._commit(ended(one, "controller_away"))
        ids = list(pods)
        for start in range(0, len(ids), AT_ONCE):
            await self._observe_jobs(
                {job_id: pods[job_id] for job_id in ids[start : start + AT_ONCE]}
            )

    async def _observe_jobs(self, pods: Mapping[str, Sequence[ObservedPod]]) -> None:
        async with self.store.read() as transaction:
            records = await find_jobs(transaction, pods.keys())
            written = {
                job_id: {run.pod_uid for run in await pod_records_of(transaction, job_id)}
                for job_id in records
            }
            stored = {job_id: await logs_of(transaction, job_id) for job_id in records}
        for job_id, record in records.items():
            kept = self._kept.setdefault(job_id, {})
            for pod in pods[job_id]:
                known = stored[job_id].get(pod.uid)
                if known is not None and known.state == "whole" and pod.uid not in kept:
                    name = PodName(pod.namespace, pod.name, pod.uid, job_id)
                    kept[pod.uid] = _Kept(name, over=True, finished=True)
            self.observe(record, pods[job_id], (), written[job_id])

    async def _clean(self) -> None:
        """Remove the objects of logs whose jobs were deleted."""
        keys: Sequence[str] = ()
        with suppress(StorageUnavailable):
            while True:
                async with self.store.read() as transaction:
                    keys = await dropped_keys(transaction, limit=AT_ONCE)
                for key in keys:
                    await self.storage.remove_all(key)
                    async with self.store.write() as transaction:
                        await forget_log(transaction, key)
                if len(keys) < AT_ONCE:
                    return
        log.warning("cannot remove the logs of deleted jobs", extra={"logs": len(keys)})

    # One log

    async def _keep(self, one: _Kept, why: Why, tasks: asyncio.TaskGroup) -> None:
        try:
            with self._contained.of(f"pod {one.pod.uid}"):
                stored = await self._open(one)
                if stored is not None and stored.state == "open":
                    await self._store_log(one, why, self._make_writer(stored), tasks)
        except StoreUnavailable as error:
            about = {"job": one.pod.job_id, "pod": one.pod.name, "why": str(error)}
            log.warning("a log is not stored", extra=about)
        finally:
            one.finished = True
            self._restartable -= why == "restartable"
            self.done(one.pod.job_id)

    async def _open(self, one: _Kept) -> StoredLog | None:
        while True:
            try:
                async with self.store.write() as transaction:
                    return await open_log(
                        transaction,
                        one.pod.job_id,
                        one.pod.uid,
                        key=self.random(16).hex(),
                        now=self.clock(),
                    )
            except StoreUnavailable:
                await asyncio.sleep(1.0)

    def _make_writer(self, stored: StoredLog) -> LogWriter:
        self._writers += 1
        return LogWriter(
            stored,
            storage=self.storage,
            commit=self._commit,
            prefix=f"{self.store.term:x}{self._writers:08x}"[-16:],
            waiting=self._waiting,
            clock=self.clock,
        )

    async def _commit(self, stored: StoredLog) -> None:
        async with self.store.write() as transaction:
            await write_log(transaction, stored, now=self.clock())

    async def _store_log(
        self, one: _Kept, why: Why, writer: LogWriter, tasks: asyncio.TaskGroup
    ) -> None:
        flushing = None if why == "ended" else tasks.create_task(self._flush(writer))
        try:
            lost = await self._read(one, why, writer)
            if flushing is not None:
                flushing.cancel()
            await writer.close(*lost)
        finally:
            if flushing is not None:
                flushing.cancel()
            writer.drop()

    async def _read(self, one: _Kept, why: Why, writer: LogWriter) -> Sequence[Lost]:
        """Read the log to its end; return the reasons why parts of it are lost."""
        until, pause = self.clock() + GIVE_UP_SECONDS, FIRST_PAUSE_SECONDS
        while True:
            try:
                if why == "restartable":
                    await self._stream(one, writer, follow=True)
                else:
                    async with self._slots[why].take(one.node):
                        await self._stream(one, writer, follow=why == "ending")
            except (NotFound, Invalid):
                return await self._read_last_words(one, writer)
            except KubeError as error:
                about = {"job": one.pod.job_id, "pod": one.pod.name, "why": str(error)}
                if isinstance(error, Forbidden):
                    log.warning("no permission to read pod logs", extra=about)
                    return await self._read_last_words(one, writer)
                log.warning("cannot read a log now", extra=about)
                if self.clock() >= until:
                    return ["unreadable"]
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            else:
                return ()

    async def _read_last_words(self, one: _Kept, writer: LogWriter) -> Sequence[Lost]:
        """Store the end of the log from the pod's status, after the log itself is gone.

        A pod that a policy restarts when it fails is deleted within milliseconds. The kubelet then
        has put the end of the log into the status (``FallbackToLogsOnError``).
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                await one.ended.wait()
        words = one.last_words.encode()
        if not words or writer.mark is not None:
            return ["unreadable"]
        await writer.add(words.removesuffix(b"\n") + b"\n")
        whole = len(words) < MOST_LAST_BYTES - 4 and words.count(b"\n") < MOST_LAST_LINES
        return () if whole else ["unreadable"]

    async def _stream(self, one: _Kept, writer: LogWriter, *, follow: bool) -> None:
        records = self.logs.records(one.pod, writer.mark, follow=follow)
        gone = asyncio.create_task(one.ended.wait())
        try:
            async with aclosing(records):
                while block := await _next_of(records, gone):
                    await writer.add(block)
        finally:
            gone.cancel()

    async def _flush(self, writer: LogWriter) -> None:
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            with self._contained.of("what is followed"):
                await writer.flush()


async def _next_of(records: AsyncIterator[bytes], gone: asyncio.Task[Any]) -> bytes | None:
    """Return the next part of a log; None at its end.

    A running program may be silent for hours. After its end, the rest must arrive.

    Raises:
        Unavailable: If nothing arrives within a minute although the program has ended.
    """
    coming = asyncio.ensure_future(anext(records, None))
    try:
        await asyncio.wait({coming, gone}, return_when=asyncio.FIRST_COMPLETED)
        async with asyncio.timeout(CALL_SECONDS):
            return await coming
    except TimeoutError as error:
        raise Unavailable("the rest of the log of an ended pod does not arrive") from error
    finally:
        if not coming.done():
            coming.cancel()
            await asyncio.wait([coming])  # otherwise the generator cannot be closed
