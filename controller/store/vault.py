"""Seals the secrets of a job from its acceptance until it is over.

A job's secrets must outlive a crash between its acceptance and its submission, and a Secret of
the cluster cannot be read back. So they are in the store, sealed (AES-256-GCM) with a key that is
derived from the link key and bound to the job's id; when the job is over they are dropped. The
store alone reveals none.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from controller.store.errors import StoreError
from shared.link import derive_key

_NONCE_BYTES: Final = 12


class VaultClosed(StoreError):
    """The sealed text is damaged, another job's, or of a key that is no longer there."""


class Vault:
    """Seals with the first of the link keys, opens with any."""

    __slots__ = ("_ciphers", "_macs")

    def __init__(self, link_keys: Sequence[bytes]) -> None:
        self._ciphers = [AESGCM(derive_key(key, "stored secrets")) for key in link_keys]
        self._macs = [derive_key(key, "secrets' fingerprints") for key in link_keys]

    def __repr__(self) -> str:
        return "Vault(…)"

    def seal(
        self, job_id: str, secrets: Mapping[str, str], *, random: Callable[[int], bytes]
    ) -> bytes:
        """Return *secrets* as only :meth:`open` can read them."""
        nonce = random(_NONCE_BYTES)
        return nonce + self._ciphers[0].encrypt(nonce, _plain(secrets), _bound_to(job_id))

    def open(self, job_id: str, sealed: bytes) -> dict[str, str]:
        """Return the secrets that were sealed for the job.

        Raises:
            VaultClosed: If they cannot be read.
        """
        nonce, text = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        for cipher in self._ciphers:
            try:
                secrets: dict[str, str] = json.loads(cipher.decrypt(nonce, text, _bound_to(job_id)))
            except (InvalidTag, ValueError):
                continue
            return secrets
        raise VaultClosed("the job's secrets cannot be read: is the link key another one?")

    def fingerprint(self, job_id: str, secrets: Mapping[str, str]) -> bytes:
        """Return what tells these secrets from others, and nothing about them without the key."""
        return self._fingerprint(self._macs[0], job_id, secrets)

    def matches(self, job_id: str, secrets: Mapping[str, str], fingerprint: bytes) -> bool:
        """Say whether *fingerprint* was made of these secrets."""
        made = [self._fingerprint(key, job_id, secrets) for key in self._macs]
        return any(hmac.compare_digest(one, fingerprint) for one in made)

    @staticmethod
    def _fingerprint(key: bytes, job_id: str, secrets: Mapping[str, str]) -> bytes:
        return hmac.digest(key, _bound_to(job_id) + b"\0" + _plain(secrets), hashlib.sha256)


def _plain(secrets: Mapping[str, str]) -> bytes:
    return json.dumps(dict(secrets), sort_keys=True).encode()


def _bound_to(job_id: str) -> bytes:
    return f"fumarole:secrets:{job_id}".encode()
