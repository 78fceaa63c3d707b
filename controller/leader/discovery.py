"""Learns what the cluster's Volcano can do, and again where that changes.

The leader does, and writes it down: every replica refuses by what is in the store (see
:meth:`controller.jobs.pipeline.pipeline.Pipeline.learn_from`), also one that was started while
the API server is away.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from controller.jobs.pipeline.pipeline import Pipeline
from controller.kube.client import Kube
from controller.kube.errors import KubeError
from controller.store.database import Store
from controller.store.errors import StoreUnavailable
from controller.store.instance import find_capabilities, keep_capabilities
from controller.volcano.rules.capabilities import PATH, read_openapi
from shared.log import Outage

AGAIN_SECONDS: Final = 300.0
"""An upgrade of Volcano is noticed after this long."""

FIRST_SECONDS: Final = 2.0
"""Between tries, until it is known once."""

log = logging.getLogger(__name__)


async def keep_learning(kube: Kube, store: Store, pipeline: Pipeline, *, term: int) -> None:
    """Read the cluster's OpenAPI document now and then; what was learned stays until it is read.

    Raises:
        LeadershipLost: If another one leads than the leader of *term*.
    """
    known = False
    outage = Outage(
        log, begins="what Volcano can do is not known", ends="what Volcano can do is known"
    )
    while True:
        try:
            if not known:
                async with store.read() as transaction:
                    await pipeline.learn_from(transaction)
            await _learn(kube, store, pipeline, term)
            known = True
            outage.passed()
        except (KubeError, StoreUnavailable, ValueError) as error:
            outage.failed(error)
        await asyncio.sleep(AGAIN_SECONDS if known else FIRST_SECONDS)


async def _learn(kube: Kube, store: Store, pipeline: Pipeline, term: int) -> None:
    learned = read_openapi(await kube.openapi(PATH))
    async with store.lead(term) as transaction:
        before = await find_capabilities(transaction)
        if before is None or before.digest != learned.digest:
            await keep_capabilities(transaction, learned)
    pipeline.learn(learned)
