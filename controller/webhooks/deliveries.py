"""Decides which message a receiver is sent next, and when. No I/O.

A job with updates that were not accepted has a lane: the range of their numbers. The updates of a
lane are sent one after another, and a lane that fails backs off by itself. The receiver as a whole
is paused if it cannot be reached, or if several jobs have failed in a row. Then one message at a
time probes whether it is available again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from controller.store.outbox.update_rows import UpdateHead, WebhookCursor

MOST_JOBS: Final = 1000
"""The most lanes of a receiver; further updates wait in the store."""
AT_ONCE: Final = 8
"""The most concurrent messages to a receiver."""
FAILED_JOBS: Final = 3
"""If this number of jobs fails without a success in between, the receiver as a whole fails."""
FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 600.0
LONGEST_RECEIVER_PAUSE_SECONDS: Final = 60.0
LONGEST_RETRY_AFTER_SECONDS: Final = 3600.0

NOTICE: Final = ""
"""The lane of the message that updates were deleted; no job has this id."""


@dataclass(frozen=True, slots=True)
class Send:
    """Orders the first of the job's updates in a range of numbers to be sent."""

    job_id: str
    first: int
    last: int

    @property
    def is_notice(self) -> bool:
        """Whether the message says that updates up to ``last`` were deleted."""
        return self.job_id == NOTICE


@dataclass(slots=True)
class _Lane:
    first: int
    last: int
    since: float
    failures: int = 0
    due_at: float = 0.0
    sending: bool = False


@dataclass(slots=True)
class _Pause:
    """The backoff of the receiver as a whole."""

    failures: int = 0
    until: float = 0.0
    asked_until: float = 0.0
    failed_jobs: set[str] = field(default_factory=set)


