"""Tests signed heads and the digest: their form, and that forged or foreign signatures fail."""

from __future__ import annotations

import hashlib
import json
import struct
from binascii import crc32
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.errors import TokenRefused
from shared.events import Head, Revocation
from shared.jose.jws import decode_base64url, read_key_set, verified_payload
from shared.jose.signing_keys import public_jwk
from shared.routes.signed_table import BUCKETS, TableDigest, TableSigner, TableVerifier

KEY, OTHER = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
HEAD = Head(epoch="e", seq=3, term=2, routes=1, revoked=1, since=1.5, server="run", build=4)
ROOT = b"r" * 32


def keys(*held: Ed25519PrivateKey) -> Any:
    return read_key_set(json.dumps({"keys": [public_jwk(key) for key in held]}).encode())


def verifier(*held: Ed25519PrivateKey, instance: str = "i") -> TableVerifier:
    return TableVerifier(keys(*held or (KEY,)), instance=instance)


def signed(key: Ed25519PrivateKey = KEY, instance: str = "i") -> str:
    return TableSigner(key, instance=instance).sign_head(HEAD, at=7.25, floor=0.5, root=ROOT)


# The signature


def test_a_verified_head_equals_the_signed_head() -> None:
    said = verifier().head(signed())
    assert said.matches(HEAD)
    assert (said.at, said.floor, said.root) == (7.25, 0.5, ROOT.hex())


@pytest.mark.parametrize(
    "change",
    [
        {"epoch": "f"},
        {"seq": 4},
        {"term": 3},
        {"build": 5},
        {"routes": 2},
        {"revoked": 0},
        {"since": None},
        {"server": "other"},
    ],
)
def test_a_signature_does_not_verify_another_head(change: dict[str, Any]) -> None:
    assert not verifier().head(signed()).matches(msgspec.structs.replace(HEAD, **change))


def test_keys_are_rotated_by_a_set() -> None:
    both = verifier(KEY, OTHER)
    assert both.head(signed(KEY)) == both.head(signed(OTHER))
    with pytest.raises(TokenRefused, match="not known"):
        verifier(OTHER).head(signed(KEY))


def test_a_signature_of_another_installation_is_refused() -> None:
    with pytest.raises(TokenRefused, match="another installation"):
        verifier(instance="j").head(signed())
    one = TableSigner(KEY, instance="j").sign_revocation(Revocation("kid:k", 1.0))
    with pytest.raises(TokenRefused, match="another installation"):
        verifier().revocation(one)


def test_a_signature_of_one_kind_does_not_verify_another_kind() -> None:
    signer = TableSigner(KEY, instance="i")
    revocation = signer.sign_revocation(Revocation("kid:k", 1.5))
    assert verifier().revocation(revocation) == Revocation("kid:k", 1.5)
    with pytest.raises(TokenRefused, match="fumarole-head"):
        verifier().head(revocation)
    with pytest.raises(TokenRefused, match="fumarole-revocation"):
        verifier().revocation(signed())
    # As a route it has no sid, no target and no host, so it could never be served.
    assert "sid" not in json.loads(verified_payload(signed(), keys(KEY)))


@pytest.mark.parametrize("part", [0, 1, 2])
def test_no_changed_character_goes_unnoticed(part: int) -> None:
    parts = signed().split(".")
    for place in range(0, len(parts[part]), 7):
        changed = parts.copy()
        swapped = "A" if parts[part][place] != "A" else "B"
        changed[part] = parts[part][:place] + swapped + parts[part][place + 1 :]
        with pytest.raises(TokenRefused):
            verifier().head(".".join(changed))


def test_the_verification_of_a_head_is_cached() -> None:
    one, text = verifier(), signed()
    assert not one.is_known(text)
    assert one.head(text) is one.head(text)
    assert one.is_known(text)
    with pytest.raises(TokenRefused):
        one.head(text[:-8] + "AAAAAAAA")


def test_a_key_is_named_by_its_thumbprint() -> None:
    # RFC 8037, appendix A.
    raw = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    key = Ed25519PrivateKey.from_private_bytes(raw)
    assert public_jwk(key)["kid"] == "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
    assert public_jwk(key)["x"] == "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
    assert "d" not in public_jwk(key)


# The digest

SIDS = st.sampled_from(["aaaa", "bbbb", "cccc", "dddd", "plumless", "buckeroo"])
# Two names of one bucket: CRC-32 is the same.
assert crc32(b"plumless") == crc32(b"buckeroo")
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("route"), SIDS, st.none() | st.binary(max_size=9)),
        st.tuples(st.just("revoked"), SIDS, st.floats(1.0, 9.0)),
        st.tuples(st.just("drop"), st.just(""), st.floats(1.0, 9.0)),
    ),
    max_size=30,
)


def apply(digest: TableDigest, change: Any) -> None:
    match change:
        case ("route", sid, None):
            digest.set_route(sid, None)
        case ("route", sid, raw):
            digest.put_route(sid, raw)
        case ("revoked", member, score):
            digest.put_revocation(member, score)
        case ("drop", _, floor):
            digest.drop_below(floor)


