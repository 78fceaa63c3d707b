"""Signatures and keys, as JOSE has them (RFC 7515, 7517).

- ``jws``: signatures, and the public keys that verify them. ``signing_keys``: private keys. No I/O.
- ``jwks``: where the orchestrator's public keys come from.
"""
