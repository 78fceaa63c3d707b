"""Sends updates of jobs from the outbox to the receivers, as the leader of one term."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from controller.jobs.containment import Containment
from controller.site.webhook_receivers import Receiver
from controller.store.database import FencedStore, Store, Transaction
from controller.store.errors import LeadershipLost, StoreUnavailable
from controller.store.instance import read_store_metadata
from controller.store.notifications import UpdateNotifications
from controller.store.outbox.update_rows import (
    UpdateRow,
    WebhookCursor,
    ensure_cursors,
    heads_after,
    next_update_of,
    read_counter,
    read_cursor,
    time_from,
    write_cursor,
)
from controller.webhooks.deliveries import Deliveries, Send
from controller.webhooks.sender import (
    Message,
    Outcome,
    Result,
    Sender,
    make_message_id,
    opened_sender,
)

POLL_SECONDS: Final = 1.0
"""Poll interval: notifications may be lost, and SQLite has none between processes."""
AGAIN_SECONDS: Final = 1.0
"""Pause after the store did not respond, or after an unexpected error."""
SAVE_SECONDS: Final = 0.5
"""Interval of writes of the cursor. After a leader's death, updates of this time may be sent
again.
"""
LOG_SECONDS: Final = 60.0
"""Interval of log lines about a failing receiver."""
PAGE: Final = 500

log = logging.getLogger(__name__)

Render = Callable[[UpdateRow], bytes]
"""Returns an update as JSON, in the API's form."""


class WebhookCounts:
    """Metrics of webhooks; the receivers' names come from the settings."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._attempts = Counter(
            "fumarole_controller_webhook_attempts",
            "Attempts to send a webhook, by outcome",
            ["receiver", "outcome"],
            registry=registry,
        )
        self._lag = Gauge(
            "fumarole_controller_webhook_lag_seconds",
            "Seconds from the last accepted update to its acceptance",
            ["receiver"],
            registry=registry,
        )
        self._oldest = Gauge(
            "fumarole_controller_webhook_oldest_seconds",
            "Age in seconds of the oldest update that was not accepted",
            ["receiver"],
            registry=registry,
        )

    def attempted(self, receiver: str, outcome: Outcome) -> None:
        """Count an attempt."""
        self._attempts.labels(receiver, outcome).inc()

    def accepted_after(self, receiver: str, seconds: float) -> None:
        """Set the delay of the last accepted update."""
        self._lag.labels(receiver).set(seconds)

    def watch(self, receivers: Sequence[str], oldest: Callable[[str], float]) -> None:
        """Register the gauge of the oldest update's age, which *oldest* returns."""
        for name in receivers:
            self._oldest.labels(name).set_function(partial(oldest, name))


@dataclass(slots=True, eq=False, repr=False)
class Webhooks:
    """Sends to all receivers while this process leads."""

    receivers: Sequence[Receiver]
    _: KW_ONLY
    store: Store
    """The outbox, and the cursors of the receivers."""
    notifications: UpdateNotifications
    """Notifies of new updates."""
    render: Render
    """Returns the body of a message."""
    counts: WebhookCounts
    _dispatchers: dict[str, _Dispatcher] = field(default_factory=dict, init=False)

    async def begin(self) -> None:
        """Have new receivers begin with the next update."""
        async with self.store.write() as transaction:
            await ensure_cursors(transaction, [one.name for one in self.receivers])

    async def run(self, store: FencedStore, *, failed: Callable[[Exception], None]) -> None:
        """Send until cancelled, as the leader; unexpected errors are counted by *failed*.

        Raises:
            LeadershipLost: If another controller leads.
        """
        contained = Containment("cannot send webhooks", failed)
        try:
            async with asyncio.TaskGroup() as tasks:
                for receiver in self.receivers:
                    self._dispatchers[receiver.name] = one = _Dispatcher(self, receiver, store)
                    keep_on = contained.repeat(one.run, lambda: AGAIN_SECONDS, receiver.name)
                    tasks.create_task(keep_on)
        finally:
            self._dispatchers.clear()

    def oldest_seconds(self, receiver: str) -> float:
        """Return the age of the oldest update that the receiver has not accepted; else 0."""
        dispatcher = self._dispatchers.get(receiver)
        oldest = None if dispatcher is None else dispatcher.oldest
        return 0.0 if oldest is None else max(0.0, time.time() - oldest)


