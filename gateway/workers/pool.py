"""Keeps the workers running: starts them, notices which have ended or stand still, replaces them.

Every half second each worker is asked how it stands. One that has not answered for ten seconds is
killed: its connections could not be ended by a revocation any sooner than it moves again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import socket
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, Literal

import msgspec

from gateway.core.access.explain import FAILING, SERVED
from gateway.workers.channel import (
    Channel,
    Down,
    Drain,
    Family,
    Measured,
    SignOut,
    StatusRequest,
    Up,
    WorkerStatus,
    decode_up,
)
from gateway.workers.fork_server import ForkServer, WorkerExited, WorkerStarted
from gateway.workers.shares import Shares
from gateway.workers.sums import Sums
from shared.runtime.process import EXIT_FAILED

LOOK_SECONDS: Final = 0.5
STALLED_LOOKS: Final = 20
"""After so many looks in a row without an answer the worker is killed."""
_MEASURE_LOOKS: Final = 10
"""At every tenth look counters are fetched, so that little is lost with a worker that dies."""
ANSWER_SECONDS: Final = 0.5
"""How long a scrape waits for a worker; what it told last counts then."""
MOST_SIGN_OUTS: Final = 1000
"""That workers which are started later are told of: by then the controller has published them."""
_EXIT_SECONDS: Final = 2.0
_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 10.0
_GOOD_SECONDS: Final = 60.0
"""A worker that ran for so long is replaced without more delay than the first time."""

Why = Literal["exited", "killed", "stalled"]
"""How a worker ended: by itself, by a signal of someone else, or by ours."""

log = logging.getLogger(__name__)


class WorkerSlot:
    """One worker after the other, and what is known of the one that runs."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.pid: int | None = None
        self.restarts = 0
        self.status: WorkerStatus | None = None
        self.measured: Measured | None = None
        self.channel: Channel[Up] | None = None
        self.started = asyncio.Event()
        self.ended: asyncio.Future[WorkerExited] | None = None
        self.stalled = False
        self._asked = 0
        self._answered = 0
        self._heard = False
        self._missed = 0
        self._waiting: dict[int, asyncio.Future[WorkerStatus | None]] = {}

    def reset(self) -> None:
        """Forget the worker that has ended."""
        self.pid = self.status = self.measured = self.channel = self.ended = None
        self.stalled = False
        self._answered = self._asked
        self._missed = 0
        for waiting in self._waiting.values():
            _answer(waiting, None)

    def look(self, *, measured: bool) -> bool:
        """Ask how the worker stands; return False when it has not answered for too long."""
        if self.channel is None:
            return True
        heard, self._heard = self._heard, False
        answered = self._answered == self._asked
        self._missed = 0 if heard or answered else self._missed + 1
        if answered:
            self._ask(StatusRequest(0, measured))
        return self._missed < STALLED_LOOKS

    async def ask(self, request: StatusRequest) -> WorkerStatus | None:
        """Return what the worker answers to *request*; None where that takes too long."""
        if self.channel is None:
            return None
        number = self._ask(request)
        waiting: asyncio.Future[WorkerStatus | None] = asyncio.get_running_loop().create_future()
        self._waiting[number] = waiting
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await waiting
        except TimeoutError:
            return None
        finally:
            del self._waiting[number]

    def _ask(self, request: StatusRequest) -> int:
        self._asked += 1
        self.send(msgspec.structs.replace(request, number=self._asked))
        return self._asked

    def take(self, status: WorkerStatus) -> None:
        """Take what the worker has answered."""
        self.status = status
        self._answered = status.number
        self._heard = True
        if status.measured is not None:
            self.measured = status.measured
        waiting = self._waiting.get(status.number)
        if waiting is not None:
            _answer(waiting, status)

    def send(self, message: Down) -> None:
        """Tell the worker, if one runs."""
        if self.channel is not None:
            self.channel.send(message)

    @property
    def accepting(self) -> bool:
        """Whether the worker takes connections."""
        return self.status is not None and self.status.accepting

    @property
    def reasons(self) -> Sequence[str]:
        """Why nothing should be sent to this worker."""
        return self.status.reasons if self.status is not None else ("it is being started",)


