"""Ending a grant whose user signs out: here at once, and everywhere by the controller."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from gateway.bus.follower import Follower
from gateway.core.access.grants import Grant
from shared.bus import SignOutWriter
from shared.errors import BusUnavailable

PATIENCE_SECONDS: Final = 1.0
"""For how long a user waits for Redis."""
AGAIN_SECONDS: Final = 1.0
MOST_PENDING: Final = 1000
"""Asks that Redis has not taken yet; beyond that the oldest is forgotten."""
_AT_ONCE: Final = 100

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class SignOuts:
    """Ends grants: here by *follower*, at the other workers, and by *writer* everywhere."""

    follower: Follower
    writer: SignOutWriter
    tell_workers: Callable[[str, str], None] = lambda _sid, _jti: None
    ended: int = 0
    """Grants, so far."""
    _pending: deque[tuple[str, str]] = field(
        init=False, default_factory=lambda: deque(maxlen=MOST_PENDING)
    )

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
        self.follower.end_grant(grant.sid, grant.jti)
        self.tell_workers(grant.sid, grant.jti)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self.writer.add(grant.sid, grant.jti)
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
                    await self.writer.add(sid, jti)
            except (BusUnavailable, TimeoutError):
                return
            # Others may have come, and the oldest gone, meanwhile.
            if self._pending and self._pending[0] == (sid, jti):
                self._pending.popleft()
