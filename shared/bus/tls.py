"""Whom a connection by TLS trusts.

The authorities in the file that the URL names and no others, or the system's where it names none.
The files are read with every connection, so that certificates can be renewed under a process that
runs for months. Names and addresses are always compared.
"""

from __future__ import annotations

import ssl
from typing import Any, Final

from redis.asyncio import SSLConnection
from redis.asyncio.sentinel import SentinelManagedSSLConnection

HANDSHAKE_SECONDS: Final = 4.0
"""Less than for a call: so that a port where nobody answers TLS is told from one that is slow.
Redis without TLS takes what begins a handshake for an empty line, and waits for more."""


class _Trust:
    """Stands where redis keeps one context for the life of a connection object."""

    def __init__(
        self,
        ssl_ca_certs: str | None = None,
        ssl_certfile: str | None = None,
        ssl_keyfile: str | None = None,
    ) -> None:
        self._authorities = ssl_ca_certs
        self._certificate = ssl_certfile
        self._key = ssl_keyfile

    def get(self) -> ssl.SSLContext:
        """Return what the next connection is secured with."""
        context = ssl.create_default_context(cafile=self._authorities)
        if self._certificate is not None:
            context.load_cert_chain(self._certificate, self._key)
        return context


class _Trusting:
    def __init__(self, *, trust: dict[str, str], **options: Any) -> None:
        super().__init__(**options)
        self.ssl_context: Any = _Trust(**trust)

    def _connection_arguments(self) -> dict[str, Any]:
        arguments: dict[str, Any] = super()._connection_arguments()  # type: ignore[misc]  # of redis' connection
        return arguments | {"ssl_handshake_timeout": HANDSHAKE_SECONDS}


class TlsConnection(_Trusting, SSLConnection):
    """A connection by TLS."""


class SentinelTlsConnection(_Trusting, SentinelManagedSSLConnection):
    """A connection by TLS to the master that Sentinels name."""
