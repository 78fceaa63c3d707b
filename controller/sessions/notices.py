"""Tells gateways of a revocation at once, from whichever replica took the call.

Only the leader writes into the table, in one order. A replica that does not lead tells whoever
listens, and writes nothing: the revocation is in the store, from where the leader, this one or the
next, brings it into the table. So it takes effect also while there is no leader.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from redis.asyncio import Redis

from shared.bus import Keys, Publisher
from shared.errors import BusUnavailable, PublishRefused
from shared.events import GrantRevoked
from shared.route_table.signed_table import TableSigner

PATIENCE_SECONDS: Final = 2.0
"""For how long a call that revokes is held up where Redis does not answer."""

log = logging.getLogger(__name__)


class Notices:
    """Sends notices of revocations.

    Args:
        redis: Where gateways listen.
        keys: This installation's names.
        signer: Signs them, where gateways believe nothing that is not signed.
    """

    def __init__(self, redis: Redis, keys: Keys, *, signer: TableSigner | None = None) -> None:
        self._redis = redis
        self._keys = keys
        self._signer = signer

    async def tell(self, event: GrantRevoked, *, term: int) -> None:
        """Tell gateways of *event*, which is in the store by now; never fail.

        Args:
            event: The revocation.
            term: The leader's, as the store knows it. A store that is behind what Redis knows is
                not this installation's, or an old copy: nothing is told then.
        """
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                publisher = Publisher(self._redis, self._keys, term=term, signer=self._signer)
                await publisher.notice(event)
        except PublishRefused as refused:
            log.info("a revocation waits for the leader", extra={"why": refused.reason})
        except (BusUnavailable, TimeoutError) as error:
            log.warning("a revocation could not be told yet", extra={"why": str(error)})
