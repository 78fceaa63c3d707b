"""Learns what the cluster's Volcano can do, and again where that changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from controller.kube.client import Kube
from controller.kube.errors import KubeError
from controller.volcano.capabilities import PATH, Capabilities, read_openapi

AGAIN_SECONDS: Final = 300.0
"""An upgrade of Volcano is noticed after this long."""

FIRST_SECONDS: Final = 2.0
"""Between tries, until it is known once."""

log = logging.getLogger(__name__)


async def keep_learning(kube: Kube, learned: Callable[[Capabilities], None]) -> None:
    """Read the cluster's OpenAPI document now and then; what was learned stays until it is read."""
    known = False
    while True:
        try:
            learned(read_openapi(await kube.openapi(PATH)))
            known = True
        except (KubeError, ValueError) as error:
            log.warning("what Volcano can do is not known", extra={"why": str(error)})
        await asyncio.sleep(AGAIN_SECONDS if known else FIRST_SECONDS)
