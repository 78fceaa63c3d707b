"""Ensures that a job can run in its namespace, before it is submitted.

Volcano tries 15 times to create a job's pods, and then gives up. So a namespace without its
ServiceAccount, or a queue that is not open yet, would end the job.

An existing object that jobs share is used only if its labels say that it is this instance's, and
its annotations name the owner. Otherwise the job is refused, and the object stays as it is.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, asdict, dataclass, field
from typing import Final

from controller.jobs.cluster.companion_objects import patch_labelled, set_field
from controller.jobs.cluster.verdicts import NameTaken, may_be_there
from controller.jobs.pipeline.builder import SharedObject
from controller.jobs.pipeline.role_bindings import role_bindings
from controller.kube.client import Kube, Object
from controller.kube.errors import (
    AlreadyExists,
    Forbidden,
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
from controller.site.owner_shares import RoleGrant
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
log = logging.getLogger(__name__)

_NEVER_CHANGES: Final = frozenset({"type"})


class BeingRemoved(NotFound):
    """A needed object exists, and is being deleted."""


class SharedObjects:
    """Creates the objects that jobs of *instance* share."""

    def __init__(self, kube: Kube, *, instance: str) -> None:
        self._kube = kube
        self._instance = instance

    async def ensure(self, wanted: SharedObject) -> None:
        """Create the object, or update the existing one.

        Raises:
            NameTaken: If a foreign object has its name.
            BeingRemoved: If it is being deleted, and cannot be created before it is gone.
            KubeError: If it cannot be created.
        """
        kind = SHARED_KINDS[wanted.kind]
        if not kind.namespaced and await self._is_there(kind, wanted):
            return
        labels = {**wanted.labels, INSTANCE_LABEL: self._instance}
        metadata: Object = {"name": wanted.name, "labels": labels}
        if wanted.annotations:
            metadata["annotations"] = dict(wanted.annotations)
        body = {**wanted.manifest, "metadata": metadata}
        try:
            await self._kube.create(kind, body, wanted.namespace)
        except KubeError as refusal:
            if not may_be_there(refusal) or not await self._is_taken(kind, wanted, refusal):
                raise

    async def _is_taken(self, kind: Kind, wanted: SharedObject, refusal: KubeError) -> bool:
        """Update the existing object if it is due; return whether there is one."""
        if not kind.namespaced:
            return await self._is_there(kind, wanted)  # another worker has created it meanwhile
        if wanted.kept and kind != PERSISTENT_VOLUME_CLAIMS:
            return isinstance(refusal, AlreadyExists)
        try:
            # An object that is only created and never updated may be an operator's: the namespace
            # belongs to this instance.
            found = (
                await self._kube.get(kind, wanted.name, wanted.namespace)
                if wanted.kept
                else await self._bring_to(kind, wanted)
            )
        except NotFound:
            return False
        except Forbidden:
            # With the permissions of an older version, an object that cannot be read may still
            # exist.
            return wanted.kept and isinstance(refusal, AlreadyExists)
        if found["metadata"].get("deletionTimestamp"):
            # A claim exists as long as a pod uses it, but no new pod gets it.
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
        changes = [
            set_field(f"/{name}", value)
            for name, value in wanted.manifest.items()
            if name not in _NEVER_CHANGES
        ]
        own = {INSTANCE_LABEL: self._instance}
        return await patch_labelled(self._kube, kind, wanted.name, wanted.namespace, own, changes)


GOOD_FOR_SECONDS: Final = 10.0
MADE_FOR_SECONDS: Final = 600.0
DOUBTED_SECONDS: Final = 60.0
"""The shortest time for which shared objects count as valid, even if the API server refuses
jobs."""
_DOUBTED_LEFT_SECONDS: Final = MADE_FOR_SECONDS - DOUBTED_SECONDS
RIGHTS_SECONDS: Final = 60.0
"""How often the RoleBindings in a namespace are created again at most."""
PAUSE_SECONDS: Final = 0.4
LONGEST_PAUSE_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True)
class _Missing:
    """The missing prerequisites of a namespace and queue, and the time of the next check."""

    problem: str
    until: float
    pause: float

    @classmethod
    def after(cls, before: _Missing | None, problem: str, *, now: float) -> _Missing:
        """Return what is missing *now*; the pause doubles if it was missing *before*."""
        known = before is not None and before.is_known(now)
        pause = min(2 * before.pause, LONGEST_PAUSE_SECONDS) if before and known else PAUSE_SECONDS
        return cls(problem, now + pause, pause)

    def is_known(self, now: float) -> bool:
        """Return whether it was checked recently."""
        return now < self.until + LONGEST_PAUSE_SECONDS


@dataclass(slots=True, eq=False, repr=False)
class Prerequisites:
    """Ensures namespaces, queues and shared objects; results are cached for ten seconds.

    If something is missing, one check serves all jobs that wait for it, with increasing pauses.
    Shared objects are created, and created again if somebody deleted them, every ten minutes and
    whenever their plan changes.
    """

    kube: Kube
    _: KW_ONLY
    instance: str
    """The label of everything that is created here."""
    clock: Callable[[], float]
    """Monotonic seconds."""
    grants: Sequence[RoleGrant] = ()
    """The rights that our accounts have in each owner's namespace."""
    _rights_until: dict[str, float] = field(default_factory=dict, init=False)
    _objects: SharedObjects = field(init=False)
    _good_until: dict[tuple[str, str], float] = field(default_factory=dict, init=False)
    _made_until: dict[str, float] = field(default_factory=dict, init=False)
    _missing: dict[tuple[str, str], _Missing] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._objects = SharedObjects(self.kube, instance=self.instance)

    async def why_not_ready(
        self, namespace: str, queue: str, shared: Sequence[SharedObject] = ()
    ) -> str | None:
        """Return the first missing prerequisite; None if a job can be submitted.

        Creates the *shared* objects, and the namespace if there is none.

        Raises:
            NameTaken: If a needed object is foreign.
            KubeError: If the API server does not respond, or refuses.
        """
        now, place = self.clock(), (namespace, queue)
        before = self._missing.get(place)
        if before is not None and now < before.until:
            return before.problem
        problem = await self._look(namespace, queue, shared)
        self._missing.pop(place, None)
        if problem is not None:
            self._missing[place] = _Missing.after(before, problem, now=now)
        return problem

    def retry_in(self, namespace: str, queue: str) -> float:
        """Return in how many seconds the missing object is checked again."""
        missing = self._missing.get((namespace, queue))
        return max(0.0, missing.until - self.clock()) if missing is not None else 0.0

    async def _look(self, namespace: str, queue: str, shared: Sequence[SharedObject]) -> str | None:
        now = self.clock()
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
            # The deletion of the namespace has deleted everything in it: all of it is created
            # again.
            self._made_until.pop(made, None)
            if not shared:
                await ensure_namespace(self.kube, namespace, instance=self.instance)
            return f"the namespace {namespace} is being prepared"
        try:
            problem = problem or await self._queue(queue)
        except NotServed:
            return "the cluster does not serve Volcano's queues now"
        except NotFound:
            self._made_until.pop(made, None)
            return f"there is no queue {queue}"
        if problem is None:
            self._good_until[namespace, queue] = self.clock() + GOOD_FOR_SECONDS
        return problem

    async def restore_rights(self, namespace: str) -> None:
        """Create missing RoleBindings in an owner's namespace, once a minute at most.

        Call it when the API server has refused a step of a job that runs there: its namespace had
        the bindings, so somebody has deleted one. A failure is logged: the next refusal repeats it.
        """
        now = self.clock()
        if not self.grants or self._rights_until.get(namespace, 0.0) > now:
            return
        self._rights_until = {name: at for name, at in self._rights_until.items() if at > now}
        self._rights_until[namespace] = now + RIGHTS_SECONDS
        try:
            await self._restore_rights(namespace)
        except KubeError as error:
            extra = {"namespace": namespace, "why": str(error)}
            log.warning("role bindings cannot be restored", extra=extra)

    async def _restore_rights(self, namespace: str) -> None:
        try:
            found = await self.kube.get(NAMESPACES, namespace)
        except NotFound:
            return
        labels = found["metadata"].get("labels") or {}
        is_going = (found.get("status") or {}).get("phase") == "Terminating"
        if labels.get(INSTANCE_LABEL) == self.instance and not is_going:
            for one in role_bindings(self.grants, namespace):
                await self._objects.ensure(one)

    def forget(self) -> None:
        """Drop the cache: a prerequisite has changed."""
        self._good_until.clear()
        self._made_until.clear()
        self._missing.clear()

    def expire(self, shared: Sequence[SharedObject]) -> None:
        """Create the *shared* objects again at the next check, unless they were created recently.

        The API server refuses a revoked permission as one that was never granted.
        """
        made = _digest(shared)
        made_until = self._made_until.get(made)
        if made_until is not None and made_until - self.clock() < _DOUBTED_LEFT_SECONDS:
            del self._made_until[made]

    def _forget_old(self, now: float) -> None:
        # There may be as many owners as users: stale entries are dropped.
        self._made_until = {key: at for key, at in self._made_until.items() if at > now}
        self._good_until = {place: at for place, at in self._good_until.items() if at > now}
        self._missing = {place: one for place, one in self._missing.items() if one.is_known(now)}

    async def _namespace(self, name: str) -> str | None:
        found = await self.kube.get(NAMESPACES, name)
        if (found.get("status") or {}).get("phase") == "Terminating":
            return f"the namespace {name} is being removed"
        try:
            await self.kube.get(SERVICE_ACCOUNTS, "default", name)
        except NotFound:
            return f"the namespace {name} is being prepared"
        return None

    async def _queue(self, name: str) -> str | None:
        found = await self.kube.get(QUEUES, name)
        state = (found.get("status") or {}).get("state")
        return None if state == "Open" else f"the queue {name} is not open"


async def ensure_namespace(kube: Kube, name: str, *, instance: str) -> None:
    """Create the namespace if there is none; it is never deleted.

    Raises:
        KubeError: If it cannot be created.
    """
    try:
        await kube.get(NAMESPACES, name)
    except NotFound:
        metadata = {"name": name, "labels": {INSTANCE_LABEL: instance}}
        with suppress(AlreadyExists):
            await kube.create(NAMESPACES, {"metadata": metadata})


def _digest(shared: Sequence[SharedObject]) -> str:
    # A pull secret cannot be read back from a digest.
    text = json.dumps([asdict(one) for one in shared], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
