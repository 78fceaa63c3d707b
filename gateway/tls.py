"""Files that are reloaded when they change, and the gateway's TLS certificate, which is one."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509 import load_pem_x509_certificate, load_pem_x509_certificates
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

log = logging.getLogger(__name__)


LOOK_SECONDS: Final = 1.0
"""Between two checks of the files, which are on a local or memory file system in any deployment."""
_RETRY_LOOKS: Final = 60
"""Checks after which a failed load is repeated even if the files have not changed. The cause may
be elsewhere, such as too many open files."""

_Stats: TypeAlias = tuple[tuple[int, ...], ...] | None


class ReloadedFiles(Collector, ABC):
    """Checks *files* every second, and reloads them once a change has settled.

    Files that cannot be used are counted and logged; the last good content stays in use. A
    subclass loads them for the first time after ``super().__init__``, so that no change is missed.

    Args:
        what: What the files hold, for the log and the metric's help.
        counter: The metric that counts reloads.
    """

    def __init__(self, *files: Path, what: str, counter: str) -> None:
        self.reloads = 0
        self.failures = 0
        self._files = files
        self._what = what
        self._counter = counter
        self._looks_until_retry = 0
        self._stats = self._read_stats()

    async def keep_fresh(self) -> None:
        """Check the files every second until cancelled."""
        changed = False
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            changed = self.look(changed)

    def look(self, changed: bool) -> bool:
        """Reload the files if they have changed and then stayed the same since the last check.

        Files that belong together are often replaced one after the other. Symbolic links are
        followed, so a change of any link in the path counts, as in a Kubernetes Secret.

        Args:
            changed: What the last check returned.

        Returns:
            Whether there is a change that is not loaded yet.
        """
        stats = self._read_stats()
        if stats != self._stats:
            self._stats = stats
            return True
        if changed or self._looks_until_retry == 1:
            self._reload()
        elif self._looks_until_retry:
            self._looks_until_retry -= 1
        return False

    def _reload(self) -> None:
        try:
            fields = self._load()
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            self.failures += 1
            self._looks_until_retry = _RETRY_LOOKS
            log.error("cannot load the new %s, the last one stays: %s", self._what, error)
            return
        self.reloads += 1
        self._looks_until_retry = 0
        log.info("loaded the new %s", self._what, extra=fields)

    @abstractmethod
    def _load(self) -> Mapping[str, object]:
        """Load the files and use their content from now on; return fields for the log.

        Raises:
            OSError: If they cannot be used; nothing has changed then.
            ValueError: The same.
        """

    def _read_stats(self) -> _Stats:
        try:
            found = [os.stat(path) for path in self._files]
        except OSError:
            return None
        return tuple((one.st_dev, one.st_ino, one.st_mtime_ns, one.st_size) for one in found)

    def collect(self) -> Iterator[Metric]:
        """Yield the number of reloads by result."""
        reloads = CounterMetricFamily(
            self._counter, f"Reloads of the {self._what} by result.", labels=["result"]
        )
        reloads.add_metric(["taken"], self.reloads)
        reloads.add_metric(["refused"], self.failures)
        yield reloads


def make_tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return the server context for *certificate* and *key*, with ALPN ``http/1.1`` only.

    Raises:
        OSError: If the files do not hold a certificate and its key.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        # Without a password, OpenSSL asks for that of an encrypted key on the terminal, and waits.
        context.load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        raise OSError(_why_unusable(certificate, key, error)) from error
    context.set_alpn_protocols(["http/1.1"])
    # Renegotiation would let a client demand handshakes without limit.
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context


def _why_unusable(certificate: Path, key: Path, error: ssl.SSLError) -> str:
    """Return which file is at fault: for most causes, OpenSSL says "PEM lib"."""
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"{key} is not the key of {certificate}"
    try:
        load_pem_x509_certificates(certificate.read_bytes())
    except ValueError:
        return f"{certificate} holds no certificate in PEM form, or a damaged one"
    if b"ENCRYPTED" in key.read_bytes():
        return f"{key} is encrypted: write it without a passphrase"
    try:
        load_pem_private_key(key.read_bytes(), None)
    except (ValueError, UnsupportedAlgorithm):
        return f"{key} holds no private key in PEM form"
    return f"OpenSSL refuses {certificate} and {key}: {error.reason}"


class Certificates(ReloadedFiles):
    """Keeps :attr:`context`, the TLS context of new connections, on the last good pair of files.

    Open connections keep their context. Reasons to refuse a pair are that it is half written, or
    that key and certificate do not belong together.

    Args:
        certificate: A PEM file with the chain.
        key: A PEM file with its key.

    Raises:
        OSError: If the files do not hold a certificate and its key.
    """

    context: ssl.SSLContext

    def __init__(self, certificate: Path, key: Path) -> None:
        super().__init__(
            certificate, key, what="TLS certificate", counter="fumarole_gateway_tls_reloads"
        )
        self.expires_at = 0.0
        self._load()

    def _load(self) -> Mapping[str, object]:
        certificate, key = self._files
        context = make_tls_context(certificate, key)
        leaf = load_pem_x509_certificate(certificate.read_bytes())
        self.context, self.expires_at = context, leaf.not_valid_after_utc.timestamp()
        return {"expires_at": int(self.expires_at)}

    def collect(self) -> Iterator[Metric]:
        """Yield the number of reloads, and when the certificate expires."""
        yield from super().collect()
        yield GaugeMetricFamily(
            "fumarole_gateway_tls_expires_at_seconds",
            "Unix time at which the certificate in use expires.",
            value=self.expires_at,
        )