@dataclass(slots=True, eq=False, repr=False)
class _Dispatcher:
    """Sends to one receiver. Each message is sent by a task; everything else is done in rounds."""

    of: Webhooks
    receiver: Receiver
    store: FencedStore
    _saved: WebhookCursor | None = field(default=None, init=False)
    _identity: str = field(default="", init=False)
    _deliveries: Deliveries | None = field(default=None, init=False)
    _woken: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _saved_at: float = field(default=-SAVE_SECONDS, init=False)
    _logged_at: float = field(default=-LOG_SECONDS, init=False)
    _has_logged: bool = field(default=False, init=False)

    @property
    def oldest(self) -> float | None:
        """The time of the oldest update that was not accepted."""
        return None if self._deliveries is None else self._deliveries.oldest

    async def run(self) -> None:
        """Send until an error occurs.

        Raises:
            LeadershipLost: If another controller leads.
            StoreUnavailable: If the receiver's cursor cannot be read.
        """
        deliveries = self._deliveries = await self._load()
        try:
            async with (
                opened_sender(self.receiver, clock=time.time) as sender,
                asyncio.TaskGroup() as tasks,
            ):
                tasks.create_task(self._listen())
                await self._send_all(deliveries, sender, tasks)
        except ExceptionGroup as group:
            lost, others = group.split(LeadershipLost)
            raise (lost or others or group).exceptions[0] from None

    async def _load(self) -> Deliveries:
        async with self.store.read() as transaction:
            cursor = await read_cursor(transaction, self.receiver.name)
            self._saved = cursor
            self._identity = (await read_store_metadata(transaction)).identity
            first = min(cursor.pending.values(), default=None)
            since = None if first is None else await time_from(transaction, first)
        return Deliveries(cursor, since=since or time.time(), random=random.random)

    async def _listen(self) -> None:
        while True:
            await self.of.notifications.next.wait()
            self._woken.set()

    async def _send_all(
        self, deliveries: Deliveries, sender: Sender, tasks: asyncio.TaskGroup
    ) -> None:
        while not deliveries.disabled:
            self._woken.clear()
            try:
                more = await self._round(deliveries, sender, tasks)
                saved = await self._save(deliveries)
            except StoreUnavailable as error:
                self._log("webhooks wait: the store is unavailable", why=str(error))
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            waits = [POLL_SECONDS, deliveries.wait(time.monotonic())]
            waits += [0.0] * more + [SAVE_SECONDS] * (not saved)
            with suppress(TimeoutError):
                async with asyncio.timeout(min(one for one in waits if one is not None)):
                    await self._woken.wait()
        await self._save(deliveries, at_once=True)
        await asyncio.Event().wait()

    async def _round(
        self, deliveries: Deliveries, sender: Sender, tasks: asyncio.TaskGroup
    ) -> bool:
        """Read new updates and send those that are due; return whether there are more to read.

        All reads see one state of the store, so that deleted updates are known before they are
        missed.
        """
        found: list[tuple[Send, UpdateRow | None]] = []
        more, send = False, None
        try:
            async with self.store.read() as transaction:
                await self.store.check(transaction)
                more = await self._take_up(transaction, deliveries)
                while (send := deliveries.next(time.monotonic())) is not None:
                    found.append((send, await self._find(transaction, send)))
        except BaseException:
            for begun in [one for one, _ in found] + ([send] if send is not None else []):
                deliveries.put_back(begun)
            raise
        for send, row in found:
            if row is None and not send.is_notice:
                deliveries.found_nothing(send)
            else:
                tasks.create_task(self._send(deliveries, sender, send, row))
        return more

    async def _take_up(self, transaction: Transaction, deliveries: Deliveries) -> bool:
        last = await read_counter(transaction, "updates")
        forgotten = await read_counter(transaction, "updates_forgotten")
        deliveries.observe(last=last, forgotten=forgotten, at=time.time())
        limit = min(PAGE, deliveries.room)
        if deliveries.position >= last or not limit:
            return False
        heads = await heads_after(transaction, deliveries.position, limit=limit)
        through = heads[-1].id if len(heads) == limit else last
        states = self.receiver.states
        wanted = [one for one in heads if states is None or one.state in states]
        deliveries.take_up(wanted, through=through)
        return through < last and deliveries.room > 0

    async def _find(self, transaction: Transaction, send: Send) -> UpdateRow | None:
        if send.is_notice:
            return None
        states = self.receiver.states
        return await next_update_of(
            transaction,
            send.job_id,
            first=send.first,
            last=send.last,
            states=None if states is None else sorted(states),
        )

    async def _send(
        self, deliveries: Deliveries, sender: Sender, send: Send, row: UpdateRow | None
    ) -> None:
        result = await self._try(sender, send, row)
        self.of.counts.attempted(self.receiver.name, result.outcome)
        if result.outcome == "accepted":
            deliveries.accepted(send, send.last if row is None else row.id)
            if row is not None:
                self.of.counts.accepted_after(self.receiver.name, time.time() - row.at)
            if self._has_logged and not deliveries.failing:
                self._has_logged = False
                log.info("webhooks are accepted again", extra={"receiver": self.receiver.name})
        else:
            about = {"outcome": result.outcome, "status": result.status, "why": result.why}
            self._log("a webhook was not accepted", **about)
            if result.outcome == "gone" and not deliveries.disabled:
                deliveries.disabled = True
                self._logged_at = -LOG_SECONDS
                self._log("a webhook receiver returned 410: nothing more is sent to it", **about)
            deliveries.failed(
                send,
                now=time.monotonic(),
                reached=result.reached,
                retry_after=result.retry_after,
                is_busy=result.is_busy,
            )
        self._woken.set()

    async def _try(self, sender: Sender, send: Send, row: UpdateRow | None) -> Result:
        try:
            message = self._forgotten(send.last) if row is None else self._message(row)
        except (
            ValueError
        ):  # pydantic's: an update that this version cannot show blocks only its job
            return Result("unreadable")
        return await sender.send(message)

    def _message(self, row: UpdateRow) -> Message:
        about = (self._identity, row.job_id, row.attempt, row.at, row.state)
        return Message(make_message_id("upd", row.id, *about), self.of.render(row))

    def _forgotten(self, through: int) -> Message:
        body = json.dumps({"event": "forgotten", "through": through}, separators=(",", ":"))
        return Message(make_message_id("fgt", through, self._identity), body.encode())

    def _log(self, what: str, **about: object) -> None:
        if time.monotonic() - self._logged_at >= LOG_SECONDS:
            self._logged_at, self._has_logged = time.monotonic(), True
            log.warning(what, extra={"receiver": self.receiver.name, **about})

    async def _save(self, deliveries: Deliveries, *, at_once: bool = False) -> bool:
        """Store the cursor; return False if it is too early for that."""
        cursor = deliveries.cursor
        if cursor == self._saved:
            return True
        if time.monotonic() - self._saved_at < SAVE_SECONDS and not at_once:
            return False
        async with self.store.write() as transaction:
            await write_cursor(transaction, self.receiver.name, cursor)
        self._saved, self._saved_at = cursor, time.monotonic()
        return True
