"""Events about Pods, written in the background and never in the way of what they tell of."""

import asyncio
import logging
import secrets
from datetime import UTC, datetime
from typing import Final

from deploy.local.cluster.client import EVENTS, Client, Object, Refused

_LOG: Final = logging.getLogger(__name__)
_WAITING: Final = 1000


class EventRecorder:
    """Takes Events with `tell` and writes them in `run`; those beyond its queue are dropped."""

    def __init__(self, client: Client, component: str) -> None:
        self._client = client
        self._component = component
        self._queue: asyncio.Queue[Object] = asyncio.Queue(_WAITING)

    def tell(self, about: Object, kind: str, reason: str, message: str) -> None:
        """Record an Event of *kind* ``Normal`` or ``Warning`` about an object."""
        metadata = about["metadata"]
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        event: Object = {
            "metadata": {
                "name": f"{metadata['name']}.{secrets.token_hex(8)}",
                "namespace": metadata.get("namespace", "default"),
            },
            "involvedObject": {
                "apiVersion": about["apiVersion"],
                "kind": about["kind"],
                "name": metadata["name"],
                "namespace": metadata.get("namespace", ""),
                "uid": metadata["uid"],
            },
            "type": kind,
            "reason": reason,
            "message": message,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": "",
        }
        if not self._queue.full():
            self._queue.put_nowait(event)

    async def run(self) -> None:
        """Write what was recorded, until cancelled."""
        while True:
            event = await self._queue.get()
            try:
                await self._client.create(EVENTS, event["metadata"]["namespace"], event)
            except (Refused, OSError, TimeoutError) as error:
                _LOG.info("event %s: %s", event["reason"], error)
