"""Signs the heads of a publisher, from its own digest of the published table."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from shared.errors import PublishRefused
from shared.events import Head
from shared.routes.signed_table import BUCKETS, TableDigest, TableSigner

_ENTRIES_AT_ONCE: Final = 1000
"""Entries hashed between two yields to the loop: about 2 ms."""
_BUCKETS_AT_ONCE: Final = 256
_DROP_SECONDS: Final = 60.0
"""Between two drops of expired revocations; each drop makes every gateway scan all of them."""


class Signing:
    """Signs the heads of one publisher's epochs."""

    def __init__(self, signer: TableSigner) -> None:
        self.signer = signer
        self._digest = TableDigest()
        self._head: Head | None = None
        self._text = ""
        self._at = 0.0
        self._drop_at = 0.0

    @property
    def said(self) -> list[str | int | bytes]:
        """The last signed head, and the score below which revocations are dropped."""
        return [self._text, repr(self._digest.floor)]

    async def begin(
        self, head: Head, routes: Mapping[str, bytes], revoked: Mapping[str, float]
    ) -> None:
        """Begin the epoch of *head* with this content; yields to the loop often."""
        digest = TableDigest()
        for number, (sid, raw) in enumerate(routes.items(), 1):
            digest.put_route(sid, raw)
            if number % _ENTRIES_AT_ONCE == 0:
                await asyncio.sleep(0)
        for number, (member, score) in enumerate(revoked.items(), 1):
            digest.put_revocation(member, score)
            if number % _ENTRIES_AT_ONCE == 0:
                await asyncio.sleep(0)
        for _ in range(BUCKETS // _BUCKETS_AT_ONCE):
            digest.settle(_BUCKETS_AT_ONCE)
            await asyncio.sleep(0)
        self._digest, self._head = digest, head

    def follow(
        self, change: Callable[[TableDigest], object], *, epoch: str, seq: int, at: float | None
    ) -> str:
        """Apply *change* and return the resulting signed head.

        Raises:
            PublishRefused: If *epoch* is not the one that was begun.
        """
        if self._head is None or self._head.epoch != epoch:
            raise PublishRefused("epoch")
        at = self._at if at is None else at
        self._drop(at)
        change(self._digest)
        self._head = msgspec.structs.replace(
            self._head, seq=seq, routes=self._digest.routes, revoked=len(self._digest.scores)
        )
        return self.sign(at=at)

    def _drop(self, now: float) -> None:
        if now < self._drop_at:
            return
        self._drop_at = now + _DROP_SECONDS
        if any(score < now for score in self._digest.scores.values()):
            # Only if there is something to drop, since a new floor makes gateways scan all of them.
            self._digest.drop_below(now)

    def sign(self, *, at: float) -> str:
        """Return the current head, signed at the time *at*."""
        if self._head is None:
            raise PublishRefused("epoch")
        digest, self._at = self._digest, at
        self._text = self.signer.sign_head(self._head, at=at, floor=digest.floor, root=digest.root)
        return self._text
