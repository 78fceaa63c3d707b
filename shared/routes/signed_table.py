"""Signed tables: one signature of the controller covers the whole table.

Each change carries the resulting signed head: a compact JWS (EdDSA) with a :class:`SignedHead` as
payload, which holds the root of a :class:`TableDigest`. Verifiers use the payload of the JWS
itself, so no second encoding could be read differently.

The digest is a hash tree of SHA-256, with a prefix for each use::

    entry    SHA-256(00 ‖ sid ‖ 00 ‖ the route's bytes in Redis)
             SHA-256(01 ‖ member ‖ 00 ‖ score, IEEE 754 double, big-endian)
    bucket   SHA-256(02 ‖ its entries, sorted); 4,096 of them, by CRC-32 of sid or member
    group    SHA-256(03 ‖ its 64 buckets in order)
    root     SHA-256(04 ‖ the 64 groups in order)

One change thus costs one entry, one bucket, one group and the root, whatever the size of the table.
An XOR or a sum of the entries would cost less, but collisions of both can be constructed.
"""

from __future__ import annotations

import hashlib
import json
import struct
from binascii import crc32
from collections.abc import Mapping
from typing import Final

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from shared.errors import TokenRefused
from shared.events import Head, Revocation
from shared.jose.jws import VerificationKey, encode_base64url, read_unverified, verify_signature
from shared.jose.signing_keys import public_jwk

BUCKETS: Final = 4096
_GROUPS: Final = 64
_HEAD: Final = "fumarole-head+jws"
_REVOCATION: Final = "fumarole-revocation+jws"
_sha256 = hashlib.sha256
_SCORE: Final = struct.Struct(">d")
_REVOKED: Final = "revoked "
_NOTHING: Final[dict[str, bytes]] = {}


# Signatures


