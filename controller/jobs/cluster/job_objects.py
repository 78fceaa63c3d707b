"""What is done in the cluster for a job: its VolcanoJob and companions, made and removed.

Everything here can be done twice: an object that is there already is ours if its labels say so,
and then it is brought to what it should be; one of somebody else is never touched.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, Final

from controller.jobs.cluster.informer import PODS_READ
from controller.jobs.cluster.verdicts import may_be_there, verdict_on
from controller.jobs.history.job_record import recovery_name
from controller.jobs.pipeline.builder import Companion
from controller.jobs.pipeline.pipeline import Plan
from controller.kube.client import Kube, Object
from controller.kube.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    NotServed,
    Unavailable,
)
from controller.kube.kinds import (
    COMMANDS,
    CONFIG_MAPS,
    NAMESPACES,
    NETWORK_POLICIES,
    PODS,
    PRIORITY_CLASSES,
    SECRETS,
    SERVICES,
    VCJOBS,
    Kind,
)
from controller.store.jobs.progress import CompanionRecord
from controller.volcano.manifest import API_VERSION, VolcanoJob
from controller.volcano.names import (
    ATTEMPT_ANNOTATION,
    INSTANCE_LABEL,
    JOB_LABEL,
    companion_name,
    labels_of,
)
from controller.volcano.observed import ObservedJob, ObservedPod, read_job, read_pod
from shared.errors import FumaroleError

log = logging.getLogger(__name__)

COMPANION_KINDS: Final[dict[str, Kind]] = {
    kind.kind: kind for kind in (SECRETS, CONFIG_MAPS, SERVICES, NETWORK_POLICIES)
}
_COMMANDS: Final = ("command", "command-2")
"""Of somebody else's Command nobody knows whether it is ever done: then the second name is ours."""
_VOLCANOS: Final = (
    (SERVICES, ""),
    (CONFIG_MAPS, "-svc"),
    (SECRETS, "-ssh"),
    (SERVICES, "-head-svc"),
)
"""What Volcano's plugins make beside the pods of a VolcanoJob: kinds, and ends of their names."""
PODS_AT_ONCE: Final = 16
PRIORITY_SECONDS: Final = 2.0
PRIORITY_GOOD_SECONDS: Final = 300.0
"""How long the value of a PriorityClass, or that it is not known, is good for."""
_NEVER_CHANGES: Final = frozenset({"type", "metadata"})


class NameTaken(FumaroleError):
    """An object of the name that a job needs is there, and is somebody else's."""


