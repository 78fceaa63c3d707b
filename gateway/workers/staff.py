"""Keeps the workers at work: starts them, notices who has ended or does not move, starts them anew.

A worker is started with the table and its feed, and accepts once it has all. Every half second it
is asked how it stands. Who has neither answered nor read anything for ten seconds is killed: its
connections could not be ended by a revocation any sooner than it moves again.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, Literal

from gateway.bus.feed import Feed
from gateway.workers import messages as m
from gateway.workers.accepting import Shares
from gateway.workers.feeding import Broadcast, Feeding
from gateway.workers.nursery import Ended, Nursery, Started
from gateway.workers.sums import Sums

LOOK_SECONDS: Final = 0.5
STALLED_LOOKS: Final = 20
"""After so many looks in a row without any sign the worker is killed."""
_MEASURE_LOOKS: Final = 10
"""At every tenth look counters are fetched, so that little is lost with a worker that dies."""
MEASURE_SECONDS: Final = 0.5
"""How long a scrape waits for a worker; what it told last counts then."""
_EXIT_SECONDS: Final = 2.0
_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 10.0
_GOOD_SECONDS: Final = 60.0
"""Who has worked for so long is started anew without more delay than the first time."""

Why = Literal["exited", "killed", "stalled"]
"""How a worker ended: by itself, by a signal of someone else, or by ours."""

log = logging.getLogger(__name__)


class Desk:
    """What is known of one worker."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.pid: int | None = None
        self.restarts = 0
        self.standing: m.Standing | None = None
        self.feeding: Feeding | None = None
        self.started = asyncio.Event()
        self.ended: asyncio.Future[Ended] | None = None
        self.measured = 0
        self.stalled = False
        self._asked = 0
        self._missed = 0
        self._moved = -1

    def reset(self) -> None:
        """Forget the worker that was here."""
        self.pid = self.standing = self.feeding = self.ended = None
        self.stalled = False
        self.measured = self._asked = self._missed = 0
        self._moved = -1

    def look(self) -> bool:
        """Ask how the worker stands; return False when it has not moved for too long."""
        feeding = self.feeding
        if feeding is None or self.ended is None:
            return True
        answered = self.answered(self._asked)
        if answered or feeding.moved != self._moved:
            self._missed = 0
        else:
            self._missed += 1
        self._moved = feeding.moved
        if answered:
            self.ask()
        return self._missed < STALLED_LOOKS

    def ask(self) -> int:
        """Ask how the worker stands; return the number that its answer will have."""
        self._asked += 1
        if self.feeding is not None:
            self.feeding.look(self._asked)
        return self._asked

    def answered(self, number: int) -> bool:
        """Say whether the worker has answered *number*, or any asked after it."""
        return number <= (self.standing.number if self.standing is not None else 0)

    @property
    def accepting(self) -> bool:
        """Whether the worker takes connections."""
        return self.standing is not None and self.standing.accepting

    @property
    def reasons(self) -> Sequence[str]:
        """Why nothing should be sent to this worker."""
        return self.standing.reasons if self.standing is not None else ("it is being started",)


