"""What the client shows the API server, read again before it ends and when it was refused."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import time
from pathlib import Path
from typing import Final, TypeAlias

import yaml

from controller.kube.errors import Unavailable
from controller.kube.library import (
    ConfigException,
    Configuration,
    load_incluster_config,
    load_kube_config,
)

CREDENTIALS_SECONDS: Final = 60.0
"""How long credentials are used before they are read again: bound ServiceAccount tokens and exec
credentials end, and nothing says when."""
CREDENTIALS_WAIT_SECONDS: Final = 10.0
"""How long the program that gives them may take."""

Certificates: TypeAlias = tuple[bytes, ...]
"""What authorities, the client's certificate and its key are, as their files have them."""

# The library takes a kubeconfig for what it should be: one may be half written.
_MALFORMED: Final = (
    *(ConfigException, yaml.YAMLError, OSError, ValueError, TypeError),
    *(AssertionError, AttributeError, LookupError),
)

log = logging.getLogger(__name__)


class Credentials:
    """The client's configuration: in-cluster where there is one, else a kubeconfig.

    ``generation`` counts how often they were read again. Authorities and client certificates are
    read with tokens: clusters rotate them, and programs give certificates for an hour.

    Args:
        kubeconfig: A kubeconfig's path; without it the in-cluster configuration if this is a pod,
            else ``~/.kube/config``.
    """

    def __init__(self, kubeconfig: Path | None) -> None:
        self._kubeconfig = kubeconfig
        self._lock = asyncio.Lock()
        self._read_at = 0.0
        self._certificates: Certificates = ()
        self._contexts: list[ssl.SSLContext] = []
        self.generation = 0
        self.configuration = Configuration()

    async def load(self) -> None:
        """Read the configuration for the first time.

        Raises:
            Unavailable: If there is none, or it is malformed.
        """
        await self._load_into(self.configuration)
        self._take_certificates(self.configuration)
        self._read_at = time.monotonic()
        self.configuration.refresh_api_key_hook = self._refresh_hook

    @property
    def has_certificate(self) -> bool:
        """Whether the client shows a certificate: connections keep that of when they opened."""
        return bool(self.configuration.cert_file)

    def follow(self, context: ssl.SSLContext) -> None:
        """Have connections that *context* opens trust and show what is read from now on.

        An authority that is taken away stays trusted until the process ends.
        """
        self._contexts.append(context)

    async def renew(self, generation: int) -> None:
        """Read the credentials again: the server refused those of *generation*.

        Of many calls that were refused together the first reads them: it may start a program.

        Raises:
            Unavailable: If they cannot be read.
        """
        async with self._lock:
            if self.generation == generation:
                await self._renew()

    async def _renew(self) -> None:
        fresh = Configuration()
        await self._load_into(fresh)
        if self.configuration.api_key and not (fresh.api_key or fresh.cert_file):
            raise Unavailable("no credentials were given any more")
        self.configuration.api_key = fresh.api_key
        self.generation += 1
        self._read_at = time.monotonic()
        self._take_certificates(fresh)

    def _take_certificates(self, fresh: Configuration) -> None:
        try:
            found = _read_certificates(fresh)
            if found == self._certificates:
                return
            # First into a context that nobody uses: a key may be written later than its
            # certificate. (An SSLError is an OSError.)
            for context in (ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), *self._contexts):
                _load_certificates(context, fresh)
        except OSError as error:
            raise Unavailable(f"certificates cannot be used: {error}") from error
        if self._contexts:
            log.info("certificates for the API server were read again")
        self._certificates = found
        self.configuration.cert_file = fresh.cert_file

    async def _refresh_hook(self, _configuration: Configuration) -> None:
        await self.refresh()

    async def refresh(self) -> None:
        """Read the credentials again if that was long ago; where they cannot be, keep them."""
        if self._is_fresh():
            return
        async with self._lock:
            if self._is_fresh():
                return  # another call waited for the lock before this one
            try:
                await self._renew()
            except Unavailable as error:
                # The old ones may still be good; if they are not, the server says so.
                log.warning("credentials could not be read again: %s", error)
                self._read_at = time.monotonic()

    def _is_fresh(self) -> bool:
        return time.monotonic() - self._read_at < CREDENTIALS_SECONDS

    async def _load_into(self, configuration: Configuration) -> None:
        try:
            if self._kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ:
                load_incluster_config(configuration, try_refresh_token=False)  # type: ignore[no-untyped-call]  # the library's
            else:
                file = str(self._kubeconfig) if self._kubeconfig else None
                # It may name a program to be asked, which may hang. A TimeoutError is an OSError.
                async with asyncio.timeout(CREDENTIALS_WAIT_SECONDS):
                    await load_kube_config(file, client_configuration=configuration)
        except _MALFORMED as error:
            raise Unavailable(f"no usable Kubernetes configuration: {self._why(error)}") from error
        # A file that a token is read from may end with a line break; client-go trims it, too.
        keys = configuration.api_key.items()
        configuration.api_key = {name: key.strip() for name, key in keys}

    def _why(self, error: Exception) -> str:
        """Say which file is meant; the library's own words often name none."""
        if self._kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ:
            return str(error)
        file = self._kubeconfig or Path("~/.kube/config")
        if self._kubeconfig is None and not file.expanduser().exists():
            return f"KUBECONFIG is not set, this is no pod, and there is no {file}"
        if isinstance(error, (TypeError, AttributeError)):  # it is YAML of another shape, or empty
            return f"{file}: it is empty, or no kubeconfig"
        return f"{file}: {type(error).__name__}: {error}"


def _read_certificates(configuration: Configuration) -> Certificates:
    files = configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file
    return tuple(Path(file).read_bytes() if file else b"" for file in files)


def _load_certificates(context: ssl.SSLContext, configuration: Configuration) -> None:
    if configuration.ssl_ca_cert:
        context.load_verify_locations(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
