"""Assertions: their claims, their lifetime, and how few signatures they need."""

from __future__ import annotations

import json
import math
from typing import Any

import jwt
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from gateway.core.access import assertions as module
from gateway.core.access.access_right import AccessRight
from gateway.core.access.assertions import (
    LIFE_SECONDS,
    RENEWED_SECONDS,
    AssertionKeys,
    Assertions,
    read_assertion_keys,
)
from gateway.core.access.grants import Grant
from shared.jose.jws import read_key_set
from tests.gateway.relay.harness import SID, route, table_of

NOW = 1_900_000_000.75
ISSUER = "https://apps.example.com"
GRANT = Grant(SID, "t1", "k1", "ada", "control", NOW - 5, NOW + 3600)
KEY = ec.generate_private_key(ec.SECP256R1())


def pem(key: Any = KEY, password: bytes | None = None) -> bytes:
    hidden = BestAvailableEncryption(password) if password else NoEncryption()
    made: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, hidden)
    return made


def right(grant: Grant | None = GRANT, **changes: Any) -> AccessRight:
    made = table_of(route(1, **changes)).route(SID)
    assert made is not None
    return AccessRight(route=made, host=made.hosts[0], grant=grant)


def made(assertions: Assertions, **changes: Any) -> dict[str, Any]:
    """Return the claims of an assertion, verified as an app verifies it."""
    grant = msgspec.structs.replace(GRANT, **changes)
    assertion = assertions.for_request(right(grant), NOW)
    assert assertion is not None
    return verified(assertion.value, assertions.jwks)


def verified(value: str, jwks: bytes) -> dict[str, Any]:
    key = jwt.PyJWKSet.from_json(jwks.decode())[jwt.get_unverified_header(value)["kid"]]
    claims: dict[str, Any] = jwt.decode(
        value,
        key,
        algorithms=["ES256"],
        audience=SID,
        issuer=ISSUER,
        options={"verify_exp": False, "verify_iat": False},
    )
    return claims


@pytest.fixture
def assertions() -> Assertions:
    return Assertions(AssertionKeys([KEY]), issuer=ISSUER)


@pytest.mark.parametrize("sub", ["ada", "Ada Ü/%,", "日本", 'a"b\\c', "x" * 255])
def test_an_assertion_names_user_and_session(assertions: Assertions, sub: str) -> None:
    assert made(assertions, sub=sub) == {
        "iss": ISSUER,
        "aud": SID,
        "sub": sub,
        "iat": math.floor(NOW),
        "exp": math.floor(NOW) + LIFE_SECONDS,
        "job": "j1",
        "rank": 0,
    }


def test_an_assertion_outlives_neither_grant_nor_session(assertions: Assertions) -> None:
    assert made(assertions, ends_at=NOW + 30)["exp"] == math.ceil(NOW + 30)
    # One that is over at once would be "expired" already when the app reads it.
    last = made(assertions, ends_at=NOW + 0.1)
    assert last["exp"] == last["iat"] + 1
    assertion = assertions.for_request(right(expires_at=NOW + 10), NOW)
    assert assertion is not None
    assert verified(assertion.value, assertions.jwks)["exp"] == math.ceil(NOW + 10)
    assert assertion.renew_at == NOW + 10


def test_no_assertion_is_made_for_a_public_request(assertions: Assertions) -> None:
    assert assertions.for_request(right(None, public=True), NOW) is None
    assert assertions.signed == 0


def test_one_assertion_is_signed_per_minute_and_grant(assertions: Assertions) -> None:
    first = assertions.for_request(right(), NOW)
    assert first is not None
    for later in (0.0, 1.0, RENEWED_SECONDS - 0.01):
        assert assertions.for_request(right(), NOW + later) is first
    assert assertions.signed == 1
    assert assertions.for_request(right(), NOW + RENEWED_SECONDS) is not first
    assert assertions.signed == 2
    # An app that gets the last one has a minute to look at it.
    assert LIFE_SECONDS - RENEWED_SECONDS >= 60


def test_a_clock_set_back_creates_another_assertion(assertions: Assertions) -> None:
    assertions.for_request(right(), NOW)
    again = assertions.for_request(right(), NOW - 3)
    assert again is not None
    assert again.made_at == NOW - 3


def test_another_grant_gets_another_assertion(assertions: Assertions) -> None:
    values = {made(assertions, sub=sub)["sub"] for sub in ("ada", "eve", "ada")}
    assert values == {"ada", "eve"}
    assert assertions.signed == 2


def test_the_number_of_cached_assertions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REMEMBERED", 3)
    assertions = Assertions(AssertionKeys([KEY]), issuer=ISSUER)
    for number in range(5):
        made(assertions, jti=f"t{number}")
    assert len(assertions._made) == 3
    made(assertions, jti="t4")
    assert assertions.signed == 5
    made(assertions, jti="t0")
    assert assertions.signed == 6


def test_of_several_keys_the_first_signs_and_all_are_published(assertions: Assertions) -> None:
    old = assertions.for_request(right(), NOW)
    assert old is not None
    new = ec.generate_private_key(ec.SECP256R1())
    both = read_assertion_keys(pem() + b"# the next one\n" + pem(new))
    assertions.replace_keys(both)
    assert jwt.get_unverified_header(made_value(assertions))["kid"] == both.kid
    assert verified(old.value, assertions.jwks)["sub"] == "ada"
    assertions.replace_keys(read_assertion_keys(pem(new) + pem()))
    assert jwt.get_unverified_header(made_value(assertions))["kid"] != both.kid
    assert verified(old.value, assertions.jwks)["sub"] == "ada"
    assertions.replace_keys(read_assertion_keys(pem(new)))
    with pytest.raises(KeyError):
        verified(old.value, assertions.jwks)


def made_value(assertions: Assertions) -> str:
    assertion = assertions.for_request(right(), NOW)
    assert assertion is not None
    return assertion.value


def test_no_private_key_material_is_published(assertions: Assertions) -> None:
    (member,) = json.loads(assertions.jwks)["keys"]
    assert set(member) == {"kty", "crv", "x", "y", "kid", "use", "alg"}
    assert list(read_key_set(assertions.jwks)) == [member["kid"]]
    assertion = assertions.for_request(right(), NOW)
    assert assertion is not None
    shown = f"{assertion!r} {AssertionKeys([KEY])!r}"
    assert not any(part in shown for part in assertion.value.split("."))
    assert str(KEY.private_numbers().private_value) not in shown


def test_keys_written_by_openssl_are_read() -> None:
    parameters = b"-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"
    plain = KEY.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    assert read_assertion_keys(parameters + plain).kid == AssertionKeys([KEY]).kid


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "0 were found"),
        (b"no key", "0 were found"),
        (pem() + pem(), "twice"),
        (pem(password=b"x"), "passphrase"),
        (pem(ed25519.Ed25519PrivateKey.generate()), "P-256"),
        (pem(ec.generate_private_key(ec.SECP384R1())), "P-256"),
        (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "block 1"),
    ],
)
def test_an_unsuitable_key_is_refused_without_being_printed(content: bytes, says: str) -> None:
    with pytest.raises(ValueError, match=says) as refused:
        read_assertion_keys(content)
    assert "MI" not in str(refused.value)


def test_the_number_of_assertion_keys_is_bounded() -> None:
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(17)]
    with pytest.raises(ValueError, match="17 were found"):
        AssertionKeys(keys)
