"""Contains unexpected errors of one job or object, so that the leader continues with the others.

Every work that the leader repeats is repeated here: then no error of it ends the leader, and an
outage of what it depends on is logged once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

from controller.kube.errors import KubeError
from controller.store.errors import LeadershipLost, StoreUnavailable
from shared.bounded import BoundedDict
from shared.errors import BusUnavailable
from shared.log import Outage

MOST_KNOWN: Final = 1000
"""The number of failing objects whose error is known to be logged."""

log = logging.getLogger(__name__)


class Containment:
    """Counts unexpected errors, and logs each error once until it is over.

    An unavailable store and lost leadership concern all jobs, and are not contained.

    Args:
        what: The log message, which names the work that failed.
    """

    def __init__(self, what: str, failed: Callable[[Exception], None]) -> None:
        self._what = what
        self._failed = failed
        self._known = BoundedDict[str, str](MOST_KNOWN)

    @contextmanager
    def of(self, which: str) -> Iterator[None]:
        """Contain an error of the block, which works on the object *which*.

        Raises:
            LeadershipLost: If another process leads.
            StoreUnavailable: If the store does not respond.
        """
        try:
            yield
        except (LeadershipLost, StoreUnavailable):
            raise
        except Exception as error:  # noqa: BLE001 - one job's trouble, whatever it is
            self._failed(error)
            self._log(which, error)
        else:
            self._known.pop(which, None)

    async def repeat(
        self, work: Callable[[], Awaitable[object]], seconds: Callable[[], float], of: str = ""
    ) -> NoReturn:
        """Do *work*, which concerns the object *of*, at once and again after *seconds*, for ever.

        An outage of the store, of Redis or of the API server ends only the round.

        Raises:
            LeadershipLost: If another process leads.
        """
        outage = Outage(log, begins=self._what, ends=f"over: {self._what}")
        while True:
            with self.of(of):
                try:
                    await work()
                    outage.passed()
                except (StoreUnavailable, BusUnavailable, KubeError) as error:
                    outage.failed(error)
            await asyncio.sleep(seconds())

    def _log(self, which: str, error: Exception) -> None:
        kind = type(error).__name__
        if self._known.get(which) == kind:
            return
        self._known[which] = kind
        log.error(self._what, extra={"of": which}, exc_info=error)
