"""How messages are named and signed: Standard Webhooks (standardwebhooks.com), version 1.0."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence

VERSION = "v1"


def make_message_id(kind: str, number: int, *about: object) -> str:
    """Return the name of a message: the same with every attempt, whoever makes it.

    A store that was restored from a backup gives numbers once more. *about* tells apart what has
    the same number then.
    """
    digest = hashlib.sha256("\0".join(map(str, about)).encode()).hexdigest()
    return f"{kind}_{number}_{digest[:24]}"


def sign(secrets: Sequence[bytes], *, message_id: str, timestamp: int, body: bytes) -> str:
    """Return the field ``webhook-signature``: one signature by each of the secrets."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    digests = (hmac.digest(secret, signed, "sha256") for secret in secrets)
    return " ".join(f"{VERSION},{base64.b64encode(digest).decode()}" for digest in digests)
