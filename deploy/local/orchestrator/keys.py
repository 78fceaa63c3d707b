"""The orchestrator's signing key: made once, in a file that only its owner can read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256, Hash
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from jwt.algorithms import OKPAlgorithm


class SigningKey:
    """An Ed25519 key and its name. Only the public half ever leaves this process."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self.private = private
        public = private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        digest = Hash(SHA256())
        digest.update(public)
        # The name is derived from the key, so a new key never has the name of an old one.
        self.kid = digest.finalize().hex()[:16]

    def __repr__(self) -> str:
        return f"SigningKey({self.kid})"

    def jwks(self) -> dict[str, Any]:
        """Return the JSON Web Key set (RFC 7517) that verifies what this key signs."""
        jwk = OKPAlgorithm.to_jwk(self.private.public_key(), as_dict=True)
        return {"keys": [jwk | {"kid": self.kid, "alg": "EdDSA", "use": "sig"}]}


def ensure_key(folder: Path) -> SigningKey:
    """Return the key in *folder*; make it if there is none.

    Raises:
        ValueError: If the file holds another kind of key.
    """
    path = folder / "signing-key.pem"
    if not path.exists():
        made = Ed25519PrivateKey.generate()
        pem = made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        # Created with its final mode, so nobody else can open it at any moment.
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(pem)
    key = load_pem_private_key(path.read_bytes(), None)
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError(f"{path} holds no Ed25519 key")
    return SigningKey(key)
