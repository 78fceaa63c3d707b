"""Publishes without Redis: keeps the content of Redis and the events, signed or not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Self

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from shared.bus import Snapshot
from shared.bus.signing import Signing
from shared.events import (
    GrantRevoked,
    Head,
    Heartbeat,
    RouteRemoved,
    RouteUpserted,
    event_time,
)
from shared.jose.jws import read_key_set
from shared.jose.signing_keys import public_key_set
from shared.routes.signed_table import SignedHead, TableDigest, TableSigner, TableVerifier
from tests.gateway.bus.following import encode, make_route

NOW = 1_800_000_000.0
KEY, OTHER = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()


def verifier(*keys: Ed25519PrivateKey) -> TableVerifier:
    """Return a verifier of the signatures of *keys*."""
    public = read_key_set(json.dumps(public_key_set(keys)).encode())
    return TableVerifier(public, instance="test")


class Leader:
    """Publishes into memory what a :class:`shared.bus.Publisher` writes into Redis.

    Args:
        key: Signs every head; None for an unsigned bus.
        epoch: The name of its only epoch.
        term: Its fencing token.
    """

    def __init__(
        self, key: Ed25519PrivateKey | None = None, *, epoch: str = "e1", term: int = 1
    ) -> None:
        self.epoch, self.seq = epoch, 0
        self.routes: dict[str, bytes] = {}
        self.revoked: dict[str, float] = {}
        self._term = term
        self._key = key
        self._signing = None if key is None else Signing(TableSigner(key, instance="test"))

    async def begin(
        self, *sids: str, revoked: dict[str, float] | None = None, **changes: Any
    ) -> Self:
        """Publish the epoch's first table: routes of *sids* with *changes*."""
        self.routes = {sid: encode(make_route(sid, **changes)) for sid in sids}
        self.revoked = dict(revoked or {})
        if self._signing is not None:
            await self._signing.begin(self._bare_head(), self.routes, self.revoked)
            self._signing.sign(at=NOW)
        return self

    @property
    def head(self) -> Head:
        """The head, as a gateway reads it."""
        signed = None if self._signing is None else str(self._signing.said[0])
        return msgspec.structs.replace(self._bare_head(), signed=signed)

    @property
    def said(self) -> SignedHead:
        """The content of its last signature."""
        assert self._key is not None
        return verifier(self._key).head(self.head.signed or "")

    @property
    def snapshot(self) -> Snapshot:
        """The whole table, as a gateway reads it."""
        return Snapshot(self.head, dict(self.routes), dict(self.revoked))

    def _bare_head(self) -> Head:
        return Head(
            epoch=self.epoch,
            seq=self.seq,
            term=self._term,
            routes=len(self.routes),
            revoked=len(self.revoked),
            build=1,
        )

    # Events

    def upsert(self, sid: str, *, at: float | None = NOW, **changes: Any) -> RouteUpserted:
        """Publish a route of *sid*."""
        raw = self.routes[sid] = encode(make_route(sid, **changes))
        place = self._next(lambda digest: digest.put_route(sid, raw), at)
        return RouteUpserted(sid=sid, route=msgspec.Raw(raw), **place)

    def remove(self, sid: str, *, at: float = NOW) -> RouteRemoved:
        """Publish that the session *sid* has ended."""
        del self.routes[sid]
        place = self._next(lambda digest: digest.set_route(sid, None), at)
        return RouteRemoved(sid=sid, **place)

    def revoke(self, *, at: float = NOW, **what: Any) -> GrantRevoked:
        """Publish a revocation."""
        bare = GrantRevoked(epoch=self.epoch, seq=0, at=event_time(at), **what)
        entry = bare.revocation()
        self.revoked[entry.member] = entry.score
        place = self._next(lambda digest: digest.put_revocation(*_pair(entry)), at)
        return GrantRevoked(**what, proof=self.prove(bare), **place)

    def prove(self, revocation: GrantRevoked) -> str | None:
        """Return the signature of *revocation* alone."""
        if self._key is None:
            return None
        signer = TableSigner(self._key, instance="test")
        return signer.sign_revocation(revocation.revocation())

    def beat(self, *, at: float = NOW) -> Heartbeat:
        """Publish a Heartbeat without changes."""
        self.seq -= 1
        return Heartbeat(**self._next(lambda _: None, at))

    def _next(self, change: Callable[[TableDigest], object], at: float | None) -> dict[str, Any]:
        self.seq += 1
        place: dict[str, Any] = {
            "epoch": self.epoch,
            "seq": self.seq,
            "at": None if at is None else event_time(at),
        }
        if self._signing is None:
            return place
        signed = self._signing.follow(change, epoch=self.epoch, seq=self.seq, at=at)
        floor = float(self._signing.said[1])
        self.revoked = {name: score for name, score in self.revoked.items() if score >= floor}
        return place | {"head": signed}


def _pair(entry: Any) -> tuple[str, float]:
    return entry.member, entry.score