class SignedHead(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The payload of a signed head.

    ``at`` is the unix time of the signature. Revocations with a score below ``floor`` have been
    dropped. ``root`` is the root of the digest in hexadecimal. The rest is as in :class:`Head`.
    """

    instance: str
    epoch: str
    seq: int
    term: int
    build: int
    at: float
    since: float | None
    server: str | None
    routes: int
    revoked: int
    floor: float
    root: str

    def matches(self, head: Head) -> bool:
        """Return whether *head*, as read from Redis, is the signed one."""
        ours = (self.epoch, self.seq, self.term, self.build, self.routes, self.revoked)
        theirs = (head.epoch, head.seq, head.term, head.build, head.routes, head.revoked)
        return ours == theirs and (self.since, self.server) == (head.since, head.server)


class _SignedRevocation(msgspec.Struct, frozen=True, gc=False):
    instance: str
    member: str
    score: float


_encode = msgspec.json.Encoder().encode
_decode_head = msgspec.json.Decoder(SignedHead).decode
_decode_revocation = msgspec.json.Decoder(_SignedRevocation).decode


class TableSigner:
    """Signs heads and revocations of one installation's table.

    Args:
        instance: The installation's name, so that no signature is valid for another installation.
    """

    def __init__(self, key: Ed25519PrivateKey, *, instance: str) -> None:
        self._key = key
        self._instance = instance
        self.kid: str = public_jwk(key)["kid"]

    def sign_head(self, head: Head, *, at: float, floor: float, root: bytes) -> str:
        """Return the signed *head* of a table with this *root*, signed at the time *at*."""
        signed = SignedHead(
            instance=self._instance,
            epoch=head.epoch,
            seq=head.seq,
            term=head.term,
            build=head.build,
            at=at,
            since=head.since,
            server=head.server,
            routes=head.routes,
            revoked=head.revoked,
            floor=floor,
            root=root.hex(),
        )
        return self._sign(_HEAD, _encode(signed))

    def sign_revocation(self, revocation: Revocation) -> str:
        """Return *revocation* signed alone, so that it can take effect out of order."""
        signed = _SignedRevocation(self._instance, revocation.member, revocation.score)
        return self._sign(_REVOCATION, _encode(signed))

    def _sign(self, kind: str, payload: bytes) -> str:
        header = json.dumps({"alg": "EdDSA", "kid": self.kid, "typ": kind}).encode()
        text = f"{encode_base64url(header)}.{encode_base64url(payload)}"
        return f"{text}.{encode_base64url(self._key.sign(text.encode()))}"


class TableVerifier:
    """Verifies signatures of a :class:`TableSigner` of the same installation with *keys*."""

    def __init__(self, keys: Mapping[str, VerificationKey], *, instance: str) -> None:
        self._keys = keys
        self._instance = instance
        self._last: tuple[str, SignedHead] | None = None

    def is_known(self, text: str) -> bool:
        """Return whether *text* is the head that was verified last, which is cached."""
        return self._last is not None and self._last[0] == text

    def head(self, text: str) -> SignedHead:
        """Return the head that *text* signs.

        Raises:
            TokenRefused: If *text* is no signed head of this installation.
        """
        if self._last is not None and self._last[0] == text:
            return self._last[1]
        try:
            head = _decode_head(self._payload(text, _HEAD))
        except msgspec.DecodeError:
            raise TokenRefused("claims", "the payload is no head of a table") from None
        if head.instance != self._instance:
            raise TokenRefused("claims", "the head is of another installation")
        self._last = (text, head)
        return head

    def revocation(self, text: str) -> Revocation:
        """Return the revocation that *text* signs.

        Raises:
            TokenRefused: If *text* is no signed revocation of this installation.
        """
        try:
            signed = _decode_revocation(self._payload(text, _REVOCATION))
        except msgspec.DecodeError:
            raise TokenRefused("claims", "the payload is no revocation") from None
        if signed.instance != self._instance:
            raise TokenRefused("claims", "the revocation is of another installation")
        return Revocation(signed.member, signed.score)

    def _payload(self, text: str, kind: str) -> bytes:
        parts = read_unverified(text)
        if parts.algorithm != "EdDSA" or parts.header.get("typ") != kind:
            raise TokenRefused("header", f"the signature is not of type {kind}")
        verify_signature(parts, self._keys)
        return parts.payload


# The digest


class TableDigest:
    """The digest of the routes and revocations of a table, updated with each change.

    It covers the published table. A gateway may hold more revocations, which the publisher has
    dropped already.
    """

    def __init__(self) -> None:
        empty = _sha256(b"\x02").digest()
        self._buckets: list[dict[str, bytes]] = [_NOTHING] * BUCKETS
        self._hashes = [empty] * BUCKETS
        self._groups = [b""] * _GROUPS
        self._dirty: set[int] = set()
        self._root = b""
        self.floor = 0.0
        """Revocations with a lower score have been dropped."""
        self.routes = 0
        """The number of routes."""
        self.scores: dict[str, float] = {}
        """The revocations with their scores."""

    # Changes; each returns the former value

    def put_route(self, sid: str, raw: bytes | msgspec.Raw) -> bytes | None:
        """Set the route *raw* of *sid*."""
        name = sid.encode()
        entry = _sha256(b"\0%b\0%b" % (name, raw)).digest()
        before = self._put(crc32(name) % BUCKETS, sid, entry)
        if before is None:
            self.routes += 1
        return before

    def set_route(self, sid: str, entry: bytes | None) -> bytes | None:
        """Set the hash *entry* of the route of *sid*; None removes it."""
        number = crc32(sid.encode()) % BUCKETS
        before = self._drop(number, sid) if entry is None else self._put(number, sid, entry)
        self.routes += (entry is not None) - (before is not None)
        return before

    def put_revocation(self, member: str, score: float) -> float | None:
        """Set the revocation *member* to *score*, unless its score is higher already."""
        before = self.scores.get(member)
        if before is None or before < score:
            self.set_revocation(member, score)
        return before

    def set_revocation(self, member: str, score: float | None) -> None:
        """Set the revocation *member* to *score*; None removes it."""
        name = member.encode()
        number, key = crc32(name) % BUCKETS, _REVOKED + member
        if score is None:
            self._drop(number, key)
            self.scores.pop(member, None)
            return
        self._put(number, key, _sha256(b"\1%b\0%b" % (name, _SCORE.pack(score))).digest())
        self.scores[member] = score

    def drop_below(self, floor: float) -> dict[str, float]:
        """Remove the revocations with a score below *floor*; return them."""
        if floor <= self.floor:
            return {}
        self.floor = floor
        dropped = {member: score for member, score in self.scores.items() if score < floor}
        for member in dropped:
            self.set_revocation(member, None)
        return dropped

    def _put(self, number: int, key: str, entry: bytes) -> bytes | None:
        self._dirty.add(number)
        bucket = self._buckets[number]
        if bucket is _NOTHING:
            self._buckets[number] = {key: entry}
            return None
        before = bucket.get(key)
        bucket[key] = entry
        return before

    def _drop(self, number: int, key: str) -> bytes | None:
        self._dirty.add(number)
        return self._buckets[number].pop(key, None)

    # Results

    def settle(self, most: int = BUCKETS) -> bool:
        """Hash up to *most* changed buckets; return whether there are more."""
        for _ in range(min(most, len(self._dirty))):
            number = self._dirty.pop()
            entries = sorted(self._buckets[number].values())
            self._hashes[number] = _sha256(b"\x02" + b"".join(entries)).digest()
            self._groups[number // (BUCKETS // _GROUPS)] = self._root = b""
        return bool(self._dirty)

    @property
    def root(self) -> bytes:
        """The root hash of the whole table."""
        self.settle()
        if self._root:
            return self._root
        each = BUCKETS // _GROUPS
        for group, held in enumerate(self._groups):
            if not held:
                buckets = self._hashes[group * each : (group + 1) * each]
                self._groups[group] = _sha256(b"\x03" + b"".join(buckets)).digest()
        self._root = _sha256(b"\x04" + b"".join(self._groups)).digest()
        return self._root
