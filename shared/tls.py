"""TLS contexts of clients: which authorities they trust, and how strictly certificates are read."""

from __future__ import annotations

import ssl
from pathlib import Path


def make_client_tls(authorities: Path | str | None = None) -> ssl.SSLContext:
    """Return a TLS context that verifies the server's certificate and name.

    Reads files, so it may block for some milliseconds.

    Args:
        authorities: A PEM file. Only these authorities are trusted, or the system's if None;
            ``SSL_CERT_FILE`` names another file for the system's.

    Raises:
        OSError: If the file holds no certificate.
    """
    context = ssl.create_default_context(cafile=authorities)
    # Python 3.13 sets this by default. The authorities of EKS, of microk8s, of old clusters and of
    # many private services lack extensions which RFC 5280 demands: they have no key identifiers or
    # no key usage, so each connection would fail with ``Missing Authority Key Identifier``.
    # Browsers, Go's clients, curl and Python until 3.12 demand neither. Signature, host name and
    # validity are still verified.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
