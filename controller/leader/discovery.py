"""Discovers what the cluster's Volcano supports, and the controller's permissions, repeatedly.

The leader stores Volcano's capabilities. Every replica validates jobs by the store (see
:meth:`controller.jobs.pipeline.pipeline.Pipeline.learn_from`), even if it was started while the API
server was unavailable.

Missing permissions for the companions of plugins are logged and shown in ``/readyz``, before a job
waits for them. (Kubernetes API: SelfSubjectAccessReview, which every authenticated client may
create.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from controller.jobs.containment import Containment
from controller.jobs.pipeline.pipeline import Pipeline
from controller.jobs.pipeline.plugin_models import NAMESPACED_VERBS, CompanionKind
from controller.kube.client import Kube
from controller.kube.errors import KubeError, NotFound, NotServed, Unavailable
from controller.kube.kinds import ACCESS_REVIEWS
from controller.store.database import FencedStore
from controller.store.instance import find_capabilities, store_capabilities
from controller.volcano.preflight import PATH, read_openapi

AGAIN_SECONDS: Final = 300.0
"""Interval after which an upgrade of Volcano is noticed."""

FIRST_SECONDS: Final = 2.0
"""Interval until the first success."""

log = logging.getLogger(__name__)


async def keep_learning(
    kube: Kube, store: FencedStore, pipeline: Pipeline, failed: Callable[[Exception], None]
) -> None:
    """Read the cluster's OpenAPI document repeatedly; the last result stays on failures.

    Raises:
        LeadershipLost: If the leader of *term* is not the leader any more.
    """
    known = False

    async def look() -> None:
        nonlocal known
        if not known:
            async with store.read() as transaction:
                await pipeline.learn_from(transaction)
        await _learn(kube, store, pipeline)
        known = True

    contained = Containment("cannot read Volcano's capabilities", failed)
    await contained.repeat(look, lambda: AGAIN_SECONDS if known else FIRST_SECONDS)


async def _learn(kube: Kube, store: FencedStore, pipeline: Pipeline) -> None:
    document = await kube.openapi(PATH)
    try:
        learned = read_openapi(document)
    except ValueError as error:
        raise Unavailable(str(error)) from error
    async with store.write() as transaction:
        before = await find_capabilities(transaction)
        if before is None or before.digest != learned.digest:
            await store_capabilities(transaction, learned)
    pipeline.learn(learned)


SOON_SECONDS: Final = 15.0
"""Interval while a permission is missing."""


class CompanionRights:
    """Finds permissions that the deployment does not grant.

    Args:
        kinds: The companion kinds, each with the plugin that declares it.
        namespace: Returns a namespace in which jobs run; None if there is none yet.
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
        self._found: dict[CompanionKind, list[str]] = {}
        self.problems: Sequence[str] = ()
        """The missing permissions, as sentences."""

    async def run(self, failed: Callable[[Exception], None]) -> None:
        """Check repeatedly; return at once if no plugin declares a kind."""
        contained = Containment("cannot check the permissions of plugins", failed)
        if self._kinds:
            await contained.repeat(
                self.look, lambda: SOON_SECONDS if self.problems else AGAIN_SECONDS
            )

    async def look(self) -> None:
        """Check every kind; where that fails, the last result for that kind stays.

        An aggregated API may be down while the API server serves all others.
        """
        for kind, plugin in self._kinds.items():
            try:
                self._found[kind] = await self._missing(kind, plugin)
            except KubeError as error:
                log.warning(
                    "cannot check the permissions of a plugin",
                    extra={"plugin": plugin, "why": str(error)},
                )
        found = [problem for problems in self._found.values() for problem in problems]
        for problem in found:
            if problem not in self.problems:
                log.error("a permission is missing", extra={"why": problem})
        self.problems = found

    async def _missing(self, kind: CompanionKind, plugin: str) -> list[str]:
        called = f"{kind.plural} of {kind.api_version}"
        try:
            served = await self._kube.resources(kind.api_version)
        except (NotFound, NotServed):
            served = {}
        found = served.get(kind.plural)
        if found is None:
            return [f"the plugin {plugin} makes {called}, which the cluster does not serve"]
        if not found.get("namespaced"):
            return [f"the plugin {plugin} makes {called}, which are not namespaced"]
        if found.get("kind") != kind.kind:
            return [
                f"the plugin {plugin} makes {called} as {kind.kind}, not as {found.get('kind')}"
            ]
        namespace = self._namespace()
        wanted = [("list", "")]
        if namespace is not None:
            wanted += [(verb, namespace) for verb in NAMESPACED_VERBS]
        return [
            f"the plugin {plugin} needs permission to {verb} {called} "
            + (f"in the namespace {where}" if where else "in the whole cluster")
            for verb, where in wanted
            if not await self._may(verb, kind, where)
        ]

    async def _may(self, verb: str, kind: CompanionKind, namespace: str) -> bool:
        attributes = {"verb": verb, "group": kind.group, "resource": kind.plural}
        if namespace:
            attributes["namespace"] = namespace
        review = {"spec": {"resourceAttributes": attributes}}
        reviewed = await self._kube.create(ACCESS_REVIEWS, review)
        return bool((reviewed.get("status") or {}).get("allowed"))
