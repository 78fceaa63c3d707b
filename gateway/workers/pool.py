"""Keeps the workers running: starts them, and replaces those that exit or hang.

The pool requests the status of each worker every half second. It kills a worker that has not
responded for ten seconds, since a hanging worker does not end connections on a revocation.
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

POLL_SECONDS: Final = 0.5
STALLED_POLLS: Final = 20
"""A worker is killed after this many status requests in a row without a response."""
_MEASURE_POLLS: Final = 10
"""Every tenth status request fetches metrics, so that few counts are lost with a worker."""
RESPONSE_SECONDS: Final = 0.5
"""How long a scrape waits for a worker; after that its last metrics are used."""
MOST_SIGN_OUTS: Final = 1000
"""Sign-outs that are repeated to new workers. The controller has published older ones by then."""
_EXIT_SECONDS: Final = 2.0
_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 10.0
_GOOD_SECONDS: Final = 60.0
"""After a worker has run for this time, the pause before its replacement is the first one again."""

EndReason = Literal["exited", "killed", "stalled"]
"""A worker exited by itself, was killed by another process, or was killed by the pool."""

log = logging.getLogger(__name__)


class WorkerSlot:
    """The place of one worker and its replacements, with the state of the running one."""

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
        self._requested = 0
        self._responded = 0
        self._heard = False
        self._missed = 0
        self._waiting: dict[int, asyncio.Future[WorkerStatus | None]] = {}

    def reset(self) -> None:
        """Forget the worker that has exited."""
        self.pid = self.status = self.measured = self.channel = self.ended = None
        self.stalled = False
        self._responded = self._requested
        self._missed = 0
        for waiting in self._waiting.values():
            _resolve(waiting, None)

    def poll(self, *, measured: bool) -> bool:
        """Request the worker's status; return False if it has not responded for too long."""
        if self.channel is None:
            return True
        heard, self._heard = self._heard, False
        responded = self._responded == self._requested
        self._missed = 0 if heard or responded else self._missed + 1
        if responded:
            self._send_request(StatusRequest(0, measured))
        return self._missed < STALLED_POLLS

    async def request(self, request: StatusRequest) -> WorkerStatus | None:
        """Return the worker's response to *request*; None after :data:`RESPONSE_SECONDS`."""
        if self.channel is None:
            return None
        number = self._send_request(request)
        waiting: asyncio.Future[WorkerStatus | None] = asyncio.get_running_loop().create_future()
        self._waiting[number] = waiting
        try:
            async with asyncio.timeout(RESPONSE_SECONDS):
                return await waiting
        except TimeoutError:
            return None
        finally:
            del self._waiting[number]

    def _send_request(self, request: StatusRequest) -> int:
        self._requested += 1
        self.send(msgspec.structs.replace(request, number=self._requested))
        return self._requested

    def take(self, status: WorkerStatus) -> None:
        """Handle a status of the worker."""
        self.status = status
        self._responded = status.number
        self._heard = True
        if status.measured is not None:
            self.measured = status.measured
        waiting = self._waiting.get(status.number)
        if waiting is not None:
            _resolve(waiting, status)

    def send(self, message: Down) -> None:
        """Send *message* to the worker, if one runs."""
        if self.channel is not None:
            self.channel.send(message)

    @property
    def accepting(self) -> bool:
        """Whether the worker accepts connections."""
        return self.status is not None and self.status.accepting

    @property
    def reasons(self) -> Sequence[str]:
        """Why the worker is not ready; nothing if it is."""
        return self.status.reasons if self.status is not None else ("a worker is starting",)


