"""Compact JSON Web Signatures (RFC 7515) and the public keys that verify them (RFC 7517).

PyJWT verifies the signatures. Parsing is stricter than PyJWT's and than the RFCs require:

- base64url must be canonical, so that every changed character is noticed,
- JSON objects must not repeat a key,
- a ``kid`` is required, and the algorithm must be the one of that key, so that a header cannot
  choose how it is verified (RFC 8725, section 3.1),
- a key set must not hold two keys of one ``kid``, nor a private key.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.algorithms import Algorithm, ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from shared.errors import BadKeySet, TokenRefused

MAX_TOKEN_BYTES = 16384
MIN_RSA_BITS = 2048
MAX_KEYS = 256
MOST_MEMBERS = 4096
"""The maximum number of members of a JSON object; no valid object has as many."""
_FORBIDDEN_HEADERS = frozenset({"jku", "jwk", "x5u", "x5c", "crit", "b64", "zip"})

PublicKey: TypeAlias = Ed25519PublicKey | EllipticCurvePublicKey | RSAPublicKey


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A public key and the only algorithm that it verifies."""

    kid: str
    algorithm: str
    public: PublicKey


@dataclass(frozen=True, slots=True)
class Unverified:
    """The parts of a JWS whose signature has not been checked."""

    header: Mapping[str, Any]
    payload: bytes
    signing_input: bytes
    signature: bytes
    kid: str
    algorithm: str


class KeySet(dict[str, VerificationKey]):
    """Verification keys by ``kid``; ``problems`` describes the ignored members of the source."""

    def __init__(
        self,
        keys: Mapping[str, VerificationKey] = MappingProxyType({}),
        problems: Sequence[str] = (),
    ) -> None:
        super().__init__(keys)
        self.problems = tuple(problems)

    def __repr__(self) -> str:
        return f"KeySet({', '.join(sorted(self))})"


# Reading


def strict_json_object(data: bytes) -> dict[str, Any]:
    """Return the JSON object in *data*, in which no object repeats a key.

    Raises:
        ValueError: If it is not UTF-8, not JSON (``NaN`` is not), not an object, or repeats a key;
            or if an object has more than :data:`MOST_MEMBERS`.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(pairs) > MOST_MEMBERS:
            raise ValueError(f"an object has more than {MOST_MEMBERS} members")
        members = dict(pairs)
        if len(members) != len(pairs):
            raise ValueError("a key is repeated")
        return members

    def constant(name: str) -> Any:
        raise ValueError(f"{name} is not JSON")

    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=unique, parse_constant=constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def decode_base64url(text: str) -> bytes:
    """Return the bytes of canonical, unpadded base64url (RFC 7515, section 2).

    Raises:
        ValueError: If it is not base64url, or not the canonical text of its bytes.
    """
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        raise ValueError("not base64url") from None
    if encode_base64url(data) != text:
        raise ValueError("not canonical base64url")
    return data


def encode_base64url(data: bytes) -> str:
    """Return *data* as unpadded base64url."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def read_unverified(token: str) -> Unverified:
    """Return the parts of *token* without checking its signature.

    Raises:
        TokenRefused: ``malformed``; or ``header`` for a header that could redirect verification.
    """
    if len(token) > MAX_TOKEN_BYTES:
        raise TokenRefused("malformed", "the token is too long")
    parts = token.split(".")
    if len(parts) != 3 or not token.isascii():
        raise TokenRefused("malformed", "the token is not a compact JWS")
    try:
        raw_header, payload, signature = (decode_base64url(part) for part in parts)
        header = strict_json_object(raw_header)
    except ValueError as error:
        raise TokenRefused("malformed", f"the token is malformed: {error}") from None
    forbidden = _FORBIDDEN_HEADERS & header.keys()
    if forbidden:
        raise TokenRefused("header", f"the token's header has {', '.join(sorted(forbidden))}")
    kid, algorithm = header.get("kid"), header.get("alg")
    if not isinstance(kid, str) or not kid or not isinstance(algorithm, str):
        raise TokenRefused("header", "the token's header names no kid or no alg")
    signing_input = token.rpartition(".")[0].encode("ascii")
    return Unverified(header, payload, signing_input, signature, kid, algorithm)


def unverified_payload(token: str) -> bytes:
    """Return the payload of *token* without checking its signature."""
    return read_unverified(token).payload


# Verifying

