"""TLS with Redis: it trusts only the authorities in the file that the URL names, or the system's.

The files are read with every connection, so that certificates can be renewed while the process
runs. Host names are always verified.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from redis.asyncio import SSLConnection
from redis.asyncio.sentinel import SentinelManagedSSLConnection

from shared.bus.translation import NotServed
from shared.tls import make_client_tls

HANDSHAKE_SECONDS: Final = 4.0
"""Shorter than the deadline of a call, to tell a port without TLS from a slow server. A Redis
without TLS takes the begin of a handshake for an empty line, and waits for more."""


class _Trust:
    """Replaces the TLS context that redis-py keeps for the life of a connection object."""

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
        """Return a context for the next connection, with files read now."""
        with _naming(self._authorities):
            context = make_client_tls(self._authorities)
        if self._certificate is not None:
            with _naming(self._certificate, self._key):
                # Without a password, OpenSSL asks for that of an encrypted key on the terminal.
                context.load_cert_chain(self._certificate, self._key, password="")
        return context


@contextmanager
def _naming(*files: str | None) -> Iterator[None]:
    """Name *files* in what is raised: errors of the TLS library name none."""
    try:
        yield
    except OSError as error:
        why = error.reason if isinstance(error, ssl.SSLError) else error.strerror
        names = " or ".join(file for file in files if file)
        raise NotServed(f"{names or 'authorities'} cannot be used: {why}") from error


class _Trusting:
    def __init__(self, *, trust: dict[str, str], **options: Any) -> None:
        super().__init__(**options)
        self.ssl_context: Any = _Trust(**trust)

    def _connection_arguments(self) -> dict[str, Any]:
        arguments: dict[str, Any] = super()._connection_arguments()  # type: ignore[misc]  # of redis' connection
        return arguments | {"ssl_handshake_timeout": HANDSHAKE_SECONDS}


class TlsConnection(_Trusting, SSLConnection):
    """A TLS connection."""


class SentinelTlsConnection(_Trusting, SentinelManagedSSLConnection):
    """A TLS connection to the master that Sentinels name."""
