"""Events about objects, written in the background so that they never delay other work."""

import asyncio
import logging
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from deploy.local.cluster.client import EVENTS, Client, Object, Refused

_LOG: Final = logging.getLogger(__name__)
_WAITING: Final = 1000
_KNOWN: Final = 1000
_SIMILAR: Final = 10
_COMBINED: Final = "(combined from similar events): "


@dataclass(slots=True)
class _Told:
    """An Event that was written, and how often it has been recorded since."""

    name: str
    count: int = 1


class EventRecorder:
    """Takes Events by `tell` and writes them in `run`. Events beyond its queue are dropped.

    It works as client-go's correlator. A repeated Event raises the count of the written one. Many
    Events that differ only in their message are combined, except the first ones.
    """

    def __init__(self, client: Client, component: str) -> None:
        self._client = client
        self._component = component
        self._queue: asyncio.Queue[Object] = asyncio.Queue(_WAITING)
        self._told: OrderedDict[tuple[str, str, str], _Told] = OrderedDict()
        self._similar: OrderedDict[tuple[str, str], int] = OrderedDict()

    def record_event(self, about: Object, kind: str, reason: str, message: str) -> None:
        """Record an Event of *kind* ``Normal`` or ``Warning`` about an object."""
        metadata = about["metadata"]
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        event: Object = {
            "metadata": {
                "name": f"{metadata['name'][:230]}.{secrets.token_hex(8)}",
                "namespace": metadata.get("namespace", "default"),
            },
            "involvedObject": {
                "apiVersion": about["apiVersion"],
                "kind": about["kind"],
                "name": metadata["name"],
                "namespace": metadata.get("namespace", "default"),
                "uid": metadata["uid"],
            },
            "type": kind,
            "reason": reason,
            "message": message[:1024],
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
                await self._write(event)
            except (Refused, OSError, TimeoutError) as error:
                _LOG.info("event %s: %s", event["reason"], error)

    async def _write(self, event: Object) -> None:
        uid, reason, message = event["involvedObject"]["uid"], event["reason"], event["message"]
        namespace = event["metadata"]["namespace"]
        told = self._told.get((uid, reason, message))
        if told is None:
            number = self._similar[uid, reason] = self._similar.get((uid, reason), 0) + 1
            _bound(self._similar)
            if number > _SIMILAR:
                told = self._told.get((uid, reason, _COMBINED))
                event["message"], message = f"{_COMBINED}{message}"[:1024], _COMBINED
        if told is not None:
            told.count += 1
            kept = {name: event[name] for name in ("message", "lastTimestamp")}
            change = {**kept, "count": told.count}
            try:
                await self._client.patch(EVENTS, namespace, told.name, change)
            except Refused as error:
                if error.code != 404:
                    raise
            else:
                return
        await self._client.create(EVENTS, namespace, event)
        self._told[uid, reason, message] = _Told(event["metadata"]["name"])
        _bound(self._told)


def _bound(
    known: OrderedDict[tuple[str, str, str], _Told] | OrderedDict[tuple[str, str], int],
) -> None:
    while len(known) > _KNOWN:
        known.popitem(last=False)