class JobObjects:
    """Makes, finds and removes what belongs to a job of *instance*."""

    def __init__(self, kube: Kube, *, instance: str) -> None:
        self._kube = kube
        self._instance = instance
        self._priorities: dict[str, tuple[float, int | None]] = {}

    async def priority_value(self, name: str | None) -> int | None:
        """Return the value of a PriorityClass; None where it is not known, or there is none.

        It serves an estimate alone, so a server that does not tell it holds nothing up.
        """
        if name is None:
            return None
        now = time.monotonic()
        good_until, value = self._priorities.get(name, (0.0, None))
        if now >= good_until:
            try:
                async with asyncio.timeout(PRIORITY_SECONDS):
                    found = await self._kube.get(PRIORITY_CLASSES, name)
                value = int(found.get("value") or 0)
            except (KubeError, TimeoutError, ValueError) as error:
                value = None
                told = {"priority_class": name, "why": str(error)}
                log.info("the value of a PriorityClass is not known", extra=told)
            self._priorities[name] = (now + PRIORITY_GOOD_SECONDS, value)
        return value

    async def ensure_volcano_job(self, plan: Plan) -> ObservedJob:
        """Return the job's VolcanoJob: made now, or by an earlier try.

        Raises:
            NameTaken: If there is one that is not this job's, or an admission webhook makes it so.
            KubeError: If it cannot be made.
        """
        wanted = plan.volcano_job
        try:
            made = await self._kube.create(VCJOBS, wanted.manifest(), wanted.namespace)
        except KubeError as refusal:
            made = await self._made_before(plan, refusal)
            if not self._is_ours(made, plan.job.id):
                raise NameTaken(f"a VolcanoJob {wanted.name} of somebody else is there") from None
            if made["metadata"].get("annotations", {}).get(ATTEMPT_ANNOTATION) != _attempt(wanted):
                raise Unavailable("the VolcanoJob of another attempt is still there") from None
        else:
            await self._take_back_unlabelled(made, plan.job.id)
        return read_job(made)

    async def _take_back_unlabelled(self, made: Object, job_id: str) -> None:
        """Remove what was just made if the cluster has changed our labels: nobody would see it.

        Raises:
            NameTaken: If that was so.
            KubeError: If it cannot be removed.
        """
        if self._is_ours(made, job_id):
            return
        metadata = made["metadata"]
        await self._kube.delete(
            VCJOBS, metadata["name"], metadata["namespace"], uid=metadata["uid"]
        )
        raise NameTaken("the cluster changes the labels by which its VolcanoJob is known")

    async def _made_before(self, plan: Plan, refusal: KubeError) -> Object:
        """Return the VolcanoJob that is there; raise the *refusal* to make it if none is."""
        wanted = plan.volcano_job
        if may_be_there(refusal):
            try:
                return await self._kube.get(VCJOBS, wanted.name, wanted.namespace)
            except (NotFound, Forbidden) as error:
                raise _told(refusal, error) from None
        raise refusal

    async def find_volcano_job(self, namespace: str, name: str, job_id: str) -> ObservedJob | None:
        """Return the job's VolcanoJob as the cluster has it now, not as a watch last told.

        Raises:
            KubeError: If the cluster cannot be asked.
        """
        found: Object | None = None
        async with self._while_there(namespace):
            found = await self._kube.get(VCJOBS, name, namespace)
        return read_job(found) if found and self._is_ours(found, job_id) else None

    async def command(self, job_id: str, job: ObservedJob, action: str) -> None:
        """Have Volcano do *action* to the VolcanoJob; one that waits to be done is enough.

        Raises:
            KubeError: If it cannot be asked.
        """
        target = {"apiVersion": API_VERSION, "kind": "Job", "name": job.name, "uid": job.uid}
        for what in _COMMANDS:
            metadata = {
                "name": companion_name(job_id, what),
                "labels": labels_of(self._instance, job_id),
                # Volcano does not compare UIDs: what is left over must not outlive its job.
                "ownerReferences": [_owned_by(job)],
            }
            body = {"metadata": metadata, "action": action, "target": target, "reason": "asked"}
            try:
                await self._kube.create(COMMANDS, body, job.namespace)
            except AlreadyExists:
                if await self._has_command(job_id, job.namespace, what) is None:
                    continue
            return
        raise Unavailable("Commands of somebody else have our names")

    async def withdraw_command(self, job_id: str, namespace: str) -> None:
        """Remove a command of ours that was not done: it would hit the next attempt.

        One of its name that is somebody else's stays.

        Raises:
            KubeError: If it cannot be removed.
        """
        async with self._while_there(namespace):
            for what in _COMMANDS:
                uid = await self._has_command(job_id, namespace, what)
                if uid is not None:
                    await self._delete(COMMANDS, companion_name(job_id, what), namespace, uid)
                    return

    async def _has_command(self, job_id: str, namespace: str, what: str) -> str | None:
        """Return the uid of our command; None where it is somebody else's.

        Raises:
            NotFound: If there is none.
        """
        found = await self._kube.get(COMMANDS, companion_name(job_id, what), namespace)
        if self._is_ours(found, job_id):
            uid: str = found["metadata"]["uid"]
            return uid
        log.warning("a Command of somebody else has our name", extra={"job": job_id})
        return None

    async def remove_volcano_job(
        self, namespace: str, name: str, uid: str, *, shown: bool = True
    ) -> None:
        """Remove the VolcanoJob with *uid*; what it owns goes some time; gone already is fine.

        One that no watch has *shown* with our labels is left alone if it is another instance's.

        Raises:
            KubeError: If it cannot be removed.
        """
        async with self._while_there(namespace):
            if not shown:
                found = await self._kube.get(VCJOBS, name, namespace)
                labels = found["metadata"].get("labels") or {}
                if labels.get(INSTANCE_LABEL, self._instance) != self._instance:
                    log.warning("a VolcanoJob was given to another instance", extra={"uid": uid})
                    return
            await self._delete(VCJOBS, name, namespace, uid)

    async def find_kept(self, job: ObservedJob) -> Mapping[str, Any]:
        """Return what was kept beside exactly this VolcanoJob for a store that knows nothing.

        Raises:
            KubeError: If the cluster cannot be asked.
        """
        try:
            name = recovery_name(job.job_id)
            found = await self._kube.get(CONFIG_MAPS, name, job.namespace)
        except (NotFound, Forbidden):
            return {}  # the rights in a namespace may be gone before what is in it
        owners = found.get("metadata", {}).get("ownerReferences") or ()
        ours = any(one.get("uid") == job.uid for one in owners)
        return found.get("data") or {} if ours else {}

    async def find_pods(self, namespace: str, job_id: str) -> list[ObservedPod]:
        """Return the job's pods as the cluster has them now, not as a watch last told.

        Raises:
            KubeError: If the cluster cannot be asked.
        """
        found: list[Object] = []
        async with self._while_there(namespace):
            labels = labels_of(self._instance, job_id)
            wanted = ",".join(f"{name}={value}" for name, value in labels.items())
            found = await self._kube.list(
                PODS, namespace, labels=wanted, transform=PODS_READ.transform
            )
        return [read_pod(given) for given in found]

    async def remove_pods(self, namespace: str, pods: Sequence[ObservedPod]) -> None:
        """Remove exactly these pods, each with its own grace period; gone already is fine.

        Their VolcanoJob must be gone: Volcano would make them again, or take them for evicted.

        Raises:
            KubeError: If one cannot be removed; others may have been.
        """
        # Those that run first: the others cost nobody anything.
        waiting = deque(sorted(pods, key=lambda pod: pod.is_over))

        async def remove() -> None:
            while waiting:
                pod = waiting.popleft()
                with suppress(Conflict):  # another pod's name by now; else it is decided again
                    await self._kube.delete(PODS, pod.name, namespace, uid=pod.uid)

        async with self._while_there(namespace):
            await _all([remove() for _ in range(min(len(pods), PODS_AT_ONCE))])

    async def remove_volcanos(self, namespace: str, name: str, uid: str) -> None:
        """Remove what Volcano's plugins made for the VolcanoJob *uid*, which is gone.

        Another VolcanoJob of that *name* would otherwise use these objects: Volcano only looks
        whether one of the name is there, and never makes it again after the collector has come.

        Raises:
            KubeError: If one cannot be removed; others may have been.
        """
        await _all(
            [self._remove_owned(kind, name + end, namespace, uid) for kind, end in _VOLCANOS]
        )

    async def _remove_owned(self, kind: Kind, name: str, namespace: str, owner_uid: str) -> None:
        """Remove an object if *owner_uid* is its first owner, in one step for both."""
        # A Secret cannot be read; a patch that only tests tells its uid.
        test = {"op": "test", "path": "/metadata/ownerReferences/0/uid", "value": owner_uid}
        with suppress(NotFound, Invalid, Forbidden):  # gone, somebody else's, or not for us to say
            found = await self._kube.json_patch(kind, name, [test], namespace)
            await self._delete(kind, name, namespace, str(found["metadata"]["uid"]))

    async def ensure_companion(
        self, job_id: str, namespace: str, companion: Companion, *, owner: ObservedJob | None
    ) -> CompanionRecord:
        """Make the companion, or bring the one that is there to what it should be.

        Raises:
            NameTaken: If there is one of its name that is not this job's.
            KubeError: If it cannot be made.
        """
        kind = _kind_of(companion.kind)
        metadata: Object = {"name": companion.name, "labels": labels_of(self._instance, job_id)}
        if companion.lasting:
            owner = None
        if owner is not None:
            metadata["ownerReferences"] = [_owned_by(owner)]
        given = companion.manifest.get("metadata") or {}
        metadata["labels"] = {**(given.get("labels") or {}), **metadata["labels"]}
        if given.get("annotations"):
            metadata["annotations"] = given["annotations"]
        body = {**companion.manifest, "metadata": metadata}
        try:
            made = await self._kube.create(kind, body, namespace)
        except KubeError as refusal:
            if not may_be_there(refusal):
                raise
            try:
                made = await self._take(kind, body, namespace, job_id, owner)
            except (NotFound, Forbidden) as error:
                raise _told(refusal, error) from None
            if made["metadata"].get("deletionTimestamp"):
                what = f"{body.get('kind', kind.kind)} {companion.name}"
                text = f"the {what} of another attempt is still there"
                raise NotFound(text, status=404) from None
        return CompanionRecord(
            kind=companion.kind,
            namespace=namespace,
            name=companion.name,
            uid=str(made["metadata"]["uid"]),
            owner_uid=owner.uid if owner is not None else None,
            address=_address(kind, made),
            basis=companion.basis,
            lasting=companion.lasting,
        )

    async def set_owner_reference(
        self, job_id: str, companion: CompanionRecord, owner: ObservedJob
    ) -> CompanionRecord:
        """Have *owner* own a companion that was made before it, unless none is to.

        Raises:
            NameTaken: If its name is somebody else's by now.
            KubeError: If it cannot be changed.
        """
        if companion.lasting:
            return companion
        kind = _kind_of(companion.kind)
        patch = _bring_to(kind, {}, owner)
        await self._patch_ours(kind, companion.name, companion.namespace, job_id, patch)
        return replace(companion, owner_uid=owner.uid)

    async def remove_companion(self, job_id: str, companion: CompanionRecord) -> None:
        """Remove the companion if it is this job's; gone already is fine.

        Raises:
            KubeError: If it cannot be removed.
        """
        kind = _kind_of(companion.kind)
        # A kind that a plugin declared may be gone for good, and keeps no job from its end: should
        # it come back with objects, the cluster's collector removes what the VolcanoJob owned.
        try:
            await self._remove(kind, job_id, companion)
        except NotServed:
            if companion.kind in COMPANION_KINDS:
                raise

    async def _remove(self, kind: Kind, job_id: str, companion: CompanionRecord) -> None:
        async with self._while_there(companion.namespace):
            uid = companion.uid or await self._uid_of_ours(kind, companion, job_id)
            if uid is None:
                return
            await self._delete(kind, companion.name, companion.namespace, uid)

    async def _delete(self, kind: Kind, name: str, namespace: str, uid: str) -> None:
        """Delete exactly this object; that its name is another object's by now is fine.

        Raises:
            Conflict: If it is there still. A webhook, or a server that was outrun, refuses with 409
                too, and what is taken for gone is never deleted again.
        """
        try:
            await self._kube.delete(kind, name, namespace, uid=uid)
        except Conflict:
            try:
                found = await self._kube.get(kind, name, namespace)
            except NotServed:
                raise
            except (NotFound, Forbidden):
                return  # of some kinds we may delete what we may not read
            if found["metadata"].get("uid") == uid:
                raise

    @asynccontextmanager
    async def _while_there(self, namespace: str) -> AsyncIterator[None]:
        """Take what is done within for done where its object is gone, alone or with *namespace*.

        Our rights in an owner's namespace are given by what is in it and go with it: the cluster
        then refuses to say what is there, and that there is no such namespace is the evidence.
        """
        try:
            yield
        except NotServed:
            raise
        except NotFound:
            return
        except Forbidden:
            try:
                await self._kube.get(NAMESPACES, namespace)
            except NotFound:
                return
            raise

    async def _take(
        self, kind: Kind, body: Object, namespace: str, job_id: str, owner: ObservedJob | None
    ) -> Object:
        """Bring the companion that is there to what *body* says, if it is the job's."""
        if kind.kind not in COMPANION_KINDS:
            return await self._merge_ours(kind, body, namespace, job_id)
        patch = _bring_to(kind, body, owner)
        return await self._patch_ours(kind, body["metadata"]["name"], namespace, job_id, patch)

    async def _uid_of_ours(self, kind: Kind, companion: CompanionRecord, job_id: str) -> str | None:
        # Intended, and perhaps made. A Secret cannot be read; a patch of nothing tells its uid.
        try:
            found = await self._patch_ours(kind, companion.name, companion.namespace, job_id, [])
        except (NotFound, NameTaken):
            return None
        return str(found["metadata"]["uid"])

    async def _patch_ours(
        self, kind: Kind, name: str, namespace: str, job_id: str, patch: list[Object]
    ) -> Object:
        """Patch an object if its labels say that it is this job's, in one step."""
        tests = [
            {"op": "test", "path": f"/metadata/labels/{_escaped(label)}", "value": value}
            for label, value in labels_of(self._instance, job_id).items()
        ]
        try:
            return await self._kube.json_patch(kind, name, [*tests, *patch], namespace)
        except Invalid as error:
            if verdict_on(error, "patch") == "final":
                raise  # the patch itself, and not one of its tests
            raise NameTaken(f"a {kind.kind} {name} of somebody else is there") from error

    async def _merge_ours(self, kind: Kind, body: Object, namespace: str, job_id: str) -> Object:
        """Merge *body* into the object of its name if that is this job's, in one step.

        What a server fills in by itself stays as it is, and so does what cannot be changed any
        more: of a kind that a plugin declares nothing is known about either.
        """
        name = body["metadata"]["name"]
        found = await self._kube.get(kind, name, namespace)
        if not self._is_ours(found, job_id):
            raise NameTaken(f"a {body['kind']} {name} of somebody else is there")
        if found["metadata"].get("deletionTimestamp"):
            return found  # it admits no change any more that matters
        # It is changed only as it was seen; else it is a Conflict, and looked at again.
        version = {"resourceVersion": found["metadata"]["resourceVersion"]}
        seen = {"metadata": {**body["metadata"], **version}}
        try:
            return await self._kube.merge(kind, name, {**body, **seen}, namespace)
        except Invalid as error:
            log.warning(
                "a companion cannot be changed, and stays as it was made",
                extra={"job": job_id, "object": f"{body['kind']} {name}", "why": str(error)},
            )
            return await self._kube.merge(kind, name, seen, namespace)

    def _is_ours(self, given: Object, job_id: str) -> bool:
        labels = given["metadata"].get("labels") or {}
        return (labels.get(INSTANCE_LABEL), labels.get(JOB_LABEL)) == (self._instance, job_id)


