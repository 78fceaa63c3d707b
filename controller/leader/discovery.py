"""Learns what the cluster's Volcano can do and what the controller may do, again and again.

The leader learns the former, and writes it down: every replica refuses by what is in the store (see
:meth:`controller.jobs.pipeline.pipeline.Pipeline.learn_from`), also one that was started while
the API server is away.

What is missing of the rights to companions that plugins declare is in the log and in ``/readyz``,
before a job waits for it. (Kubernetes API: SelfSubjectAccessReview, which everybody may create who
may log in.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from controller.jobs.pipeline.builder import NAMESPACED_VERBS, CompanionKind
from controller.jobs.pipeline.pipeline import Pipeline
from controller.kube.client import Kube
from controller.kube.errors import KubeError, NotFound
from controller.kube.kinds import ACCESS_REVIEWS
from controller.store.database import Store
from controller.store.errors import StoreUnavailable
from controller.store.instance import find_capabilities, store_capabilities
from controller.volcano.preflight import PATH, read_openapi
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
            await store_capabilities(transaction, learned)
    pipeline.learn(learned)


SOON_SECONDS: Final = 15.0
"""Until nothing is missing any more, or the server answers."""


class CompanionRights:
    """Knows what the deployment does not grant.

    Args:
        kinds: The kinds that plugins declare, with the plugin that does.
        namespace: Returns one in which jobs run; None where there is none yet.
    """

    def __init__(
        self,
        kube: Kube,
        kinds: Mapping[CompanionKind, str],
        *,
        namespace: Callable[[], str | None],
    ) -> None:
        self._kube = kube
        self._kinds = dict(kinds)
        self._namespace = namespace
        self.problems: Sequence[str] = ()
        """What is missing, as sentences."""

    async def run(self) -> None:
        """Ask now and then; return at once where no plugin declares anything."""
        while self._kinds:
            await self.look()
            await asyncio.sleep(SOON_SECONDS if self.problems else AGAIN_SECONDS)

    async def look(self) -> None:
        """Ask about every kind; what cannot be asked stays as it was known."""
        try:
            found = [
                problem
                for kind, plugin in self._kinds.items()
                for problem in await self._missing(kind, plugin)
            ]
        except KubeError as error:
            log.warning("rights of plugins cannot be looked at", extra={"why": str(error)})
            return
        for problem in found:
            if problem not in self.problems:
                log.error("a right is missing", extra={"why": problem})
        self.problems = found

    async def _missing(self, kind: CompanionKind, plugin: str) -> list[str]:
        called = f"{kind.plural} of {kind.api_version}"
        try:
            served = await self._kube.resources(kind.api_version)
        except NotFound:
            served = {}
        found = served.get(kind.plural)
        if found is None:
            return [f"the plugin {plugin} makes {called}, which the cluster does not have"]
        if not found.get("namespaced"):
            return [f"the plugin {plugin} makes {called}, which are in no namespace"]
        if found.get("kind") != kind.kind:
            return [f"the plugin {plugin} makes {called} as {kind.kind}: it is {found.get('kind')}"]
        namespace = self._namespace()
        wanted = [("list", "")]
        if namespace is not None:
            wanted += [(verb, namespace) for verb in NAMESPACED_VERBS]
        return [
            f"the plugin {plugin} needs the right to {verb} {called} "
            + (f"in the namespace {where}" if where else "in the whole cluster")
            for verb, where in wanted
            if not await self._may(verb, kind, where)
        ]

    async def _may(self, verb: str, kind: CompanionKind, namespace: str) -> bool:
        asked = {"verb": verb, "group": kind.group, "resource": kind.plural}
        if namespace:
            asked["namespace"] = namespace
        review = {"spec": {"resourceAttributes": asked}}
        answer = await self._kube.create(ACCESS_REVIEWS, review)
        return bool((answer.get("status") or {}).get("allowed"))