class WorkerPool:
    """All workers, which accept from the sockets *listening*."""

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
        self.ends: Counter[EndReason] = Counter()
        self._fork_server = fork_server
        self._listening = listening
        self._shares = shares
        self._draining = asyncio.Event()
        self._starting = asyncio.Lock()
        self._complete = False
        self._signed_out: deque[SignOut] = deque(maxlen=MOST_SIGN_OUTS)

    def reasons(self) -> list[str]:
        """Return why this gateway is not ready; nothing while one worker is ready.

        At the start the gateway is not ready before all workers accept.
        """
        reasons = [reason for slot in self.slots for reason in slot.reasons]
        at_work = sum(slot.accepting for slot in self.slots)
        if not self._complete and at_work < len(self.slots):
            started = f"{at_work} of {len(self.slots)} workers have started"
            return [started, *dict.fromkeys(reasons)]
        self._complete = True
        if any(slot.accepting and not slot.reasons for slot in self.slots):
            return []
        return list(dict.fromkeys(reasons)) or ["no worker accepts connections"]

    def degraded(self) -> list[str]:
        """Return the parts of their work that workers cannot do, each once."""
        statuses = [slot.status for slot in self.slots if slot.status is not None]
        return list(dict.fromkeys(part for status in statuses for part in status.degraded))

    @property
    def table(self) -> tuple[Family, ...]:
        """The last metrics of table and bus of the worker that is furthest behind."""
        statuses = [slot.status for slot in self.slots if slot.measured and slot.status]
        behind = furthest_behind(statuses)
        for slot in self.slots:
            if behind is not None and slot.status is behind and slot.measured is not None:
                return slot.measured.table
        return ()

    # Lifecycle

    async def run(self) -> None:
        """Keep all workers running until they have exited after :meth:`drain`.

        Raises:
            EOFError: If the fork server is gone; no worker can be started any more.
        """
        loop = asyncio.get_running_loop()
        gone: asyncio.Future[None] = loop.create_future()
        loop.add_reader(self._fork_server.fileno(), self._on_message, gone)
        try:
            async with asyncio.TaskGroup() as tasks:
                watch = tasks.create_task(_result(gone))
                polls = tasks.create_task(self._poll_status())
                await asyncio.gather(
                    *(tasks.create_task(self._keep_running(slot)) for slot in self.slots)
                )
                watch.cancel()
                polls.cancel()
        finally:
            loop.remove_reader(self._fork_server.fileno())

    def drain(self) -> None:
        """Make every worker accept no more connections, drain and exit."""
        self._draining.set()
        for slot in self.slots:
            slot.send(Drain())

    async def _keep_running(self, slot: WorkerSlot) -> None:
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
            log.error("a worker has exited and will be replaced", extra=extra)
            await self._pause(pause * (0.75 + random.random() / 2))  # noqa: S311  # only a spread
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._draining.wait()
        except TimeoutError:
            return

    async def _run_one(self, slot: WorkerSlot) -> tuple[EndReason, int]:
        """Start a worker, wait for its exit, and return the reason and the exit code."""
        slot.ended = asyncio.get_running_loop().create_future()
        channel = Channel(decode_up, lambda message: self._take(slot, message))
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:  # the limit of file descriptors is reached for now
            log.error("cannot start a worker", extra={"why": str(error)})
            return "exited", EXIT_FAILED
        with theirs:
            if not await self._start(slot, theirs):
                ours.close()
                return "exited", 0
        try:
            await channel.open(ours)
            slot.channel = channel
            self._send_missed(slot)
            either: set[asyncio.Future[Any]] = {channel.closed, slot.ended}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            ended = await self._exit_of(slot, slot.ended)
            why: EndReason = "stalled" if slot.stalled else "killed" if ended.code < 0 else "exited"
            return why, ended.code
        finally:
            channel.close()
            self._shares.leave(slot.number)
            self.sums.retire(slot.number)
            slot.reset()

    async def _start(self, slot: WorkerSlot, control: socket.socket) -> bool:
        """Start a worker; return False if the gateway is draining."""
        # One at a time: the socket of the fork server cannot hold hundreds of orders.
        async with self._starting:
            if self._draining.is_set():
                return False
            slot.started.clear()
            self._fork_server.start(slot.number, control, self._listening)
            await slot.started.wait()
            return True

    def _send_missed(self, slot: WorkerSlot) -> None:
        """Send a new worker the messages that it has missed."""
        for message in self._signed_out:
            slot.send(message)
        if self._draining.is_set():
            slot.send(Drain())

    async def _exit_of(self, slot: WorkerSlot, ended: asyncio.Future[WorkerExited]) -> WorkerExited:
        try:
            async with asyncio.timeout(_EXIT_SECONDS):
                return await asyncio.shield(ended)
        except TimeoutError:
            # The worker has closed its socket but has not exited.
            self._fork_server.kill(slot.number)
            return await ended

    # Messages

    async def _poll_status(self) -> None:
        polls = 0
        while True:
            await asyncio.sleep(POLL_SECONDS)
            polls += 1
            for slot in self.slots:
                if not slot.poll(measured=polls % _MEASURE_POLLS == 0) and not slot.stalled:
                    slot.stalled = True
                    log.error("killing a worker that hangs", extra={"worker": slot.number})
                    self._fork_server.kill(slot.number)

    def _on_message(self, gone: asyncio.Future[None]) -> None:
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
            log.info("started a worker", extra={"worker": news.number, "worker_pid": news.pid})
            return
        # Also after a failed fork, which sends no WorkerStarted.
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
            self.sums.update(slot.number, message.measured.counted)

    async def measure(self) -> None:
        """Fetch the metrics of all workers; a late worker keeps its last ones."""
        await self._request_all(StatusRequest(0, measured=True))

    async def describe(self, host: str | None) -> dict[str, Any]:
        """Return the description of the table, and of *host*, by the worker furthest behind.

        Late workers are left out. If a worker reports that the app of *host* fails, that report is
        used, since only workers that dialled the app know.
        """
        statuses = await self._request_all(StatusRequest(0, described=True, host=host))
        behind = furthest_behind(statuses)
        description: dict[str, Any] = {}
        if behind is not None and behind.described is not None:
            description = json.loads(behind.described)
        if _why(description) == SERVED:
            others = (json.loads(one.described) for one in statuses if one.described is not None)
            failing = next((one for one in others if _why(one) == FAILING), description)
            description["host"] = failing["host"]
        return description

    async def _request_all(self, request: StatusRequest) -> list[WorkerStatus]:
        responses = await asyncio.gather(*(slot.request(request) for slot in self.slots))
        return [response for response in responses if response is not None]


def furthest_behind(statuses: Iterable[WorkerStatus]) -> WorkerStatus | None:
    """Return the status of the worker furthest behind, among accepting workers if there are any."""
    candidates = list(statuses)
    accepting = [status for status in candidates if status.accepting]
    return min(accepting or candidates, key=attrgetter("rank"), default=None)


def _why(described: Mapping[str, Any]) -> object:
    host = described.get("host")
    return host.get("why") if isinstance(host, dict) else None


def _resolve(waiting: asyncio.Future[WorkerStatus | None], status: WorkerStatus | None) -> None:
    if not waiting.done():
        waiting.set_result(status)


async def _result(future: asyncio.Future[None]) -> None:
    await future
