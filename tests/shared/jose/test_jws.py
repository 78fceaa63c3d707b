"""Tests signatures and key sets: only exact tokens of a matching key verify."""

from __future__ import annotations

import hmac
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import RSAAlgorithm

from shared.errors import BadKeySet, TokenRefused
from shared.jose.jws import (
    MAX_TOKEN_BYTES,
    decode_base64url,
    encode_base64url,
    read_key_set,
    strict_json_object,
    verified_payload,
)
from tests.shared.samples import (
    SIGNERS,
    TOKEN_ALPHABET,
    Signer,
    change_one,
    key_set_of,
    places,
    shifts,
)

KEYS = read_key_set(key_set_of(*SIGNERS.values()))
ED = SIGNERS["EdDSA"]


def reason_of(token: str) -> str:
    with pytest.raises(TokenRefused) as refused:
        verified_payload(token, KEYS)
    return refused.value.reason


@pytest.mark.parametrize("signer", SIGNERS.values(), ids=SIGNERS)
def test_a_signed_payload_verifies_to_itself(signer: Signer) -> None:
    assert verified_payload(signer.sign(b'{"a":1}'), KEYS) == b'{"a":1}'


@given(st.sampled_from(sorted(SIGNERS)), places, shifts)
def test_no_changed_character_goes_unnoticed(name: str, place: int, shift: int) -> None:
    reason_of(change_one(SIGNERS[name].sign({"sub": "ada"}), place, shift))


@given(st.sampled_from(sorted(SIGNERS)), places, st.text(TOKEN_ALPHABET + "= ", min_size=1))
def test_no_cut_or_lengthened_token_passes(name: str, place: int, more: str) -> None:
    token = SIGNERS[name].sign({"sub": "ada"})
    reason_of(token[: place % len(token)])
    reason_of(token + more)


def test_parts_of_two_tokens_cannot_be_combined() -> None:
    one, two = (ED.sign({"sub": sub}).split(".") for sub in ("ada", "bob"))
    assert reason_of(".".join([one[0], two[1], one[2]])) == "signature"


def test_a_token_without_signature_is_refused() -> None:
    header = encode_base64url(json.dumps({"alg": "none", "kid": ED.kid}).encode())
    assert reason_of(f"{header}.{encode_base64url(b'{}')}.") == "algorithm"


def test_a_public_key_cannot_serve_as_hmac_secret() -> None:
    rsa = SIGNERS["RS256"]
    for encoding in (Encoding.PEM, Encoding.DER):
        secret = rsa.private.public_key().public_bytes(encoding, PublicFormat.SubjectPublicKeyInfo)
        header = encode_base64url(json.dumps({"alg": "HS256", "kid": rsa.kid}).encode())
        signing_input = f"{header}.{encode_base64url(b'{}')}"
        mac = hmac.digest(secret, signing_input.encode(), "sha256")
        assert reason_of(f"{signing_input}.{encode_base64url(mac)}") == "algorithm"


def test_a_key_verifies_no_other_algorithm() -> None:
    stranger = Signer(SIGNERS["ES256"].kid, "RS256")
    assert reason_of(stranger.sign({})) == "algorithm"


def test_a_foreign_key_with_the_same_kid_does_not_verify() -> None:
    assert reason_of(Signer(ED.kid, "EdDSA").sign({})) == "signature"
    assert reason_of(Signer("nobody", "EdDSA").sign({})) == "kid"


@pytest.mark.parametrize(
    "header",
    [{"jku": "https://x"}, {"jwk": {}}, {"crit": ["exp"]}, {"x5u": "https://x"}, {"x5c": []}],
)
def test_a_header_cannot_choose_its_verification_key_or_algorithm(header: dict[str, Any]) -> None:
    assert reason_of(ED.sign({}, **header)) == "header"


@pytest.mark.parametrize("kid", [None, 7, ""])
def test_a_token_must_name_its_key(kid: Any) -> None:
    parts = ED.sign({}).split(".")
    header = {"alg": "EdDSA"} | ({} if kid is None else {"kid": kid})
    assert (
        reason_of(".".join([encode_base64url(json.dumps(header).encode()), *parts[1:]])) == "header"
    )