def _told(refusal: KubeError, looked: NotFound | Forbidden) -> KubeError:
    """Return why an object is not made: *refusal*, unless what is there may not be looked at."""
    missing = isinstance(refusal, AlreadyExists) and isinstance(looked, Forbidden)
    return looked if missing else refusal


def _kind_of(key: str) -> Kind:
    """Return the kind that the store knows as *key*, also one that no plugin declares any more."""
    if key in COMPANION_KINDS:
        return COMPANION_KINDS[key]
    api, _, plural = key.rpartition("/")
    # Its name is needed to make one, and then stands in the manifest.
    return Kind(api, plural, plural)


async def _all(work: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Await all of *work*, and raise what the first of it raised once all has ended."""
    for result in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


def _attempt(job: VolcanoJob) -> str | None:
    return job.annotations.get(ATTEMPT_ANNOTATION)


def _bring_to(kind: Kind, manifest: dict[str, Any], owner: ObservedJob | None) -> list[Object]:
    patch: list[Object] = []
    for name, value in manifest.items():
        if kind == SERVICES and name == "spec":
            # Field by field: its address is a part of the spec, and is to stay.
            patch += [_set(f"/spec/{_escaped(part)}", given) for part, given in value.items()]
        elif name not in _NEVER_CHANGES:
            patch.append(_set(f"/{_escaped(name)}", value))
    if owner is not None:
        value = [_owned_by(owner)]
        patch.append(_set("/metadata/ownerReferences", value))
    return patch


def _set(path: str, value: Any) -> Object:
    return {"op": "add", "path": path, "value": value}


def _address(kind: Kind, made: Object) -> str | None:
    address = made["spec"].get("clusterIP") if kind == SERVICES else None
    return address if address not in ("", "None") else None


def _owned_by(job: ObservedJob) -> Object:
    # No controller reference: Volcano's own controller must not take it for one of its objects.
    return {"apiVersion": API_VERSION, "kind": "Job", "name": job.name, "uid": job.uid}


def _escaped(name: str) -> str:
    """Return *name* as a part of a JSON pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")
