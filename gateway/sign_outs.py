"""Ending a grant whose user signs out: here at once, and everywhere by the controller."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from shared.bus import AskWriter
from shared.errors import BusUnavailable

if TYPE_CHECKING:
    from gateway.bus.follower import Follower
    from gateway.core.access.grants import Grant

PATIENCE_SECONDS: Final = 1.0
"""For how long a user waits for Redis."""
AGAIN_SECONDS: Final = 1.0
MOST_PENDING: Final = 1000
"""Asks that Redis has not taken yet; beyond that the oldest is forgotten."""
_AT_ONCE: Final = 100

log = logging.getLogger(__name__)


class SignOuts:
    """Ends grants.

    Args:
        follower: Knows at once.
        asks: Tells the controller.
        tell_workers: Tells the other workers of this gateway.
    """

    def __init__(
        self,
        *,
        follower: Follower,
        asks: AskWriter,
        tell_workers: Callable[[str, str], None] = lambda _sid, _jti: None,
    ) -> None:
        self._follower = follower
        self._asks = asks
        self._tell_workers = tell_workers
        self._pending: deque[tuple[str, str]] = deque(maxlen=MOST_PENDING)
        self.ended = 0
        """Grants, so far."""

    @property
    def pending(self) -> int:
        """How many the controller could not be told of yet."""
        return len(self._pending)

    async def end(self, grant: Grant) -> bool:
        """End *grant* at this gateway; say whether the controller has been asked already.

        A silent Redis, or a caller that is cancelled, has it asked later. Never fails.
        """
        told = False
        self.ended += 1
        self._follower.end_grant(grant.sid, grant.jti)
        self._tell_workers(grant.sid, grant.jti)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._asks.add(grant.sid, grant.jti)
            told = True
        except (BusUnavailable, TimeoutError) as error:
            log.warning("a sign-out could not be passed on yet", extra={"why": str(error)})
        finally:
            if not told:  # a browser that leaves cancels this
                self._pending.append((grant.sid, grant.jti))
        return told

    async def run(self) -> None:
        """Pass on what could not be, until cancelled."""
        while True:
            await asyncio.sleep(AGAIN_SECONDS)
            await self.pass_on()

    async def pass_on(self) -> None:
        """Try once more; also before the process ends, since nobody else knows of them."""
        for _ in range(_AT_ONCE):
            if not self._pending:
                return
            sid, jti = self._pending[0]
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await self._asks.add(sid, jti)
            except (BusUnavailable, TimeoutError):
                return
            # Others may have come, and the oldest gone, meanwhile.
            if self._pending and self._pending[0] == (sid, jti):
                self._pending.popleft()
