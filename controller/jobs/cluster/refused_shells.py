"""Restores the rights of hubs in namespaces where the API server has refused a shell.

A hub may not create RoleBindings. It records the refusal in the store, where the leader finds it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from controller.jobs.cluster.prerequisites import Prerequisites
from controller.jobs.containment import Containment
from controller.store.database import Store
from controller.store.instance import read_store_metadata
from controller.store.sessions.session_rows import namespaces_of_refused_shells

EVERY_SECONDS: Final = 2.0


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
        await self._contained.repeat(self.look, lambda: EVERY_SECONDS)

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
            await self._prerequisites.restore_rights(namespace)
