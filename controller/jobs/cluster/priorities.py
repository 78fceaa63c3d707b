"""The values of PriorityClasses, cached."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from controller.kube.client import Kube
from controller.kube.errors import KubeError
from controller.kube.kinds import PRIORITY_CLASSES

READ_SECONDS: Final = 2.0
CACHED_SECONDS: Final = 300.0
"""How long the value of a PriorityClass, or its absence, is cached."""

log = logging.getLogger(__name__)


class PriorityValues:
    """Reads the values of PriorityClasses; *clock* is monotonic."""

    def __init__(self, kube: Kube, *, clock: Callable[[], float]) -> None:
        self._kube = kube
        self._clock = clock
        self._cached: dict[str, tuple[float, int | None]] = {}

    async def value_of(self, name: str) -> int | None:
        """Return the value of a PriorityClass; None if it is unknown.

        The value serves only an estimate, so an API server that does not return it delays nothing.
        """
        now = self._clock()
        expires_at, value = self._cached.get(name, (now, None))
        if now >= expires_at:
            value = await self._read(name)
            self._cached[name] = (now + CACHED_SECONDS, value)
        return value

    async def _read(self, name: str) -> int | None:
        try:
            async with asyncio.timeout(READ_SECONDS):
                found = await self._kube.get(PRIORITY_CLASSES, name)
            return int(found.get("value") or 0)
        except (KubeError, TimeoutError, ValueError) as error:
            fields = {"priority_class": name, "why": str(error) or "no response in time"}
            log.info("the value of a PriorityClass could not be read", extra=fields)
            return None
