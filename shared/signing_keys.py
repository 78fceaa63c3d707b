"""The controller's signing keys, from PEM, and the set of public keys that gateways verify with."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from shared.signed_table import public_jwk

_PEM: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)
_MOST_KEYS: Final = 16


def read_signing_keys(pem: bytes) -> tuple[Ed25519PrivateKey, ...]:
    """Return the private keys in *pem*, in their order; nothing of them is in an error.

    Raises:
        ValueError: If there is none, or one that is no unencrypted Ed25519 key.
    """
    blocks = [match[0] for match in _PEM.finditer(pem)]
    if not 1 <= len(blocks) <= _MOST_KEYS:
        raise ValueError(f"the file holds {len(blocks)} keys in PEM, not 1 to {_MOST_KEYS}")
    keys = tuple(_read(block, number) for number, block in enumerate(blocks, 1))
    if len({key.private_bytes_raw() for key in keys}) != len(keys):
        raise ValueError("the file holds a key twice")
    return keys


def _read(block: bytes, number: int) -> Ed25519PrivateKey:
    try:
        key = load_pem_private_key(block, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ValueError(f"key {number} cannot be read, or needs a password") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError(f"key {number} is no private key for Ed25519")
    return key


def public_key_set(keys: Iterable[Ed25519PrivateKey]) -> dict[str, Any]:
    """Return the JSON Web Key set that verifies what *keys* sign."""
    return {"keys": [public_jwk(key) for key in keys]}
