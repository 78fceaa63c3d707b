"""The publisher's copy of the digest of what it has published, and the heads that it signs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from shared.errors import PublishRefused
from shared.events import Head
from shared.routes.signed_table import BUCKETS, TableDigest, TableSigner

_ENTRIES_AT_ONCE: Final = 1000
"""Hashed before the loop turns: two milliseconds."""
_BUCKETS_AT_ONCE: Final = 256
_DROP_SECONDS: Final = 60.0
"""Between two times that revocations are dropped: each has every gateway look at all of them."""


class Signing:
    """Signs the heads of one publisher's epochs, one after another."""

    def __init__(self, signer: TableSigner) -> None:
        self.signer = signer
        self._digest = TableDigest()
        self._head: Head | None = None
        self._text = ""
        self._at = 0.0
        self._drop_at = 0.0

    @property
    def said(self) -> list[str | int | bytes]:
        """The head that was signed last, and below which score revocations are dropped."""
        return [self._text, repr(self._digest.floor)]

    async def begin(
        self, head: Head, routes: Mapping[str, bytes], revoked: Mapping[str, float]
    ) -> None:
        """Begin the epoch of *head* with what it holds; the loop turns often meanwhile."""
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
        """Make *change*, and return the signed head that follows from it.

        Raises:
            PublishRefused: If this is not the epoch that was begun.
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
            # Only where there is something to drop: a new floor is a look at all of them.
            self._digest.drop_below(now)

    def sign(self, *, at: float) -> str:
        """Return the head as it stands, signed *at* that time."""
        if self._head is None:
            raise PublishRefused("epoch")
        digest, self._at = self._digest, at
        self._text = self.signer.sign_head(self._head, at=at, floor=digest.floor, root=digest.root)
        return self._text