class Deliveries:
    """The lanes and the cursor of one receiver.

    Each order of :meth:`next` is completed by exactly one call of :meth:`accepted`,
    :meth:`failed`, :meth:`found_nothing` or :meth:`put_back`.

    Args:
        since: The time of the oldest pending update.
        random: Returns numbers from 0 to 1, so that receivers are not all tried at once.
    """

    def __init__(self, cursor: WebhookCursor, *, since: float, random: Callable[[], float]) -> None:
        self._position = cursor.position
        self._told = cursor.told
        self._lanes = {
            job_id: _Lane(first, cursor.position, since) for job_id, first in cursor.pending.items()
        }
        self._random = random
        self._sending = 0
        self._pause = _Pause()
        self.disabled = False

    @property
    def cursor(self) -> WebhookCursor:
        """The cursor to store: continuing there leaves no update out."""
        pending = {name: one.first for name, one in self._lanes.items() if name != NOTICE}
        return WebhookCursor(self._position, self._told, pending)

    @property
    def oldest(self) -> float | None:
        """The time of the oldest update that was read and not accepted; None after a 410."""
        if self.disabled:
            return None
        return min((one.since for one in self._lanes.values()), default=None)

    @property
    def failing(self) -> bool:
        """Whether an update that was not accepted waits until it is sent again."""
        return self._pause.failures > 0 or any(one.failures for one in self._lanes.values())

    @property
    def position(self) -> int:
        """The number up to which updates were read."""
        return self._position

    @property
    def room(self) -> int:
        """How many more updates may be read."""
        if self.disabled or NOTICE in self._lanes:
            return 0
        return max(0, MOST_JOBS - len(self._lanes))

    # From the outbox

    def observe(self, *, last: int, forgotten: int, at: float) -> None:
        """Note the outbox's last number, and the number up to which updates were deleted.

        If the receiver lacks deleted updates, it gets a message about that before anything else.
        """
        self._told = min(self._told, forgotten)
        if self._position > last:  # the store was restored from a backup
            self._position = last
            self._lanes = {name: one for name, one in self._lanes.items() if one.first <= last}
            for lane in self._lanes.values():
                lane.last = min(lane.last, last)
            self._announce_deleted(last, at)
        elif forgotten > self._told:
            lanes = self._lanes.values()
            if self._position < forgotten or any(one.first <= forgotten for one in lanes):
                self._announce_deleted(forgotten, at)
            else:
                self._told = forgotten

    def _announce_deleted(self, through: int, at: float) -> None:
        notice = self._lanes.get(NOTICE)
        if notice is None:
            self._lanes[NOTICE] = _Lane(through, through, at)
        elif not notice.sending:
            notice.first = notice.last = through

    def take_up(self, heads: Sequence[UpdateHead], *, through: int) -> None:
        """Add updates in order; all updates up to *through* have then been read."""
        for head in heads:
            lane = self._lanes.get(head.job_id)
            if lane is None:
                self._lanes[head.job_id] = _Lane(head.id, head.id, head.at)
            else:
                lane.last = head.id
        self._position = through

    # Sending

    def next(self, now: float) -> Send | None:
        """Return the next message to send now, if there is one."""
        if self.wait(now) != 0:
            return None
        waiting = self._waiting()
        name, lane = min(
            ((name, lane) for name, lane in waiting.items() if lane.due_at <= now),
            key=lambda one: one[1].first,
        )
        lane.sending = True
        self._sending += 1
        return Send(name, lane.first, lane.last)

    def wait(self, now: float) -> float | None:
        """Return the seconds until the next message; None if it depends on something else."""
        most = 1 if self._pause.failures else AT_ONCE
        waiting = self._waiting()
        if self.disabled or not waiting or self._sending >= most:
            return None
        due_at = min(lane.due_at for lane in waiting.values())
        return max(0.0, max(due_at, self._pause.until, self._pause.asked_until) - now)

    def _waiting(self) -> dict[str, _Lane]:
        # The message about deleted updates precedes all later updates.
        lanes = {NOTICE: self._lanes[NOTICE]} if NOTICE in self._lanes else self._lanes
        return {name: lane for name, lane in lanes.items() if not lane.sending}

    # Results

    def accepted(self, send: Send, number: int) -> None:
        """Note that the receiver has accepted the update with this number."""
        if self._pause.failures:
            # Messages that failed together are retried together.
            for lane in self._lanes.values():
                lane.due_at = 0.0
        self._pause = _Pause(asked_until=self._pause.asked_until)
        if send.is_notice:
            self._told = max(self._told, number)
        self._advance(send, number)

    def found_nothing(self, send: Send) -> None:
        """Note that the updates in this range do not exist any more."""
        self._advance(send, send.last)

    def _advance(self, send: Send, number: int) -> None:
        lane = self._end(send)
        if lane is None:
            return
        lane.first, lane.failures, lane.due_at = number + 1, 0, 0.0
        if lane.first > lane.last:
            del self._lanes[send.job_id]

    def put_back(self, send: Send) -> None:
        """Note that the message was not sent."""
        self._end(send)

    def failed(
        self,
        send: Send,
        *,
        now: float,
        reached: bool = True,
        retry_after: float = 0.0,
        is_busy: bool = False,
    ) -> None:
        """Note that the message was not accepted.

        Args:
            send: The order.
            now: Monotonic seconds.
            reached: Whether the receiver may have seen the message.
            retry_after: The receiver's ``Retry-After`` in seconds.
            is_busy: Whether that applies to all messages.
        """
        requested = min(retry_after, LONGEST_RETRY_AFTER_SECONDS)
        lane = self._end(send)
        if lane is not None and reached:
            lane.failures += 1
            lane.due_at = now + max(requested, self._backoff(lane.failures, LONGEST_PAUSE_SECONDS))
            self._pause.failed_jobs.add(send.job_id)
        if is_busy:
            self._pause.asked_until = max(self._pause.asked_until, now + requested)
        # Messages that were sent before the first failure show nothing new.
        failing = not reached or len(self._pause.failed_jobs) >= FAILED_JOBS
        if failing and now >= self._pause.until:
            self._pause.failures += 1
            pause = self._backoff(self._pause.failures, LONGEST_RECEIVER_PAUSE_SECONDS)
            self._pause.until = now + pause

    def _end(self, send: Send) -> _Lane | None:
        """Return the lane, unless a restored store has ended it meanwhile."""
        self._sending -= 1
        lane = self._lanes.get(send.job_id)
        if lane is not None:
            lane.sending = False
        return lane

    def _backoff(self, failures: int, longest: float) -> float:
        pause = min(longest, FIRST_PAUSE_SECONDS * 2.0 ** min(failures - 1, 30))
        return pause * (0.5 + self._random() / 2)
