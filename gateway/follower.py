"""Follows the bus and keeps the route table: docs/proxy-events.md, "Following".

Three tasks, one owner (:meth:`Follower.run`)::

    listen   the subscription: applies every event that is the next one, and asks for a look at
             the head at any other
    watch    reads the head every second, or at once when asked; what it says about the table is
             what the bus' state is made of
    mend     reads the log when the table is behind its head, and where that does not reach takes
             a snapshot, one at a time

The table in use changes only by the next event in order, or is exchanged for a better one. No
request waits for any of this, but for :meth:`Follower.repair`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from typing import Final

import msgspec

from gateway.core.bus_state import Bus, BusClock
from gateway.feed import Changed, Feed
from gateway.loading import load_table
from shared.bus import BusReader
from shared.errors import BusUnavailable, MalformedEvent, SnapshotRefused
from shared.events import (
    Event,
    GrantRevoked,
    Head,
    RouteRemoved,
    RouteUpserted,
    UnknownEvent,
    decode_event,
)
from shared.routes import Outcome, RouteReader, RouteTable

HEAD_SECONDS: Final = 1.0
"""Between two looks at the head."""
CALL_SECONDS: Final = 2.0
"""For one look at the head, or one part of the log."""
REPAIR_SECONDS: Final = 0.5
"""How long a request may wait for one repair."""
LOOK_SECONDS: Final = 0.1
"""Between two looks that requests ask for."""
SETTLE_SECONDS: Final = 0.02
"""How long a head that is ahead may be explained by events that are still under way."""
ROUTES_PER_SECOND: Final = 50_000
"""Followers that lose the bus together spread their snapshots by this."""
SNAPSHOT_SECONDS: Final = 60.0
LOG_REACH: Final = 4096
"""A table that is further behind is read whole: that is quicker than so many events."""
UNKNOWN_SECONDS: Final = 30.0
"""Between two snapshots for events that this version does not know."""
DEAF_SECONDS: Final = 10.0
"""Without any message for so long (heartbeats come every 2 s) the subscription is made anew: its
connection may be dead without having said so."""
PRUNE_SECONDS: Final = 600.0
_FIRST_RETRY_SECONDS: Final = 0.1
_LAST_RETRY_SECONDS: Final = 0.5
"""A Redis that is back is found within this, give or take a half; so many gateways spread."""

log = logging.getLogger(__name__)


class Follower(Feed):
    """Keeps the table in step with Redis for as long as :meth:`run` runs.

    Args:
        reader: Reads the bus.
        routes: Reads single routes.
        clock: What is known of the bus' state; the follower is its only writer.
        monotonic: Seconds that only rise.
        wall: Unix seconds.
        random: A number from 0 to below 1.
        on_change: Called with the sessions that changed, or None for all, after the table has.
        on_closed: Called when the bus has been lost for longer than its grace.
        on_event: Called with each event once it has been applied, before *on_change*: for who
            keeps other tables in step.
    """

    def __init__(
        self,
        reader: BusReader,
        routes: RouteReader,
        *,
        clock: BusClock,
        monotonic: Callable[[], float],
        wall: Callable[[], float],
        random: Callable[[], float],
        on_change: Changed,
        on_closed: Callable[[], None],
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        super().__init__(clock=clock, monotonic=monotonic)
        self._reader = reader
        self._routes = routes
        self._wall = wall
        self._random = random
        self._on_change = on_change
        self._on_closed = on_closed
        self._on_event = on_event
        self._look = asyncio.Event()
        self._mend = asyncio.Event()
        self._progress = asyncio.Event()
        self._looked_at = float("-inf")
        self._wanted: tuple[Head, float] | None = None
        self._anew = False
        self._anew_at = float("-inf")
        self._arrived: list[Event] | None = None
        self._waiting: list[asyncio.Future[None]] = []
        self._behind: list[asyncio.Future[None]] = []
        self._was = Bus.STARTING

    async def repair(self) -> None:
        """Return when the table is what Redis held after this call, or after 500 ms; never fail.

        At most ten looks at the head a second come of it, however many ask.
        """
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._look.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(REPAIR_SECONDS):
                await waiter

    # Following

    async def run(self) -> None:
        """Follow the bus until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._listen())
            tasks.create_task(self._watch())
            tasks.create_task(self._keep_mended())
            tasks.create_task(self._prune())

    async def _listen(self) -> None:
        pause = _FIRST_RETRY_SECONDS
        while True:
            try:
                async with self._reader.subscribe() as messages:
                    self._clock.subscribed(self._monotonic())
                    self._look.set()
                    pause = _FIRST_RETRY_SECONDS
                    await self._take_all(messages)
            except BusUnavailable as error:
                log.warning("the subscription was lost: %s", error)
            finally:
                self._clock.unsubscribed(self._monotonic())
            await asyncio.sleep(pause * (0.5 + self._random()))
            pause = min(pause * 2, _LAST_RETRY_SECONDS)

    async def _take_all(self, messages: AsyncIterator[bytes]) -> None:
        while True:
            try:
                async with asyncio.timeout(DEAF_SECONDS):
                    message = await anext(messages)
            except TimeoutError:
                self.noted["silent"] += 1
                return
            self._take(message)

    def _take(self, message: bytes) -> None:
        try:
            event = decode_event(message)
        except MalformedEvent as error:
            self.noted["malformed"] += 1
            log.warning("a message was dropped: %s", error)
            return
        if self._arrived is not None:
            self._arrived.append(event)
        if self.table is None:
            return
        if event.epoch == self.table.epoch:
            self._clock.heard(self._monotonic())
        self._revoke(event, self.table)
        if self._advance_by(event, self.table) is Outcome.REPAIR:
            self.noted["gap"] += 1
            self._look.set()

    def _revoke(self, event: Event, table: RouteTable) -> None:
        """Let a revocation count at once, also one that is not the next event."""
        if not isinstance(event, GrantRevoked) or event.epoch != table.epoch:
            return
        if event.seq == table.seq + 1:
            return
        if table.revoke(event):
            self.noted["early"] += 1
            if self._on_event is not None:
                self._on_event(msgspec.structs.replace(event, seq=table.seq))
            self._on_change(None if event.sid is None else (event.sid,))

    def _advance_by(self, event: Event, table: RouteTable) -> Outcome:
        outcome = table.apply(event)
        if outcome in (Outcome.APPLIED, Outcome.UNKNOWN):
            self._applied(event)
        if outcome is Outcome.UNKNOWN:
            self._pass_unknown(event)
        return outcome

    def _applied(self, event: Event) -> None:
        self.noted["applied"] += 1
        at = None if isinstance(event, UnknownEvent) else event.at
        if at is not None:
            self.lag_seconds = max(0.0, self._wall() - at.timestamp())
        if self._on_event is not None:
            self._on_event(event)
        self._advance()
        match event:
            case RouteUpserted(sid=sid) | RouteRemoved(sid=sid):
                self._on_change((sid,))
            case GrantRevoked(sid=sid):
                self._on_change(None if sid is None else (sid,))
            case _:
                pass

    def _pass_unknown(self, event: Event) -> None:
        self.noted["unknown"] += 1
        now = self._monotonic()
        if now - self._anew_at < UNKNOWN_SECONDS:
            return
        self._anew_at = now
        self._anew = True
        self._mend.set()
        kind = event.type if isinstance(event, UnknownEvent) else ""
        log.warning("an event of a version or type that is not known", extra={"type": kind})

    # Watching the head

    async def _watch(self) -> None:
        pause, retry = HEAD_SECONDS, _FIRST_RETRY_SECONDS
        while True:
            await self._until_next_look(pause)
            if self._clock.slept(self._monotonic()):
                self.noted["slept"] += 1
            if await self._look_at_head():
                pause, retry = HEAD_SECONDS, _FIRST_RETRY_SECONDS
                await self._until_mended()
            else:
                pause, retry = retry, min(retry * 2, _LAST_RETRY_SECONDS)
            self._clock.looked(self._monotonic())
            self._note_state()

    async def _until_mended(self) -> None:
        """Let a repair that is under way go first, where the grace would be over without it.

        A process that was stopped for longer than its grace finds the bus alive: then a table
        that is a moment away must not cost anybody their session.
        """
        deadline = self._monotonic() + CALL_SECONDS
        while self._wanted is not None and self.bus in (Bus.LOST, Bus.CLOSED):
            self._progress.clear()
            try:
                async with asyncio.timeout(deadline - self._monotonic()):
                    await self._progress.wait()
            except TimeoutError:
                return

    async def _until_next_look(self, pause: float) -> None:
        now = self._monotonic()
        due = self._looked_at + pause
        if self._was is not Bus.CLOSED:
            due = min(due, max(self._clock.closes_at(), now))
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, due - now)):
                await self._look.wait()
        since = self._monotonic() - self._looked_at
        if since < LOOK_SECONDS:
            await asyncio.sleep(LOOK_SECONDS - since)
        self._look.clear()

    async def _look_at_head(self) -> bool:
        """Return whether the head is there and one that the table can reach."""
        asking, self._waiting = self._waiting, []
        self._looked_at = now = self._monotonic()
        before = self.table.head if self.table is not None else None
        head = await self._fetch_head()
        if head is None:
            _release(asking)
            return False
        self._wanted = (head, now)
        if before is not None and head.is_older_than(before):
            # Redis forgot what it had acknowledged. What is known here is newer, and stays until
            # the publisher notices, too, and starts another epoch.
            self.noted["rollback"] += 1
            self._wanted = None
            _release(asking)
            return False
        self._behind += asking
        if not self._advance():
            self._mend.set()
        return True

    async def _fetch_head(self) -> Head | None:
        try:
            async with asyncio.timeout(CALL_SECONDS):
                head = await self._reader.head()
        except (BusUnavailable, TimeoutError) as error:
            self.trouble = str(error) or "Redis did not answer in time"
            return None
        self.trouble = None if head is not None else "Redis holds no route table"
        return head

    def _advance(self) -> bool:
        """Note whether the table has reached the head that was seen last."""
        table, wanted = self.table, self._wanted
        if wanted is None:
            return True
        head, read_at = wanted
        if table is None or table.epoch != head.epoch or table.seq < head.seq:
            return False
        self._wanted = None
        self._clock.good(read_at)
        self._progress.set()
        behind, self._behind = self._behind, []
        _release(behind)
        return True

    def _note_state(self) -> None:
        state = self.bus
        if state is self._was:
            return
        level = logging.INFO if state is Bus.FOLLOWING else logging.WARNING
        log.log(level, "the bus is now %s, was %s", state.value, self._was.value)
        self._was = state
        if state is Bus.CLOSED:
            self._on_closed()

    # Mending

    async def _keep_mended(self) -> None:
        while True:
            await self._mend.wait()
            self._mend.clear()
            if not self._is_behind():
                continue
            # Events under way get their time.
            await self._progress_within(SETTLE_SECONDS)
            if not self._is_behind() or await self._read_log():
                continue
            await self._progress_within(self._spread())
            if self._is_behind():
                await self._exchange()

    def _is_behind(self) -> bool:
        return not self._advance() or self._anew

    def _spread(self) -> float:
        """Return how long to wait, so that many followers do not take snapshots at once."""
        # Whoever waits is one request at one gateway, not all gateways at once.
        if self._behind or self.table is None:
            return 0.0
        return self._random() * len(self.table) / ROUTES_PER_SECOND

    async def _progress_within(self, seconds: float) -> None:
        self._progress.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._progress.wait()

    async def _read_log(self) -> bool:
        """Apply what the log holds after our seq; say whether the table has reached its head."""
        table = self.table
        if self._anew:
            return False
        while table is not None and self._wanted is not None:
            head, _ = self._wanted
            if head.epoch != table.epoch or head.seq - table.seq > LOG_REACH:
                return False
            try:
                async with asyncio.timeout(CALL_SECONDS):
                    part = await self._reader.log_after(table.seq)
            except (BusUnavailable, TimeoutError):
                return False
            if self.table is not table or not self._apply_log(part.events, table):
                return False
            await asyncio.sleep(0)
        return self._wanted is None

    def _apply_log(self, events: Iterable[bytes], table: RouteTable) -> bool:
        """Apply *events*, but those that have arrived meanwhile; say whether that led further."""
        moved = False
        for raw in events:
            try:
                event = decode_event(raw)
            except MalformedEvent:
                return False
            if event.epoch != table.epoch:
                return False
            if event.seq <= table.seq:
                moved = True
                continue
            if self._advance_by(event, table) is Outcome.REPAIR:
                return False
            self.noted["log"] += 1
            moved = True
        return moved

    async def _exchange(self) -> None:
        self._anew = False
        self._arrived = []
        try:
            async with asyncio.timeout(SNAPSHOT_SECONDS):
                read_at = self._monotonic()
                snapshot = await self._reader.snapshot()
                if snapshot is not None:
                    self._adopt(await load_table(snapshot, self._routes), read_at=read_at)
        except (BusUnavailable, TimeoutError) as error:
            log.warning("no snapshot could be had: %s", error or "it took too long")
        except SnapshotRefused as error:
            self.noted["snapshot_refused"] += 1
            log.warning("a snapshot was refused: %s", error)
        finally:
            self._arrived = None

    def _adopt(self, table: RouteTable, *, read_at: float) -> None:
        """Take *table*, brought up by what arrived meanwhile, unless the one in use is newer."""
        for event in self._arrived or ():
            if event.epoch == table.epoch and event.seq > table.seq:
                table.apply(event)
        old = self.table
        if old is not None and table.head.is_older_than(old.head):
            raise SnapshotRefused(f"the snapshot is at {table.seq}, the table at {old.seq}")
        if old is not None:
            table.inherit(old)
        self.noted["snapshot"] += 1
        if old is None or (old.epoch, old.seq) != (table.epoch, table.seq):
            self._clock.heard(self._monotonic())
        self.table = table
        self._clock.good(read_at)
        log.info(
            "took a snapshot",
            extra={"epoch": table.epoch, "seq": table.seq, "routes": len(table)},
        )
        if not self._advance():
            self._look.set()
        self._note_state()
        self._on_change(None)

    async def _prune(self) -> None:
        while True:
            await asyncio.sleep(PRUNE_SECONDS)
            if self.table is not None:
                self.table.prune(self._wall())


def _release(waiting: Iterable[asyncio.Future[None]]) -> None:
    for waiter in waiting:
        if not waiter.done():
            waiter.set_result(None)
