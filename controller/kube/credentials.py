"""What the client shows the API server, read again before it ends and when it was refused."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

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

log = logging.getLogger(__name__)


class Credentials:
    """The client's configuration: in-cluster where there is one, else a kubeconfig.

    ``generation`` counts how often they were read again.

    Args:
        kubeconfig: A kubeconfig's path; without it the in-cluster configuration if this is a pod,
            else ``~/.kube/config``.
        clock: Monotonic seconds.
    """

    def __init__(
        self, kubeconfig: Path | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._kubeconfig = kubeconfig
        self._clock = clock
        self._lock = asyncio.Lock()
        self._read_at = 0.0
        self.generation = 0
        self.configuration = Configuration()

    async def load(self) -> None:
        """Read the configuration for the first time.

        Raises:
            Unavailable: If there is none, or it is malformed.
        """
        await self._load_into(self.configuration)
        self._read_at = self._clock()
        self.configuration.refresh_api_key_hook = self._refresh

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
        self.configuration.api_key = fresh.api_key
        self.generation += 1
        self._read_at = self._clock()

    async def _refresh(self, _configuration: Configuration) -> None:
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
                self._read_at = self._clock()

    def _is_fresh(self) -> bool:
        return self._clock() - self._read_at < CREDENTIALS_SECONDS

    async def _load_into(self, configuration: Configuration) -> None:
        try:
            if self._kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ:
                load_incluster_config(configuration, try_refresh_token=False)  # type: ignore[no-untyped-call]  # the library's
            else:
                file = str(self._kubeconfig) if self._kubeconfig else None
                # It may name a program to be asked, which may hang. A TimeoutError is an OSError.
                async with asyncio.timeout(CREDENTIALS_WAIT_SECONDS):
                    await load_kube_config(file, client_configuration=configuration)
        except (ConfigException, yaml.YAMLError, OSError, ValueError, TypeError, KeyError) as error:
            raise Unavailable(f"no usable Kubernetes configuration: {error}") from error