class WorkerPool:
    """All workers; they accept from *listening*."""

    def __init__(
        self,
        count: int,
        *,
        fork_server: ForkServer,
        listening: Sequence[socket.socket],
        shares: Shares,
    ) -> None:
        self.slots = [WorkerSlot(number) for number in range(count)]
        self.sums = Sums()
        self.ends: Counter[Why] = Counter()
        self._fork_server = fork_server
        self._listening = listening
        self._shares = shares
        self._draining = asyncio.Event()
        self._starting = asyncio.Lock()
        self._complete = False
        self._signed_out: deque[SignOut] = deque(maxlen=MOST_SIGN_OUTS)

    def reasons(self) -> list[str]:
        """Return why no worker should be sent anything: nothing while one can be.

        Before all have accepted for the first time, this gateway is still being started.
        """
        told = [reason for slot in self.slots for reason in slot.reasons]
        at_work = sum(slot.accepting for slot in self.slots)
        if not self._complete and at_work < len(self.slots):
            started = f"{at_work} of {len(self.slots)} workers have started"
            return [started, *dict.fromkeys(told)]
        self._complete = True
        if any(slot.accepting and not slot.reasons for slot in self.slots):
            return []
        return list(dict.fromkeys(told)) or ["no worker accepts connections"]

    @property
    def table(self) -> tuple[Family, ...]:
        """How table and bus stand for the worker furthest behind, when it was last measured."""
        statuses = [slot.status for slot in self.slots if slot.measured and slot.status]
        behind = furthest_behind(statuses)
        for slot in self.slots:
            if behind is not None and slot.status is behind and slot.measured is not None:
                return slot.measured.table
        return ()

    # Over their time

    async def run(self) -> None:
        """Keep all workers running until they have ended after :meth:`drain`.

        Raises:
            EOFError: If the fork server is gone; no worker can be started any more.
        """
        loop = asyncio.get_running_loop()
        gone: asyncio.Future[None] = loop.create_future()
        loop.add_reader(self._fork_server.fileno(), self._hear, gone)
        try:
            async with asyncio.TaskGroup() as tasks:
                watch = tasks.create_task(_result(gone))
                looks = tasks.create_task(self._keep_looking())
                await asyncio.gather(*(tasks.create_task(self._keep(slot)) for slot in self.slots))
                watch.cancel()
                looks.cancel()
        finally:
            loop.remove_reader(self._fork_server.fileno())

    def drain(self) -> None:
        """Have every worker take no further connections and end in time."""
        self._draining.set()
        for slot in self.slots:
            slot.send(Drain())

    async def _keep(self, slot: WorkerSlot) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while not self._draining.is_set():
            began = time.monotonic()
            why, code = await self._run_one(slot)
            if self._draining.is_set():
                return
            self.ends[why] += 1
            slot.restarts += 1
            if time.monotonic() - began > _GOOD_SECONDS:
                pause = _FIRST_PAUSE_SECONDS
            extra = {"worker": slot.number, "why": why, "code": code, "pause_seconds": pause}
            log.error("a worker has ended and is started anew", extra=extra)
            await self._pause(pause * (0.75 + random.random() / 2))  # noqa: S311  # only a spread
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._draining.wait()
        except TimeoutError:
            return

    async def _run_one(self, slot: WorkerSlot) -> tuple[Why, int]:
        """Start a worker, and return how it ended."""
        slot.ended = asyncio.get_running_loop().create_future()
        channel = Channel(decode_up, lambda message: self._take(slot, message))
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:  # of descriptors there is no more now: later maybe
            log.error("no worker can be started", extra={"why": str(error)})
            return "exited", EXIT_FAILED
        with theirs:
            if not await self._start(slot, theirs):
                ours.close()
                return "exited", 0
        try:
            await channel.open(ours)
            slot.channel = channel
            self._greet(slot)
            either: set[asyncio.Future[Any]] = {channel.closed, slot.ended}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            ended = await self._exit_of(slot, slot.ended)
            why: Why = "stalled" if slot.stalled else "killed" if ended.code < 0 else "exited"
            return why, ended.code
        finally:
            channel.close()
            self._shares.leave(slot.number)
            self.sums.leave(slot.number)
            slot.reset()

    async def _start(self, slot: WorkerSlot, control: socket.socket) -> bool:
        """Start a worker; return False when it is too late for that."""
        # One at a time: the fork server's socket has no room for hundreds of orders.
        async with self._starting:
            if self._draining.is_set():
                return False
            slot.started.clear()
            self._fork_server.start(slot.number, control, self._listening)
            await slot.started.wait()
            return True

    def _greet(self, slot: WorkerSlot) -> None:
        """Tell a worker that was just started what those before it were told."""
        for message in self._signed_out:
            slot.send(message)
        if self._draining.is_set():
            slot.send(Drain())

    async def _exit_of(self, slot: WorkerSlot, ended: asyncio.Future[WorkerExited]) -> WorkerExited:
        try:
            async with asyncio.timeout(_EXIT_SECONDS):
                return await asyncio.shield(ended)
        except TimeoutError:
            # It has closed its socket, and is not gone.
            self._fork_server.kill(slot.number)
            return await ended

    # What they are asked, and what they tell

    async def _keep_looking(self) -> None:
        looks = 0
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            looks += 1
            for slot in self.slots:
                if not slot.look(measured=looks % _MEASURE_LOOKS == 0) and not slot.stalled:
                    slot.stalled = True
                    log.error("a worker does not move", extra={"worker": slot.number})
                    self._fork_server.kill(slot.number)

    def _hear(self, gone: asyncio.Future[None]) -> None:
        try:
            news = self._fork_server.news()
        except EOFError as error:
            if not gone.done():
                gone.set_exception(error)
            asyncio.get_running_loop().remove_reader(self._fork_server.fileno())
            return
        if news is None:
            return
        slot = self.slots[news.number]
        if isinstance(news, WorkerStarted):
            slot.pid = news.pid
            slot.started.set()
            log.info("a worker was started", extra={"worker": news.number, "worker_pid": news.pid})
            return
        # Also of one that could not be forked, and was never said to have started.
        slot.started.set()
        if slot.ended is not None and not slot.ended.done():
            slot.ended.set_result(news)

    def _take(self, slot: WorkerSlot, message: Up) -> None:
        if isinstance(message, SignOut):
            self._signed_out.append(message)
            for other in self.slots:
                if other is not slot:
                    other.send(message)
            return
        slot.take(message)
        if message.measured is not None:
            self.sums.tell(slot.number, message.measured.counted)

    async def measure(self) -> None:
        """Fetch what all workers have counted; one that is too late counts as before."""
        await self._ask_all(StatusRequest(0, measured=True))

    async def describe(self, host: str | None) -> dict[str, Any]:
        """Return what the worker furthest behind knows of the table, and of *host* in it.

        A worker that is too late is not asked. An app fails for those workers that dialled it.
        """
        statuses = await self._ask_all(StatusRequest(0, described=True, host=host))
        behind = furthest_behind(statuses)
        told: dict[str, Any] = {}
        if behind is not None and behind.described is not None:
            told = json.loads(behind.described)
        if _why(told) == SERVED:
            others = (json.loads(one.described) for one in statuses if one.described is not None)
            failing = next((one for one in others if _why(one) == FAILING), told)
            told["host"] = failing["host"]
        return told

    async def _ask_all(self, request: StatusRequest) -> list[WorkerStatus]:
        answers = await asyncio.gather(*(slot.ask(request) for slot in self.slots))
        return [answer for answer in answers if answer is not None]


def furthest_behind(statuses: Iterable[WorkerStatus]) -> WorkerStatus | None:
    """Return what the worker tells that knows least of the bus: of those that accept, if any do."""
    told = list(statuses)
    accepting = [status for status in told if status.accepting]
    return min(accepting or told, key=attrgetter("rank"), default=None)


def _why(described: Mapping[str, Any]) -> object:
    host = described.get("host")
    return host.get("why") if isinstance(host, dict) else None


def _answer(waiting: asyncio.Future[WorkerStatus | None], status: WorkerStatus | None) -> None:
    if not waiting.done():
        waiting.set_result(status)


async def _result(future: asyncio.Future[None]) -> None:
    await future