class ExpectedTable:
    """The expected content of a table after some changes."""

    def __init__(self) -> None:
        self.routes: dict[str, bytes] = {}
        self.revoked: dict[str, float] = {}
        self.floor = 0.0

    def apply(self, change: Any) -> None:
        match change:
            case ("route", sid, None):
                self.routes.pop(sid, None)
            case ("route", sid, raw):
                self.routes[sid] = raw
            case ("revoked", member, score):
                self.revoked[member] = max(score, self.revoked.get(member, 0.0))
            case ("drop", _, floor) if floor > self.floor:
                self.floor = floor
                self.revoked = {m: s for m, s in self.revoked.items() if s >= floor}

    def root(self) -> bytes:
        """Return the root, computed anew as the docstring describes."""

        def sha(*parts: bytes) -> bytes:
            return hashlib.sha256(b"".join(parts)).digest()

        buckets: list[list[bytes]] = [[] for _ in range(BUCKETS)]
        for sid, raw in self.routes.items():
            buckets[crc32(sid.encode()) % 4096].append(sha(b"\0", sid.encode(), b"\0", raw))
        for member, score in self.revoked.items():
            entry = sha(b"\1", member.encode(), b"\0", struct.pack(">d", score))
            buckets[crc32(member.encode()) % 4096].append(entry)
        hashes = [sha(b"\2", *sorted(each)) for each in buckets]
        groups = [sha(b"\3", *hashes[at : at + 64]) for at in range(0, 4096, 64)]
        return sha(b"\4", *groups)


@settings(max_examples=50, deadline=None)
@given(CHANGES)
def test_the_incremental_digest_equals_the_full_digest(changes: list[Any]) -> None:
    digest, held = TableDigest(), ExpectedTable()
    for number, change in enumerate(changes):
        apply(digest, change)
        held.apply(change)
        if number % 3 == 0:
            digest.settle(1)
    assert digest.root == held.root()
    assert (digest.routes, digest.scores) == (len(held.routes), held.revoked)


@settings(max_examples=50, deadline=None)
@given(CHANGES, SIDS, st.binary(max_size=9), st.floats(1.0, 9.0))
def test_reverting_a_change_restores_the_digest(
    changes: list[Any], sid: str, raw: bytes, score: float
) -> None:
    digest = TableDigest()
    for change in changes:
        apply(digest, change)
    root = digest.root
    before, revoked = digest.put_route(sid, raw), digest.put_revocation(sid, score)
    digest.set_route(sid, before)
    digest.set_revocation(sid, revoked)
    assert digest.root == root


def test_different_entries_have_different_digests() -> None:
    def root(*changes: Any) -> bytes:
        digest = TableDigest()
        for change in changes:
            apply(digest, change)
        return digest.root

    roots = {
        root(),
        root(("route", "aaaa", b"1")),
        root(("route", "aaaa", b"2")),
        root(("route", "bbbb", b"1")),
        root(("route", "aaaa", b"1"), ("route", "bbbb", b"2")),
        root(("route", "aaaa", b"2"), ("route", "bbbb", b"1")),
        # In one bucket, swapped.
        root(("route", "plumless", b"1"), ("route", "buckeroo", b"2")),
        root(("route", "plumless", b"2"), ("route", "buckeroo", b"1")),
        # The same entry twice does not cancel out, as it would with XOR.
        root(("route", "plumless", b"1"), ("route", "buckeroo", b"1")),
        root(("revoked", "aaaa", 1.0)),
        root(("revoked", "aaaa", 2.0)),
        root(("revoked", "aaaa", 1.0), ("revoked", "bbbb", 1.0)),
    }
    assert len(roots) == 12


def test_one_change_rehashes_one_bucket() -> None:
    digest = TableDigest()
    for number in range(1000):
        digest.put_route(f"{number:026}", b"x")
    assert digest.root
    digest.put_route(f"{7:026}", b"y")
    assert not digest.settle(1)


def test_the_signed_form_is_stable() -> None:
    """The next version has to verify the signatures of this one."""
    digest = TableDigest()
    digest.put_route("a" * 26, b'{"sid":"a"}')
    digest.put_revocation("kid:k1", 1800086400.125)
    text = signed()
    header, payload = (json.loads(decode_base64url(part)) for part in text.split(".")[:2])
    assert header == {"alg": "EdDSA", "kid": public_jwk(KEY)["kid"], "typ": "fumarole-head+jws"}
    assert payload == {
        "instance": "i",
        "epoch": "e",
        "seq": 3,
        "term": 2,
        "build": 4,
        "at": 7.25,
        "since": 1.5,
        "server": "run",
        "routes": 1,
        "revoked": 1,
        "floor": 0.5,
        "root": ROOT.hex(),
    }
    assert digest.root.hex() == ("e72e54c662df53a30d59be1e6ae9d64328e3fd2a71061af3b4300f9aa421c3b4")
