"""Makes what many jobs share, and never takes it for ours without a look.

An object that is there already is used only if its labels say that it is this instance's, and its
annotations whose it is; otherwise the job is refused, and the object stays as it is.
"""

from __future__ import annotations

from typing import Any, Final

from controller.jobs.cluster.job_objects import NameTaken
from controller.jobs.cluster.verdicts import may_be_there, verdict_on
from controller.jobs.pipeline.builder import SharedObject
from controller.kube.client import Kube, Object
from controller.kube.errors import AlreadyExists, Forbidden, Invalid, KubeError, NotFound
from controller.kube.kinds import (
    NAMESPACES,
    NETWORK_POLICIES,
    PERSISTENT_VOLUME_CLAIMS,
    QUEUES,
    RESOURCE_QUOTAS,
    ROLE_BINDINGS,
    SECRETS,
    Kind,
)
from controller.volcano.names import INSTANCE_LABEL

SHARED_KINDS: Final[dict[str, Kind]] = {
    kind.kind: kind
    for kind in (
        NAMESPACES,
        QUEUES,
        ROLE_BINDINGS,
        NETWORK_POLICIES,
        RESOURCE_QUOTAS,
        SECRETS,
        PERSISTENT_VOLUME_CLAIMS,
    )
}
_NEVER_CHANGES: Final = frozenset({"type"})


class BeingRemoved(NotFound):
    """An object that is needed is there, and goes."""


class SharedObjects:
    """Makes shared objects of *instance*."""

    def __init__(self, kube: Kube, *, instance: str) -> None:
        self._kube = kube
        self._instance = instance

    async def ensure(self, wanted: SharedObject) -> None:
        """Make the object, or bring the one that is there to what it should be.

        Raises:
            NameTaken: If there is one of its name that is somebody else's.
            BeingRemoved: If it has to go before it can be made.
            KubeError: If it cannot be made.
        """
        kind = SHARED_KINDS[wanted.kind]
        if not kind.namespaced and await self._is_there(kind, wanted):
            return
        metadata: Object = {"name": wanted.name, "labels": self._labels(wanted)}
        if wanted.annotations:
            metadata["annotations"] = dict(wanted.annotations)
        body = {**wanted.manifest, "metadata": metadata}
        try:
            await self._kube.create(kind, body, wanted.namespace)
        except KubeError as refusal:
            if not may_be_there(refusal) or not await self._is_taken(kind, wanted, refusal):
                raise

    async def _is_taken(self, kind: Kind, wanted: SharedObject, refusal: KubeError) -> bool:
        """See to it that the object is what is wanted; say whether it is there at all."""
        if not kind.namespaced:
            return await self._is_there(kind, wanted)  # made by another worker meanwhile
        if wanted.kept and kind != PERSISTENT_VOLUME_CLAIMS:
            return isinstance(refusal, AlreadyExists)
        try:
            # What is only made, in a namespace that is known to be ours, operators may have made.
            found = (
                await self._kube.get(kind, wanted.name, wanted.namespace)
                if wanted.kept
                else await self._bring_to(kind, wanted)
            )
        except NotFound:
            return False
        except Forbidden:
            # Rights of an older version; what may not be read may still be there.
            return wanted.kept and isinstance(refusal, AlreadyExists)
        if found["metadata"].get("deletionTimestamp"):
            # A claim stays for as long as a pod has it; no pod is given it any more.
            raise BeingRemoved(f"the {kind.kind} {wanted.name} is being removed", status=404)
        return True

    async def _is_there(self, kind: Kind, wanted: SharedObject) -> bool:
        try:
            found = await self._kube.get(kind, wanted.name)
        except NotFound:
            return False
        metadata = found["metadata"]
        labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
        known = all(annotations.get(name) == text for name, text in wanted.annotations.items())
        if labels.get(INSTANCE_LABEL) != self._instance or not known:
            raise NameTaken(f"a {kind.kind} {wanted.name} of somebody else is there")
        return True

    async def _bring_to(self, kind: Kind, wanted: SharedObject) -> Object:
        label = INSTANCE_LABEL.replace("/", "~1")
        operations: list[dict[str, Any]] = [
            {"op": "test", "path": f"/metadata/labels/{label}", "value": self._instance}
        ]
        operations += [
            {"op": "add", "path": f"/{name}", "value": value}
            for name, value in wanted.manifest.items()
            if name not in _NEVER_CHANGES
        ]
        try:
            return await self._kube.json_patch(kind, wanted.name, operations, wanted.namespace)
        except Invalid as error:
            if verdict_on(error, "patch") == "final":
                raise  # the patch itself, and not its test
            raise NameTaken(f"a {kind.kind} {wanted.name} of somebody else is there") from error

    def _labels(self, wanted: SharedObject) -> dict[str, str]:
        return {**wanted.labels, INSTANCE_LABEL: self._instance}
