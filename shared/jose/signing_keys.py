"""Private keys from PEM files, their thumbprints, and the sets of their public keys."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from typing import Any, Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)

from shared.jose.jws import encode_base64url

_PEM: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)
MAX_KEYS: Final = 16
"""The maximum in one file: the first key signs, the others are for rotation."""


def read_private_keys(pem: bytes) -> list[PrivateKeyTypes]:
    """Return the private keys in *pem*, in order; errors hold no content of the file.

    Raises:
        ValueError: If a block is no private key, or has a passphrase.
    """
    keys: list[PrivateKeyTypes] = []
    for block in _PEM.finditer(pem):
        if block[1] == b"EC PARAMETERS":  # written by openssl ecparam -genkey
            continue
        try:
            keys.append(load_pem_private_key(block[0], password=None))
        except (ValueError, TypeError, UnsupportedAlgorithm):
            number = len(keys) + 1
            raise ValueError(f"block {number} is no private key, or has a passphrase") from None
    return keys


def named_jwks(members: Iterable[dict[str, Any]], *, algorithm: str) -> list[dict[str, Any]]:
    """Return public JSON Web Keys with the required *members*, with their thumbprints as ``kid``.

    Raises:
        ValueError: If there is no key, a key twice, or more than :data:`MAX_KEYS`.
    """
    found = [one | {"kid": thumbprint(one), "use": "sig", "alg": algorithm} for one in members]
    if not 1 <= len(found) <= MAX_KEYS:
        raise ValueError(f"from 1 to {MAX_KEYS} keys are needed, {len(found)} were found")
    if len({one["kid"] for one in found}) != len(found):
        raise ValueError("the same key is there twice")
    return found


def thumbprint(members: dict[str, Any]) -> str:
    """Return the thumbprint (RFC 7638) of the key with the required *members*."""
    canonical = json.dumps(members, sort_keys=True, separators=(",", ":"))
    return encode_base64url(hashlib.sha256(canonical.encode()).digest())


# Ed25519, for the controller


def read_signing_keys(pem: bytes) -> tuple[Ed25519PrivateKey, ...]:
    """Return the Ed25519 private keys in *pem*, in order; errors hold no content of the file.

    Raises:
        ValueError: If there is none, or one that is no unencrypted Ed25519 key.
    """
    keys: list[Ed25519PrivateKey] = []
    for number, key in enumerate(read_private_keys(pem), 1):
        if not isinstance(key, Ed25519PrivateKey):
            raise ValueError(f"the key in block {number} is not for Ed25519")
        keys.append(key)
    public_key_set(keys)
    return tuple(keys)


def public_jwk(key: Ed25519PrivateKey) -> dict[str, Any]:
    """Return the public part of *key* as a JSON Web Key, with its thumbprint as ``kid``."""
    (member,) = named_jwks([_members(key)], algorithm="EdDSA")
    return member


def public_key_set(keys: Iterable[Ed25519PrivateKey]) -> dict[str, Any]:
    """Return the JSON Web Key Set of the public parts of *keys*."""
    return {"keys": named_jwks(map(_members, keys), algorithm="EdDSA")}


def _members(key: Ed25519PrivateKey) -> dict[str, Any]:
    """Return the required members of *key* (RFC 8037, section 2)."""
    raw = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    return {"crv": "Ed25519", "kty": "OKP", "x": encode_base64url(raw)}