class Staff:
    """All workers.

    Args:
        count: How many.
        nursery: Forks them.
        broadcast: What they are to know.
        feed: Repairs the table when they ask for it.
        listening: What they accept from.
        shares: Where they see each other's load.
    """

    def __init__(
        self,
        count: int,
        *,
        nursery: Nursery,
        broadcast: Broadcast,
        feed: Feed,
        listening: Sequence[socket.socket],
        shares: Shares,
    ) -> None:
        self.desks = [Desk(number) for number in range(count)]
        self.sums = Sums()
        self.ends: Counter[Why] = Counter()
        self._nursery = nursery
        self._broadcast = broadcast
        self._feed = feed
        self._listening = listening
        self._shares = shares
        self._draining = asyncio.Event()
        self._starting = asyncio.Lock()
        self._complete = False
        self._measures = 0
        self._told = asyncio.Event()

    def reasons(self) -> list[str]:
        """Return why no worker should be sent anything: nothing while one can be.

        Before all have accepted for the first time, this gateway is still being started.
        """
        at_work = sum(desk.accepting for desk in self.desks)
        if not self._complete and at_work < len(self.desks):
            return [f"{at_work} of {len(self.desks)} workers have started"]
        self._complete = True
        if any(desk.accepting and not desk.reasons for desk in self.desks):
            return []
        told = [reason for desk in self.desks for reason in desk.reasons]
        return list(dict.fromkeys(told)) or ["no worker accepts connections"]

    # Over their time

    async def run(self) -> None:
        """Keep all workers at work until they have ended after :meth:`drain`.

        Raises:
            EOFError: If the nursery is gone; no worker can be started any more.
        """
        loop = asyncio.get_running_loop()
        gone: asyncio.Future[None] = loop.create_future()
        loop.add_reader(self._nursery.fileno(), self._hear, gone)
        try:
            async with asyncio.TaskGroup() as tasks:
                watch = tasks.create_task(_result(gone))
                looks = tasks.create_task(self._keep_looking())
                await asyncio.gather(*(tasks.create_task(self._keep(desk)) for desk in self.desks))
                watch.cancel()
                looks.cancel()
        finally:
            loop.remove_reader(self._nursery.fileno())

    def drain(self) -> None:
        """Have every worker take no further connections and end in time."""
        self._draining.set()
        for desk in self.desks:
            if desk.feeding is not None:
                desk.feeding.drain()

    async def _keep(self, desk: Desk) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while not self._draining.is_set():
            began = time.monotonic()
            why, code = await self._employ(desk)
            if self._draining.is_set():
                return
            self.ends[why] += 1
            desk.restarts += 1
            if time.monotonic() - began > _GOOD_SECONDS:
                pause = _FIRST_PAUSE_SECONDS
            extra = {"worker": desk.number, "why": why, "code": code, "pause_seconds": pause}
            log.error("a worker has ended and is started anew", extra=extra)
            await self._pause(pause * (0.75 + random.random() / 2))  # noqa: S311  # only a spread
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._draining.wait()
        except TimeoutError:
            return

    async def _employ(self, desk: Desk) -> tuple[Why, int]:
        """Start a worker, and return how it ended."""
        desk.ended = asyncio.get_running_loop().create_future()
        desk.feeding = Feeding(
            self._broadcast,
            self._feed,
            on_standing=lambda standing: self._stands(desk, standing),
            on_measured=lambda measured: self._measured(desk, measured),
        )
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            if not await self._start(desk, theirs):
                ours.close()
                return "exited", 0
        feeding = asyncio.create_task(desk.feeding.run(ours))
        try:
            either: set[asyncio.Future[Any]] = {feeding, desk.ended}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            ended = await self._exit_of(desk, desk.ended)
            why: Why = "stalled" if desk.stalled else "killed" if ended.code < 0 else "exited"
            return why, ended.code
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
            self._shares.leave(desk.number)
            self.sums.leave(desk.number)
            desk.reset()

    async def _start(self, desk: Desk, feed: socket.socket) -> bool:
        """Start a worker; return False when it is too late for that."""
        # One at a time: the nursery's socket has no room for hundreds of orders.
        async with self._starting:
            if self._draining.is_set():
                return False
            desk.started.clear()
            self._nursery.start(desk.number, feed, self._listening)
            await desk.started.wait()
            return True

    async def _exit_of(self, desk: Desk, ended: asyncio.Future[Ended]) -> Ended:
        try:
            async with asyncio.timeout(_EXIT_SECONDS):
                return await asyncio.shield(ended)
        except TimeoutError:
            # It has closed its socket, and is not gone.
            self._nursery.kill(desk.number)
            return await ended

    # What they are asked, and what they tell

    async def _keep_looking(self) -> None:
        looks = 0
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            looks += 1
            for desk in self.desks:
                if not desk.look() and not desk.stalled:
                    desk.stalled = True
                    log.error("a worker does not move", extra={"worker": desk.number})
                    self._nursery.kill(desk.number)
            if looks % _MEASURE_LOOKS == 0:
                self._ask_for_measures()

    def _hear(self, gone: asyncio.Future[None]) -> None:
        try:
            news = self._nursery.news()
        except EOFError as error:
            if not gone.done():
                gone.set_exception(error)
            asyncio.get_running_loop().remove_reader(self._nursery.fileno())
            return
        if news is None:
            return
        desk = self.desks[news.number]
        if isinstance(news, Started):
            desk.pid = news.pid
            desk.started.set()
            log.info("a worker was started", extra={"worker": news.number, "worker_pid": news.pid})
            return
        # Also of one that could not be forked, and was never said to have started.
        desk.started.set()
        if desk.ended is not None and not desk.ended.done():
            desk.ended.set_result(news)

    def _stands(self, desk: Desk, standing: m.Standing) -> None:
        desk.standing = standing
        self._told.set()

    def _measured(self, desk: Desk, measured: m.Measured) -> None:
        desk.measured = measured.number
        self.sums.tell(desk.number, measured.families)
        self._told.set()

    def _ask_for_measures(self) -> list[Desk]:
        self._measures += 1
        asked = [desk for desk in self.desks if desk.feeding is not None and desk.accepting]
        for desk in asked:
            if desk.feeding is not None:
                desk.feeding.measure(self._measures)
        return asked

    async def measure(self) -> None:
        """Fetch what all workers have counted; who does not answer in time counts as before."""
        asked, wanted = self._ask_for_measures(), self._measures
        await self._until(
            lambda: all(desk.measured >= wanted or not desk.accepting for desk in asked)
        )

    async def look(self) -> None:
        """Ask all workers how they stand; who does not answer in time stands as before."""
        asked = [(desk, desk.ask()) for desk in self.desks if desk.accepting]
        await self._until(
            lambda: all(desk.answered(number) or not desk.accepting for desk, number in asked)
        )

    async def _until(self, holds: Callable[[], bool]) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(MEASURE_SECONDS):
                while not holds():
                    self._told.clear()
                    await self._told.wait()


async def _result(future: asyncio.Future[None]) -> None:
    await future
