"""How many submissions of one owner are under way at once.

One who submits hundreds of jobs would else have all workers for as long as these take, and
everybody else's job would come after the last of them. What waits here is looked at again as soon
as a slot of its owner's is free.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Final

from controller.jobs.reconcile.workqueue import RequeueAfter

LOOK_AGAIN_SECONDS: Final = 60.0

Owner = tuple[str, str]


class OwnerSlots:
    """Hands out slots, to each owner's jobs in the order in which they asked.

    Args:
        most: How many an owner has.
        enqueue: Has a job looked at, which then asks again.
    """

    def __init__(self, most: int, enqueue: Callable[[str], None]) -> None:
        self._most = most
        self._enqueue = enqueue
        self._held = Counter[Owner]()
        self._waiting: dict[Owner, dict[str, None]] = {}
        self._owners: dict[str, Owner] = {}

    def __len__(self) -> int:
        return len(self._owners)

    @contextmanager
    def take(self, owner: Owner, job_id: str) -> Iterator[None]:
        """Have a slot for as long as the block lasts.

        Raises:
            RequeueAfter: If none is free. The job is enqueued as soon as one is.
        """
        if self._held[owner] >= self._most:
            self._waiting.setdefault(owner, {})[job_id] = None
            self._owners[job_id] = owner
            raise RequeueAfter(LOOK_AGAIN_SECONDS)
        self._drop(job_id)
        self._held[owner] += 1
        try:
            yield
        finally:
            self._held[owner] -= 1
            self._wake(owner)

    def forget(self, job_id: str) -> None:
        """Take note that the job wants no slot now; whoever waits behind it may have it."""
        if (owner := self._drop(job_id)) is not None:
            self._wake(owner)

    def _drop(self, job_id: str) -> Owner | None:
        owner = self._owners.pop(job_id, None)
        if owner is not None:
            del self._waiting[owner][job_id]
        return owner

    def _wake(self, owner: Owner) -> None:
        # They stay in the line until they have been looked at: no turn is lost.
        for job_id in [*islice(self._waiting.get(owner, ()), self._most - self._held[owner])]:
            self._enqueue(job_id)
        if not self._held[owner]:
            del self._held[owner]
        if not self._waiting.get(owner, True):
            del self._waiting[owner]