_ALGORITHMS: Mapping[str, Algorithm] = {
    "EdDSA": OKPAlgorithm(),
    "ES256": ECAlgorithm(ECAlgorithm.SHA256),
    "RS256": RSAAlgorithm(RSAAlgorithm.SHA256),
}


def verify_signature(token: Unverified, keys: Mapping[str, VerificationKey]) -> None:
    """Check that one of *keys* signed *token*.

    Raises:
        TokenRefused: ``kid`` for an unknown key, ``algorithm`` if it is not the key's,
            ``signature`` if the signature is invalid.
    """
    key = keys.get(token.kid)
    if key is None:
        raise TokenRefused("kid", "the token names a key that is not known")
    if token.algorithm != key.algorithm:
        raise TokenRefused("algorithm", f"the key is for {key.algorithm}")
    algorithm: Any = _ALGORITHMS[key.algorithm]
    try:
        good = algorithm.verify(token.signing_input, key.public, token.signature)
    except (ValueError, TypeError, jwt.PyJWTError):
        good = False
    if not good:
        raise TokenRefused("signature", "the token's signature does not hold")


def verified_payload(token: str, keys: Mapping[str, VerificationKey]) -> bytes:
    """Return the payload of *token* if one of *keys* signed it.

    Raises:
        TokenRefused: If none of them did.
    """
    parts = read_unverified(token)
    verify_signature(parts, keys)
    return parts.payload


# Keys


def read_key_set(data: bytes) -> KeySet:
    """Return the keys of the JSON Web Key Set *data* that can verify tokens.

    Keys of other types and for other uses are ignored, as are all keys that share a ``kid``, which
    would be ambiguous.

    Raises:
        BadKeySet: If *data* is no key set, or holds no usable key.
    """
    try:
        members = strict_json_object(data).get("keys")
    except ValueError as error:
        raise BadKeySet(f"not a JSON Web Key set: {error}") from None
    if not isinstance(members, list) or len(members) > MAX_KEYS:
        raise BadKeySet(f"a JSON Web Key set has a list of at most {MAX_KEYS} keys")
    keys: dict[str, VerificationKey] = {}
    problems: list[str] = []
    seen: set[str] = set()
    for index, member in enumerate(members):
        try:
            key = _read_key(member)
        except ValueError as error:
            problems.append(f"keys[{index}]: {error}")
            continue
        if key.kid in seen:
            keys.pop(key.kid, None)
            problems.append(f"keys[{index}]: its kid is used twice")
        else:
            keys[key.kid] = key
        seen.add(key.kid)
    if not keys:
        raise BadKeySet("; ".join(["no key in the set can verify a token", *problems]))
    return KeySet(keys, problems)


def _read_key(member: object) -> VerificationKey:
    if not isinstance(member, dict):
        raise ValueError("not an object")
    kid = member.get("kid")
    if not isinstance(kid, str) or not 1 <= len(kid) <= 255:
        raise ValueError("it has no kid")
    if "d" in member or "k" in member:
        raise ValueError("it holds a private or symmetric key, which must not be published")
    uses, operations = member.get("use", "sig"), member.get("key_ops", ["verify"])
    if uses != "sig" or not isinstance(operations, list) or "verify" not in operations:
        raise ValueError("it is not for verifying signatures")
    algorithm, public = _load_public(member)
    if member.get("alg", algorithm) != algorithm:
        raise ValueError(f"a key of this type is for {algorithm}")
    return VerificationKey(kid, algorithm, public)


def _load_public(member: dict[str, Any]) -> tuple[str, PublicKey]:
    text = json.dumps(member)
    try:
        match member.get("kty"):
            case "OKP" if member.get("crv") == "Ed25519":
                key: Any = OKPAlgorithm.from_jwk(text)
            case "EC" if member.get("crv") == "P-256":
                key = ECAlgorithm.from_jwk(text)
            case "RSA":
                key = RSAAlgorithm.from_jwk(text)
            case _:
                raise ValueError("keys of this type are not used")
    except (jwt.PyJWTError, TypeError, KeyError, binascii.Error) as error:
        raise ValueError(f"it cannot be read: {error}") from None
    if isinstance(key, Ed25519PublicKey):
        return "EdDSA", key
    if isinstance(key, EllipticCurvePublicKey) and isinstance(key.curve, SECP256R1):
        return "ES256", key
    if isinstance(key, RSAPublicKey) and key.key_size >= MIN_RSA_BITS:
        return "RS256", key
    raise ValueError(f"it is shorter than {MIN_RSA_BITS} bits or not a public key")
