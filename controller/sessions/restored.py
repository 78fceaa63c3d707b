"""Recovers from Redis what a store lacks after a restore.

A restored store lacks the revocations since the backup, and still has sessions that were ended
since. Redis and the gateways know both. So a new leader reads Redis before it publishes, and adds
to the store what is missing there: what was revoked stays revoked.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

from controller.store.database import FencedStore, Transaction
from controller.store.instance import (
    StoreMetadata,
    raise_revision,
    raise_term_to,
    read_store_metadata,
)
from controller.store.sessions.revocations import (
    StoredRevocation,
    add_revocation,
    revoked_at_members,
)
from controller.store.sessions.session_rows import end_session, live_sessions
from shared.bus import Publisher
from shared.bus.publisher import Recalled
from shared.events import REVOCATION_KEPT_SECONDS, Head, revoked_at

_AT_ONCE: Final = 500
_LONGEST: Final = {"jti": 128, "sub": 255, "kid": 255}
"""The widths of the store's columns: longer values were never published from it."""
_AHEAD_SECONDS: Final = 60.0
_SLACK_SECONDS: Final = 0.002
"""Times of revocations are rounded on their way to Redis."""

log = logging.getLogger(__name__)


async def recover_from_redis(
    store: FencedStore, bus: Publisher, *, revision: int, now: float
) -> None:
    """Add to the store the revocations that Redis has and, if the store is older, ended sessions.

    If tables are signed, Redis is not trusted, and nothing is recovered.

    Args:
        store: The store.
        bus: Reads Redis.
        revision: The store's revision at the beginning of this leader's term. Since then, the API
            and other parts of the leader may have raised an old store's revision beyond Redis'.
        now: Unix seconds.

    Raises:
        BusUnavailable, StoreUnavailable: If Redis or the store does not respond; nothing was
            written.
        LeadershipLost: If another controller leads.
    """
    if bus.is_signing:
        return
    recalled = await bus.recall()
    async with store.read() as transaction:
        position = replace(await read_store_metadata(transaction), revision=revision)
        # Sessions that were opened since have no route yet.
        live = [one.sid for one in await live_sessions(transaction, until=revision)]
    older = _is_older(position, recalled)
    head = await bus.head()
    ended = await _ended(bus, head, live) if older else []
    revoked = [one for one in map(_read, recalled.revoked.items()) if one is not None]
    async with store.write() as transaction:
        added = await _revoke(transaction, revoked, now=now)
        for sid in ended:
            await end_session(transaction, sid, reason="ended", now=now)
        if older:
            # Reported once: from now on the store is ahead of what was published.
            await raise_revision(transaction, recalled.revision - position.revision)
            if head is not None:
                # Its terms are older too: otherwise the next leader would be refused.
                await raise_term_to(transaction, head.term)
    if older or added:
        what = {"revocations": added, "sessions": len(ended), "restored": older}
        log.warning("recovered from Redis what the store lacked", extra=what)


def _is_older(position: StoreMetadata, recalled: Recalled) -> bool:
    """Return whether a later state of this same store was published."""
    return recalled.identity == position.identity and recalled.revision > position.revision


async def _ended(bus: Publisher, head: Head | None, live: list[str]) -> list[str]:
    """Return the sessions without a route, if Redis has lost nothing."""
    if head is None or await bus.has_lost():
        return []
    routed: set[str] = set()
    for first in range(0, len(live), _AT_ONCE):
        routed |= await bus.routed(live[first : first + _AT_ONCE])
    return [sid for sid in live if sid not in routed]


async def _revoke(transaction: Transaction, revoked: list[StoredRevocation], *, now: float) -> int:
    """Add the revocations that the store lacks; return their number."""
    lacking: list[StoredRevocation] = []
    mattering = [one for one in revoked if -REVOCATION_KEPT_SECONDS < one.at - now < _AHEAD_SECONDS]
    for first in range(0, len(mattering), _AT_ONCE):
        some = mattering[first : first + _AT_ONCE]
        known = await revoked_at_members(transaction, [one.member for one in some])
        lacking += [one for one in some if known.get(one.member, 0.0) < one.at - _SLACK_SECONDS]
    for one in lacking:
        await add_revocation(transaction, one)
    return len(lacking)


def _read(entry: tuple[str, float]) -> StoredRevocation | None:
    """Return the revocation in an *entry* of Redis; None if it is malformed."""
    member, score = entry
    kind, _, rest = member.partition(":")
    sid: str | None = None
    if kind in ("sub", "all"):
        sid, _, rest = rest.partition(":")
    if kind not in ("jti", "sub", "all", "kid") or len(sid or "") > 26:
        return None
    if len(rest) > _LONGEST.get(kind, 0) or "\0" in rest or (kind != "all" and not rest):
        return None
    who = {kind: rest} if kind != "all" else {}
    return StoredRevocation(member=member, at=revoked_at(score), sid=sid, **who)
