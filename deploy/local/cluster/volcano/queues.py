"""Queues: opens and closes them, and keeps their state."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

from deploy.local.cluster.client import Cache, Client, Object, Refused
from deploy.local.cluster.volcano.definitions import QUEUES

Start = Callable[[Coroutine[Any, Any, None]], None]
_AGAIN_SECONDS: Final = 0.2
_LAST_OPENING_SECONDS: Final = 0.3
_ALWAYS_OPEN: Final = ("default", "root")


class QueueStates:
    """Keeps the state of each Queue.

    Args:
        client: Writes the states.
        chance: Chooses when a new Queue opens.
        groups: Returns all PodGroups.
        start: Starts tasks for slow work.
    """

    def __init__(
        self,
        client: Client,
        chance: random.Random,
        groups: Callable[[], Iterable[Object]],
        start: Start,
    ) -> None:
        self._client = client
        self._chance = chance
        self._groups = groups
        self._start = start
        self.cache = Cache(client, QUEUES, changed=self._changed)

    def command(self, name: str, action: str) -> None:
        """Take a Command: ``OpenQueue`` or ``CloseQueue``."""
        if action == "OpenQueue":
            self._start(self._write_status(name, "Open"))
        elif action == "CloseQueue":
            self._start(self._write_status(name, "Closing" if self._holds(name) else "Closed"))

    def group_gone(self, group: Object) -> None:
        """Record that a PodGroup is gone: its Queue may have waited for that."""
        name = group["spec"].get("queue", "default")
        if state_of(self.cache.get("", name)) == "Closing" and not self._holds(name):
            self._start(self._write_status(name, "Closed"))

    def _changed(self, change: str, queue: Object) -> None:
        if change != "DELETED" and not state_of(queue):
            name = queue["metadata"]["name"]
            late = 0.0 if name in _ALWAYS_OPEN else self._chance.uniform(0, _LAST_OPENING_SECONDS)
            self._start(self._write_status(name, "Open", after=late))

    def _holds(self, name: str) -> bool:
        return any(group["spec"].get("queue", "default") == name for group in self._groups())

    async def _write_status(self, name: str, state: str, *, after: float = 0.0) -> None:
        await asyncio.sleep(after)
        while True:
            try:
                await self._client.patch(QUEUES, "", name, {"status": {"state": state}}, "status")
                return
            except (Refused, OSError, TimeoutError) as error:
                if isinstance(error, Refused) and error.code == 404:
                    return
                await asyncio.sleep(_AGAIN_SECONDS)


def state_of(queue: Object | None) -> str:
    """Return the Queue's state; empty for a new one, and if it does not exist."""
    return str(((queue or {}).get("status") or {}).get("state", ""))
