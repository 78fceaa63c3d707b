"""Sees to it that a job can run where it is to run, before it is submitted.

Volcano tries fifteen times to make a job's pods and then gives up: a namespace whose
ServiceAccount is not there yet, or a queue that is not open yet, would end the job.

An object that many jobs share and that is there already is used only if its labels say that it is
this instance's, and its annotations whose it is; otherwise the job is refused, and it stays as is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Final

from controller.jobs.cluster.job_objects import NameTaken
from controller.jobs.cluster.verdicts import may_be_there, verdict_on
from controller.jobs.pipeline.builder import SharedObject
from controller.kube.client import Kube, Object
from controller.kube.errors import (
    AlreadyExists,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    NotServed,
)
from controller.kube.kinds import (
    NAMESPACES,
    NETWORK_POLICIES,
    PERSISTENT_VOLUME_CLAIMS,
    QUEUES,
    RESOURCE_QUOTAS,
    ROLE_BINDINGS,
    SECRETS,
    SERVICE_ACCOUNTS,
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


GOOD_FOR_SECONDS: Final = 10.0
MADE_FOR_SECONDS: Final = 600.0
DOUBTED_SECONDS: Final = 60.0
"""How long what is shared is good for at least, also where the cluster refuses jobs."""
_DOUBTED_LEFT_SECONDS: Final = MADE_FOR_SECONDS - DOUBTED_SECONDS
PAUSE_SECONDS: Final = 0.4
LONGEST_PAUSE_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True)
class _Missing:
    """What was missing somewhere, and until when nobody looks again."""

    problem: str
    until: float
    pause: float

    @classmethod
    def after(cls, before: _Missing | None, problem: str, *, now: float) -> _Missing:
        """Return what is missing *now*; the pause doubles where it has been missing *before*."""
        known = before is not None and before.is_known(now)
        pause = min(2 * before.pause, LONGEST_PAUSE_SECONDS) if before and known else PAUSE_SECONDS
        return cls(problem, now + pause, pause)

    def is_known(self, now: float) -> bool:
        """Say whether somebody has looked lately."""
        return now < self.until + LONGEST_PAUSE_SECONDS


class Prerequisites:
    """Namespaces, queues and what is shared: asked about every ten seconds while they are good.

    Where something is missing, one look is for all jobs that wait for it, and less and less often.

    What is shared is made, and made again where somebody removed it, every ten minutes and
    whenever it should be something else.

    Args:
        instance: What everything that is made here is labelled with.
        clock: Monotonic seconds.
    """

    def __init__(self, kube: Kube, *, instance: str, clock: Callable[[], float]) -> None:
        self._kube = kube
        self._instance = instance
        self._clock = clock
        self._objects = SharedObjects(kube, instance=instance)
        self._good_until: dict[tuple[str, str], float] = {}
        self._made_until: dict[str, float] = {}
        self._missing: dict[tuple[str, str], _Missing] = {}

    async def why_not_ready(
        self, namespace: str, queue: str, shared: Sequence[SharedObject] = ()
    ) -> str | None:
        """Return what is still missing there, None when a job can be submitted.

        Makes what is *shared*, and the namespace where there is none.

        Raises:
            NameTaken: If an object that is needed is there and is somebody else's.
            KubeError: If the cluster cannot be asked.
        """
        now, place = self._clock(), (namespace, queue)
        before = self._missing.get(place)
        if before is not None and now < before.until:
            return before.problem
        problem = await self._look(namespace, queue, shared)
        self._missing.pop(place, None)
        if problem is not None:
            self._missing[place] = _Missing.after(before, problem, now=now)
        return problem

    def look_again_in(self, namespace: str, queue: str) -> float:
        """Return in how many seconds what is missing there is looked for again."""
        missing = self._missing.get((namespace, queue))
        return max(0.0, missing.until - self._clock()) if missing is not None else 0.0

    async def _look(self, namespace: str, queue: str, shared: Sequence[SharedObject]) -> str | None:
        now = self._clock()
        made = _digest(shared)
        is_made = not shared or self._made_until.get(made, 0.0) > now
        if is_made and self._good_until.get((namespace, queue), 0.0) > now:
            return None
        if not is_made:
            try:
                for one in shared:
                    await self._objects.ensure(one)
            except BeingRemoved as error:
                return str(error)
            self._forget_old(now)
            self._made_until[made] = now + MADE_FOR_SECONDS
        try:
            problem = await self._namespace(namespace)
        except NotFound:
            # Whoever removed it removed all that was in it: that is made again, not only this.
            self._made_until.pop(made, None)
            if not shared:
                await ensure_namespace(self._kube, namespace, instance=self._instance)
            return f"the namespace {namespace} is being prepared"
        try:
            problem = problem or await self._queue(queue)
        except NotServed:
            return "the cluster does not serve Volcano's queues now"
        except NotFound:
            self._made_until.pop(made, None)
            return f"there is no queue {queue}"
        if problem is None:
            self._good_until[namespace, queue] = self._clock() + GOOD_FOR_SECONDS
        return problem

    def forget(self) -> None:
        """Ask again: something turned out not to be as it was."""
        self._good_until.clear()
        self._made_until.clear()
        self._missing.clear()

    def expire(self, shared: Sequence[SharedObject]) -> None:
        """Have what is *shared* made again at the next look, unless that was done lately.

        A right that somebody has taken away is refused as one that was never given.
        """
        made = _digest(shared)
        made_until = self._made_until.get(made)
        if made_until is not None and made_until - self._clock() < _DOUBTED_LEFT_SECONDS:
            del self._made_until[made]

    def _forget_old(self, now: float) -> None:
        # There are as many owners as there are users: those who went are not kept.
        self._made_until = {key: at for key, at in self._made_until.items() if at > now}
        self._good_until = {place: at for place, at in self._good_until.items() if at > now}
        self._missing = {place: one for place, one in self._missing.items() if one.is_known(now)}

    async def _namespace(self, name: str) -> str | None:
        found = await self._kube.get(NAMESPACES, name)
        if (found.get("status") or {}).get("phase") == "Terminating":
            return f"the namespace {name} is being removed"
        try:
            await self._kube.get(SERVICE_ACCOUNTS, "default", name)
        except NotFound:
            return f"the namespace {name} is being prepared"
        return None

    async def _queue(self, name: str) -> str | None:
        found = await self._kube.get(QUEUES, name)
        state = (found.get("status") or {}).get("state")
        return None if state == "Open" else f"the queue {name} is not open"


async def ensure_namespace(kube: Kube, name: str, *, instance: str) -> None:
    """Make the namespace where there is none; it is never removed.

    Raises:
        KubeError: If it cannot be made.
    """
    try:
        await kube.get(NAMESPACES, name)
    except NotFound:
        metadata = {"name": name, "labels": {INSTANCE_LABEL: instance}}
        with suppress(AlreadyExists):
            await kube.create(NAMESPACES, {"metadata": metadata})


def _digest(shared: Sequence[SharedObject]) -> str:
    # Of a digest nothing of a pull secret can be read back.
    text = json.dumps([asdict(one) for one in shared], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
