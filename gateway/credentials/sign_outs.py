"""Ends the grant of a user who signs out: here at once, and everywhere else by the controller."""

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
"""The deadline of Redis while the user waits for the response."""
AGAIN_SECONDS: Final = 1.0
"""Between two attempts to send pending sign-outs."""
MOST_PENDING: Final = 1000
"""Sign-outs that are not in Redis yet; beyond that the oldest is dropped."""
_AT_ONCE: Final = 100

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class SignOuts:
    """Ends grants in this process, in the other workers, and through Redis everywhere."""

    follower: Follower
    writer: SignOutWriter
    tell_workers: Callable[[str, str], None] = lambda _sid, _jti: None
    ended: int = 0
    """The number of grants ended so far."""
    _pending: deque[tuple[str, str]] = field(
        init=False, default_factory=lambda: deque(maxlen=MOST_PENDING)
    )

    @property
    def pending(self) -> int:
        """The number of sign-outs that are not in Redis yet."""
        return len(self._pending)

    async def end(self, grant: Grant) -> bool:
        """End *grant* at this gateway; return whether the request to the controller is in Redis.

        If Redis does not respond or the caller is cancelled, :meth:`run` sends it later. Never
        fails.
        """
        sent = False
        self.ended += 1
        self.follower.end_grant(grant.sid, grant.jti)
        self.tell_workers(grant.sid, grant.jti)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self.writer.add(grant.sid, grant.jti)
            sent = True
        except (BusUnavailable, TimeoutError) as error:
            why = str(error) or "Redis does not respond in time"
            log.warning("cannot send a sign-out to the controller yet", extra={"why": why})
        finally:
            if not sent:  # also if the browser disconnects, which cancels this
                self._pending.append((grant.sid, grant.jti))
        return sent

    async def run(self) -> None:
        """Send pending sign-outs until cancelled."""
        while True:
            await asyncio.sleep(AGAIN_SECONDS)
            await self.pass_on()

    async def pass_on(self) -> None:
        """Try once to send the pending sign-outs; call it before exit, which loses them."""
        for _ in range(_AT_ONCE):
            if not self._pending:
                return
            sid, jti = self._pending[0]
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await self.writer.add(sid, jti)
            except (BusUnavailable, TimeoutError):
                return
            # The queue may have dropped its oldest entry during the call.
            if self._pending and self._pending[0] == (sid, jti):
                self._pending.popleft()
