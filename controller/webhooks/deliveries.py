"""Decides what a receiver is sent next, and when; does no I/O.

A job with updates that were not accepted is a lane: it is known from which number on they are, and
up to which. Its updates are sent one after the other, and a lane that fails waits for its own time
alone. The receiver as a whole is paused when nobody can connect to it, or when several jobs have
failed in a row: from then on one message at a time finds out whether it is there again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from controller.store.outbox.update_rows import UpdateHead, WebhookCursor

MOST_JOBS: Final = 1000
"""Lanes of a receiver; further updates wait in the store."""
AT_ONCE: Final = 8
"""Messages on their way to a receiver."""
FAILED_JOBS: Final = 3
"""With so many jobs failing and none accepted in between, it is the receiver that fails."""
FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 600.0
LONGEST_RECEIVER_PAUSE_SECONDS: Final = 60.0
LONGEST_RETRY_AFTER_SECONDS: Final = 3600.0

NOTICE: Final = ""
"""The lane that tells that updates are forgotten; no job is named so."""


@dataclass(frozen=True, slots=True)
class Send:
    """Orders the first of the job's updates among these numbers to be sent."""

    job_id: str
    first: int
    last: int

    @property
    def is_notice(self) -> bool:
        """Whether it tells that updates up to ``last`` are forgotten."""
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
    """Of the receiver as a whole."""

    failures: int = 0
    until: float = 0.0
    asked_until: float = 0.0
    failed_jobs: set[str] = field(default_factory=set)


class Deliveries:
    """What is to be sent to one receiver, and how far it has been told.

    Every order of :meth:`next` is answered by exactly one of :meth:`accepted`, :meth:`failed`,
    :meth:`found_nothing` and :meth:`put_back`.

    Args:
        cursor: How far it has been told before.
        since: The time of the oldest update that is pending there.
        random: Gives numbers from 0 to 1, so that receivers are not all tried at once.
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
        """How far it has been told: who begins there leaves nothing out."""
        pending = {name: one.first for name, one in self._lanes.items() if name != NOTICE}
        return WebhookCursor(self._position, self._told, pending)

    @property
    def oldest(self) -> float | None:
        """The time of the oldest update that was taken up and not accepted."""
        return min((one.since for one in self._lanes.values()), default=None)

    @property
    def position(self) -> int:
        """The number up to which updates have been taken up."""
        return self._position

    @property
    def room(self) -> int:
        """How many updates may be taken up."""
        if self.disabled or NOTICE in self._lanes:
            return 0
        return max(0, MOST_JOBS - len(self._lanes))

    # From the outbox

    def observe(self, *, last: int, forgotten: int, at: float) -> None:
        """Note what the outbox has at this time: numbers up to *last*, not all up to *forgotten*.

        Where that concerns what the receiver was not told yet, it is told so before anything else.
        """
        self._told = min(self._told, forgotten)
        if self._position > last:  # the store was restored from a backup
            self._position = last
            self._lanes = {name: one for name, one in self._lanes.items() if one.first <= last}
            for lane in self._lanes.values():
                lane.last = min(lane.last, last)
            self._tell_forgotten(last, at)
        elif forgotten > self._told:
            lanes = self._lanes.values()
            if self._position < forgotten or any(one.first <= forgotten for one in lanes):
                self._tell_forgotten(forgotten, at)
            else:
                self._told = forgotten

    def _tell_forgotten(self, through: int, at: float) -> None:
        notice = self._lanes.get(NOTICE)
        if notice is None:
            self._lanes[NOTICE] = _Lane(through, through, at)
        elif not notice.sending:
            notice.first = notice.last = through

    def take_up(self, heads: Sequence[UpdateHead], *, through: int) -> None:
        """Add updates, in their order; with them, all up to *through* are known."""
        for head in heads:
            lane = self._lanes.get(head.job_id)
            if lane is None:
                self._lanes[head.job_id] = _Lane(head.id, head.id, head.at)
            else:
                lane.last = head.id
        self._position = through

    # What is sent

    def next(self, now: float) -> Send | None:
        """Return what is to be sent now; None where nothing is."""
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
        """Return in how many seconds something can be sent; None: not before something happens."""
        most = 1 if self._pause.failures else AT_ONCE
        waiting = self._waiting()
        if self.disabled or not waiting or self._sending >= most:
            return None
        due_at = min(lane.due_at for lane in waiting.values())
        return max(0.0, max(due_at, self._pause.until, self._pause.asked_until) - now)

    def _waiting(self) -> dict[str, _Lane]:
        # What is forgotten is told before anything that came later.
        lanes = {NOTICE: self._lanes[NOTICE]} if NOTICE in self._lanes else self._lanes
        return {name: lane for name, lane in lanes.items() if not lane.sending}

    # What became of it

    def accepted(self, send: Send, number: int) -> None:
        """Note that the receiver has accepted the update with this number."""
        if self._pause.failures:
            # What has failed together is tried again together.
            for lane in self._lanes.values():
                lane.due_at = 0.0
        self._pause = _Pause(asked_until=self._pause.asked_until)
        if send.is_notice:
            self._told = max(self._told, number)
        self._advance(send, number)

    def found_nothing(self, send: Send) -> None:
        """Note that none of these numbers is there any more."""
        self._advance(send, send.last)

    def _advance(self, send: Send, number: int) -> None:
        lane = self._end(send)
        if lane is None:
            return
        lane.first, lane.failures, lane.due_at = number + 1, 0, 0.0
        if lane.first > lane.last:
            del self._lanes[send.job_id]

    def put_back(self, send: Send) -> None:
        """Note that it was not tried."""
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
        """Note that it was not accepted.

        Args:
            send: The order.
            now: Monotonic seconds.
            reached: Whether the receiver can have seen of which job it is.
            retry_after: How long it wants to be left alone.
            is_busy: Whether that is about all messages.
        """
        asked = min(retry_after, LONGEST_RETRY_AFTER_SECONDS)
        lane = self._end(send)
        if lane is not None and reached:
            lane.failures += 1
            lane.due_at = now + max(asked, self._backoff(lane.failures, LONGEST_PAUSE_SECONDS))
            self._pause.failed_jobs.add(send.job_id)
        if is_busy:
            self._pause.asked_until = max(self._pause.asked_until, now + asked)
        # Those that were under way when the first one failed say nothing new.
        failing = not reached or len(self._pause.failed_jobs) >= FAILED_JOBS
        if failing and now >= self._pause.until:
            self._pause.failures += 1
            pause = self._backoff(self._pause.failures, LONGEST_RECEIVER_PAUSE_SECONDS)
            self._pause.until = now + pause

    def _end(self, send: Send) -> _Lane | None:
        """Return the lane, which a restored store may have ended meanwhile."""
        self._sending -= 1
        lane = self._lanes.get(send.job_id)
        if lane is not None:
            lane.sending = False
        return lane

    def _backoff(self, failures: int, longest: float) -> float:
        pause = min(longest, FIRST_PAUSE_SECONDS * 2.0 ** min(failures - 1, 30))
        return pause * (0.5 + self._random() / 2)
