"""Restores the rights of hubs in namespaces where the API server has refused a shell.

A hub may not create RoleBindings. It records the refusal in the store, where the leader finds it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from controller.jobs.cluster.prerequisites import Prerequisites
from controller.jobs.containment import Containment
from controller.kube.errors import KubeError
from controller.store.database import Store
from controller.store.errors import StoreUnavailable
from controller.store.instance import read_store_metadata
from controller.store.sessions.session_rows import namespaces_of_refused_shells

EVERY_SECONDS: Final = 2.0

log = logging.getLogger(__name__)


class RefusedShells:
    """Finds refused shells, and has our RoleBindings in their namespaces restored."""

    def __init__(
        self, store: Store, *, prerequisites: Prerequisites, failed: Callable[[Exception], None]
    ) -> None:
        self._store = store
        self._prerequisites = prerequisites
        self._contained = Containment("rights of hubs cannot be restored", failed)
        self._revision = 0

    async def run(self) -> None:
        """Look every two seconds, until cancelled."""
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            with self._contained.of("shells"):
                try:
                    await self.look()
                except StoreUnavailable as error:
                    log.warning("refused shells cannot be read", extra={"why": str(error)})

    async def look(self) -> None:
        """Restore the rights where a shell was refused since the last call.

        Raises:
            StoreUnavailable: To be tried again.
        """
        async with self._store.read() as transaction:
            revision = (await read_store_metadata(transaction)).revision
            if revision == self._revision:
                return
            namespaces = await namespaces_of_refused_shells(transaction, after=self._revision)
        self._revision = revision
        for namespace in namespaces:
            try:
                await self._prerequisites.restore_rights(namespace)
            except KubeError as error:
                extra = {"namespace": namespace, "why": str(error)}
                log.warning("role bindings cannot be restored", extra=extra)