@pytest.mark.parametrize(
    "token", ["", ".", "..", "a.b", "a.b.c.d", "é.b.c", "A" * (MAX_TOKEN_BYTES + 1)]
)
def test_malformed_text_is_refused_as_malformed_token(token: str) -> None:
    assert reason_of(token) == "malformed"


def test_a_header_that_repeats_a_key_is_malformed() -> None:
    header = encode_base64url(b'{"alg":"EdDSA","kid":"a","kid":"key-EdDSA"}')
    assert reason_of(".".join([header, *ED.sign({}).split(".")[1:]])) == "malformed"


# base64url and JSON


@given(st.binary(max_size=64))
def test_base64url_round_trips(data: bytes) -> None:
    assert decode_base64url(encode_base64url(data)) == data


@given(st.text(TOKEN_ALPHABET + "=+/ \n", max_size=12))
def test_base64url_has_one_encoding_for_each_byte_string(text: str) -> None:
    try:
        data = decode_base64url(text)
    except ValueError:
        return
    assert encode_base64url(data) == text


@pytest.mark.parametrize(
    "data", [b"[]", b"1", b'{"a":1,"a":1}', b'{"x":{"a":1,"a":2}}', b'{"a":NaN}', b'{"a":Infinity}',
             b"\xff", b"{", b"", b"[" * 100_000]
)  # fmt: skip
def test_ambiguous_json_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        strict_json_object(data)


# Key sets


def with_key(**fields: Any) -> bytes:
    return json.dumps({"keys": [ED.jwk | fields]}).encode()


def test_alg_and_use_may_be_absent_but_must_not_conflict() -> None:
    assert set(read_key_set(with_key())) == {ED.kid}
    assert set(read_key_set(with_key(alg="EdDSA", use="sig", key_ops=["verify"]))) == {ED.kid}


@pytest.mark.parametrize(
    "fields",
    [
        {"kid": ""},
        {"kid": None},
        {"kid": 5},
        {"alg": "RS256"},
        {"alg": "none"},
        {"use": "enc"},
        {"key_ops": ["sign"]},
        {"key_ops": None},
        {"key_ops": 5},
        {"key_ops": {}},
        {"d": "AAAA"},
        {"kty": "oct", "k": "AAAA"},
        {"crv": "Ed448"},
        {"x": "AAAA"},
        {"x": 5},
        {"kty": "unheard-of"},
    ],
)
def test_an_unusable_key_is_skipped_and_the_others_are_kept(fields: dict[str, Any]) -> None:
    with pytest.raises(BadKeySet):
        read_key_set(with_key(**fields))
    good = SIGNERS["ES256"]
    mixed = read_key_set(json.dumps({"keys": [ED.jwk | fields, good.jwk]}).encode())
    assert (set(mixed), len(mixed.problems)) == ({good.kid}, 1)


def test_two_keys_with_one_kid_are_both_skipped() -> None:
    again = Signer(ED.kid, "EdDSA")
    third = Signer(ED.kid, "EdDSA")
    keys = read_key_set(key_set_of(ED, again, third, SIGNERS["ES256"]))
    assert set(keys) == {SIGNERS["ES256"].kid}


def test_a_short_rsa_key_is_skipped() -> None:
    short = generate_private_key(65537, 1024)
    jwk = RSAAlgorithm.to_jwk(short.public_key(), as_dict=True) | {"kid": "short"}
    with pytest.raises(BadKeySet, match="2048"):
        read_key_set(json.dumps({"keys": [jwk]}).encode())


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"keys":{}}', b'{"keys":[]}', b'{"keys":[null]}',
             json.dumps({"keys": [ED.jwk] * 300}).encode()]
)  # fmt: skip
def test_a_malformed_key_set_is_refused(data: bytes) -> None:
    with pytest.raises(BadKeySet):
        read_key_set(data)


def test_the_key_set_shows_no_key_material() -> None:
    shown = repr(KEYS)
    for signer in SIGNERS.values():
        for member in ("x", "n", "y"):
            assert str(signer.jwk.get(member, "\0")) not in shown
