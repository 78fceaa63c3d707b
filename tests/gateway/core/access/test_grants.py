from __future__ import annotations

import base64
import dataclasses
import hashlib
import hmac
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.access.grants import MAX_VALUE_CHARACTERS, Grant, GrantKeys, GrantRefused
from shared.jose.jws import decode_base64url

SID = "abcdefghijklmnopqrstuvwxyz"
KEY, OTHER = bytes(range(32)), bytes(range(100, 140))
GRANT = Grant(SID, "t1", "k1", "ada", "control", 1000.0, 2000.0)


def grants() -> st.SearchStrategy[Grant]:
    text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=255)
    times = st.floats(0, 2**40, allow_nan=False)
    modes = st.sampled_from(["control", "view"])
    return st.builds(Grant, st.just(SID), text, text, text, modes, times, times)


@given(grants())
def test_a_signed_grant_round_trips(grant: Grant) -> None:
    now = min(grant.ends_at - 1e-3, math.nextafter(grant.ends_at, -math.inf))
    assert GrantKeys([KEY]).verify(GrantKeys([KEY]).sign(grant), now) == grant


def test_a_cookie_value_needs_no_quotes() -> None:
    value = GrantKeys([KEY]).sign(Grant(SID, '"', ";", "ü, x", "view", 1, 2))
    assert set(value) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")


@given(st.data())
def test_no_changed_character_goes_unnoticed(data: st.DataObject) -> None:
    keys = GrantKeys([KEY])
    value = keys.sign(GRANT)
    at = data.draw(st.integers(0, len(value) - 1))
    new = data.draw(st.characters(codec="ascii").filter(lambda c: c != value[at]))
    with pytest.raises(GrantRefused):
        keys.verify(value[:at] + new + value[at + 1 :], 1)


@pytest.mark.parametrize(
    "value",
    ["", ".", "a", "a.b", "..", "é.é", "x" * (MAX_VALUE_CHARACTERS + 1), "\ud800.a", " ", "a.b.c"],
)
def test_malformed_text_is_refused_as_malformed_grant(value: str) -> None:
    with pytest.raises(GrantRefused, match=r"malformed|signature"):
        GrantKeys([KEY]).verify(value, 1)


def test_a_grant_signed_by_an_unknown_key_is_refused() -> None:
    with pytest.raises(GrantRefused) as refused:
        GrantKeys([KEY]).verify(GrantKeys([OTHER]).sign(GRANT), 1)
    assert refused.value.reason == "signature"


def test_the_first_key_signs_and_all_verify() -> None:
    rotated = GrantKeys([OTHER, KEY])
    assert rotated.verify(GrantKeys([KEY]).sign(GRANT), 1) == GRANT
    assert GrantKeys([OTHER]).verify(rotated.sign(GRANT), 1) == GRANT


def test_a_cached_grant_expires() -> None:
    keys = GrantKeys([KEY])
    value = keys.sign(GRANT)
    assert keys.verify(value, 1999.9) == GRANT
    with pytest.raises(GrantRefused) as refused:
        keys.verify(value, 2000)
    assert refused.value.reason == "ended"


@pytest.mark.parametrize(
    "payload",
    [
        b'["s","j","k","u","control",1.0,2.0,"more"]',
        b'["s","j","k","u","control",1.0]',
        b'["s","j","k","u","admin",1.0,2.0]',
        b'["s","j","k","u","control",1,2]',
        b' ["s","j","k","u","control",1.0,2.0]',
        b'{"sid":"s"}',
        b"\xff",
    ],
)
def test_only_the_canonical_payload_counts_even_when_signed(payload: bytes) -> None:
    def b64(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).decode().rstrip("=")

    signature = hmac.digest(KEY, b"fumarole grant 1\n" + payload, hashlib.sha256)
    with pytest.raises(GrantRefused) as refused:
        GrantKeys([KEY]).verify(f"{b64(payload)}.{b64(signature)}", 1)
    assert refused.value.reason == "malformed"


@pytest.mark.parametrize("keys", [[], [b"x" * 31], [KEY, KEY]])
def test_missing_short_and_doubled_keys_are_refused(keys: list[bytes]) -> None:
    with pytest.raises(ValueError, match="key"):
        GrantKeys(keys)


def test_keys_do_not_show_in_a_repr() -> None:
    assert repr(KEY)[2:10] not in repr(GrantKeys([KEY]))


def test_the_cache_of_verified_grants_is_bounded() -> None:
    keys = GrantKeys([KEY])
    for number in range(5000):
        keys.verify(keys.sign(msgspec.structs.replace(GRANT, jti=str(number))), 1)
    assert len(keys._remembered) <= 4096


def test_a_grant_is_immutable() -> None:
    with pytest.raises((AttributeError, dataclasses.FrozenInstanceError)):
        GRANT.sub = "eve"  # type: ignore[misc]  # that is the point


def test_a_framed_grant_is_distinct_and_any_other_is_written_as_before() -> None:
    keys = GrantKeys([KEY])
    framed = msgspec.structs.replace(GRANT, framed=True)
    assert keys.verify(keys.sign(framed), 1) == framed
    assert keys.verify(keys.sign(GRANT), 1) == GRANT
    payload = decode_base64url(keys.sign(GRANT).partition(".")[0])
    assert msgspec.json.decode(payload) == [SID, "t1", "k1", "ada", "control", 1000.0, 2000.0]
