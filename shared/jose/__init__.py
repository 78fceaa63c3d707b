"""JSON Web Signatures and keys (RFC 7515, 7517).

- ``jws``: signatures and the public keys that verify them; no I/O.
- ``signing_keys``: private keys and their public sets; no I/O.
- ``jwks``: the orchestrator's public keys, from a URL or a file.
"""
