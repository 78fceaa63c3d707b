"""Files that are taken anew when they change, and the gateway's own TLS, which is of such files."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

from cryptography.x509 import load_pem_x509_certificate
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

log = logging.getLogger(__name__)


LOOK_SECONDS: Final = 1.0
"""Between two looks at the files: they are on a local or memory file system in any deployment."""

_Seen: TypeAlias = tuple[tuple[int, ...], ...] | None


class ReloadedFiles(ABC):
    """Looks at *files* every second, and has them loaded anew once a change has rested.

    Make it before the files are loaded for the first time, so that no change falls in between.
    """

    def __init__(self, *files: Path) -> None:
        self._files = files
        self._seen = self._look()

    async def keep_fresh(self) -> None:
        """Look at the files every second until cancelled."""
        changed = False
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            changed = self.look(changed)

    def look(self, changed: bool) -> bool:
        """Have the files loaded if they have changed, and then have rested since the last look.

        Files that belong together are often replaced one after the other. Links are followed, so
        it does not matter which link of a path is exchanged, as those of a Kubernetes Secret are.

        Args:
            changed: What the last look returned.

        Returns:
            Whether there is a change that was not taken up yet.
        """
        seen = self._look()
        if seen != self._seen:
            self._seen = seen
            return True
        if changed:
            self._exchange()
        return False

    @abstractmethod
    def _exchange(self) -> None:
        """Load the files; keep what was loaded before where they cannot be used."""

    def _look(self) -> _Seen:
        try:
            found = [os.stat(path) for path in self._files]
        except OSError:
            return None
        return tuple((one.st_dev, one.st_ino, one.st_mtime_ns, one.st_size) for one in found)


def make_tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return the context that browsers are served with; only HTTP/1.1 is spoken.

    Raises:
        OSError: If the files do not hold a certificate and its key.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["http/1.1"])
    context.options |= ssl.OP_NO_RENEGOTIATION  # a handshake at their wish, as often as they like
    return context


class Certificates(ReloadedFiles, Collector):
    """Keeps :attr:`context`, with which the next connection is secured: that of the last good pair.

    Connections that are open stay as they are. A pair that cannot be used (half written, or not
    belonging together) is counted and logged, and the one before stays.

    Args:
        certificate: A PEM file with the chain.
        key: A PEM file with its key.

    Raises:
        OSError: If the files do not hold a certificate and its key.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        super().__init__(certificate, key)
        self.reloads = 0
        self.failures = 0
        self.expires_at = 0.0
        self.context = self._load()

    def _exchange(self) -> None:
        try:
            self.context = self._load()
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            self.failures += 1
            log.error("the new TLS certificate cannot be used, the last one stays: %s", error)
            return
        self.reloads += 1
        log.info("took a new TLS certificate", extra={"expires_at": int(self.expires_at)})

    def _load(self) -> ssl.SSLContext:
        certificate, key = self._files
        context = make_tls_context(certificate, key)
        leaf = load_pem_x509_certificate(certificate.read_bytes())
        self.expires_at = leaf.not_valid_after_utc.timestamp()
        return context

    def collect(self) -> Iterator[Metric]:
        """Yield how the certificate fares."""
        reloads = CounterMetricFamily(
            "fumarole_gateway_tls_reloads", "New certificates by result.", labels=["result"]
        )
        reloads.add_metric(["taken"], self.reloads)
        reloads.add_metric(["refused"], self.failures)
        yield reloads
        yield GaugeMetricFamily(
            "fumarole_gateway_tls_expires_at_seconds",
            "Unix time at which the certificate in use expires.",
            value=self.expires_at,
        )
