"""An orchestrator's keys, and valid and invalid tokens signed with them."""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from jwt.algorithms import OKPAlgorithm

ISSUER = "https://orchestrator.example.org"


class Signer:
    """One signing key with its ``kid``."""

    def __init__(self, kid: str = "k1") -> None:
        self.kid = kid
        self.private = Ed25519PrivateKey.generate()

    def jwk(self) -> dict[str, Any]:
        """Return the public key in the form of a key set's entry."""
        key: dict[str, Any] = json.loads(OKPAlgorithm.to_jwk(self.private.public_key()))
        return key | {"kid": self.kid, "use": "sig", "alg": "EdDSA"}

    def publish(self, path: Path, *others: Signer) -> None:
        """Write the key set to *path*."""
        path.write_text(json.dumps({"keys": [self.jwk(), *(one.jwk() for one in others)]}))

    def token(self, sid: str, **changes: Any) -> str:
        """Return a valid token for *sid* with these changes; a claim of ``...`` is left out."""
        now = int(time.time())
        claims = {
            "iss": ISSUER,
            "aud": "fumarole-gateway",
            "sub": "ada",
            "iat": now,
            "exp": now + 60,
            "jti": uuid.uuid4().hex,
            "sid": sid,
            "job": "j1",
            "rank": 0,
            "kind": "web",
        }
        claims = {name: value for name, value in (claims | changes).items() if value is not ...}
        return jwt.encode(claims, self.private, algorithm="EdDSA", headers={"kid": self.kid})
