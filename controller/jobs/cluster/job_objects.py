"""Creates, finds and deletes the VolcanoJob and the companions of a job.

Every call may be repeated. An existing object belongs to the job if its labels say so, and is then
updated to what is planned. An object of another owner is never changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Collection, Coroutine, Mapping, Sequence
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
"""The second name is used if a foreign Command has the first: that Command may never be executed.
"""
_VOLCANOS: Final = (
    (SERVICES, ""),
    (CONFIG_MAPS, "-svc"),
    (SECRETS, "-ssh"),
    (SERVICES, "-head-svc"),
)
"""The objects of Volcano's plugins beside the pods of a VolcanoJob: kinds and name suffixes."""
PODS_AT_ONCE: Final = 16
_NEVER_CHANGES: Final = frozenset({"type", "metadata"})


class NameTaken(FumaroleError):
    """An object with a name that a job needs exists, and belongs to another owner."""


class JobObjects:
    """Creates, finds and deletes the objects of jobs of *instance*."""

    def __init__(self, kube: Kube, *, instance: str) -> None:
        self._kube = kube
        self._instance = instance

    async def ensure_volcano_job(self, plan: Plan) -> ObservedJob:
        """Return the job's VolcanoJob, created now or by an earlier call.

        Raises:
            NameTaken: If it is not this job's, or if an admission webhook changes its labels.
            KubeError: If it cannot be created.
        """
        wanted = plan.volcano_job
        try:
            made = await self._kube.create(VCJOBS, wanted.manifest(), wanted.namespace)
        except KubeError as refusal:
            made = await self._existing_volcano_job(plan, refusal)
            if not self._is_ours(made, plan.job.id):
                raise NameTaken(f"a VolcanoJob {wanted.name} of somebody else is there") from None
            if made["metadata"].get("annotations", {}).get(ATTEMPT_ANNOTATION) != _attempt(wanted):
                raise Unavailable("the VolcanoJob of another attempt is still there") from None
        else:
            await self._delete_unlabelled(made, plan.job.id)
        return read_job(made)

    async def _delete_unlabelled(self, made: Object, job_id: str) -> None:
        """Delete the new VolcanoJob if the cluster changed its labels: no watch would show it.

        Raises:
            NameTaken: If the labels were changed.
            KubeError: If it cannot be deleted.
        """
        if self._is_ours(made, job_id):
            return
        metadata = made["metadata"]
        await self._kube.delete(
            VCJOBS, metadata["name"], metadata["namespace"], uid=metadata["uid"]
        )
        raise NameTaken("the cluster changes the labels by which its VolcanoJob is known")

    async def _existing_volcano_job(self, plan: Plan, refusal: KubeError) -> Object:
        """Return the existing VolcanoJob; raise the *refusal* to create it if there is none."""
        wanted = plan.volcano_job
        if may_be_there(refusal):
            try:
                return await self._kube.get(VCJOBS, wanted.name, wanted.namespace)
            except (NotFound, Forbidden) as error:
                raise _reason_of(refusal, error) from None
        raise refusal

    async def find_volcano_job(self, namespace: str, name: str, job_id: str) -> ObservedJob | None:
        """Return the job's VolcanoJob as the API server has it now; the cache may lag.

        Raises:
            KubeError: If it cannot be read.
        """
        found: Object | None = None
        async with self._unless_gone(namespace):
            found = await self._read_volcano_job(namespace, name, job_id)
        return read_job(found) if found and self._is_ours(found, job_id) else None

    async def _read_volcano_job(self, namespace: str, name: str, job_id: str) -> Object | None:
        try:
            return await self._kube.get(VCJOBS, name, namespace)
        except Forbidden:
            # The permissions in a namespace may be deleted before the rest of it. VolcanoJobs may
            # be listed in the whole cluster.
            selector = _selector(labels_of(self._instance, job_id))
            listed = await self._kube.list(VCJOBS, namespace, labels=selector)
            return next((one for one in listed if one["metadata"].get("name") == name), None)

    async def command(self, job_id: str, job: ObservedJob, action: str) -> None:
        """Issue a Volcano command for the VolcanoJob; one that is pending is enough.

        Raises:
            KubeError: If it cannot be issued.
        """
        target = {"apiVersion": API_VERSION, "kind": "Job", "name": job.name, "uid": job.uid}
        for what in _COMMANDS:
            metadata = {
                "name": companion_name(job_id, what),
                "labels": labels_of(self._instance, job_id),
                # Volcano does not compare UIDs: a left-over command must not outlive its
                # VolcanoJob.
                "ownerReferences": [_owned_by(job)],
            }
            body = {"metadata": metadata, "action": action, "target": target, "reason": "asked"}
            try:
                await self._kube.create(COMMANDS, body, job.namespace)
            except AlreadyExists:
                with suppress(NotFound):  # Volcano has just carried it out
                    if await self._has_command(job_id, job.namespace, what) is None:
                        continue
            return
        raise Unavailable("Commands of somebody else have our names")

    async def withdraw_command(self, job_id: str, namespace: str) -> None:
        """Delete a pending Command of the job: Volcano would apply it to the next attempt.

        A foreign Command with this name stays.

        Raises:
            KubeError: If it cannot be deleted.
        """
        async with self._unless_going(namespace):
            for what in _COMMANDS:
                uid = await self._has_command(job_id, namespace, what)
                if uid is not None:
                    await self._delete(COMMANDS, companion_name(job_id, what), namespace, uid)
                    return

    async def _has_command(self, job_id: str, namespace: str, what: str) -> str | None:
        """Return the uid of the job's Command; None if the Command is foreign.

        Raises:
            NotFound: If there is none.
        """
        found = await self._kube.get(COMMANDS, companion_name(job_id, what), namespace)
        if self._is_ours(found, job_id):
            uid: str = found["metadata"]["uid"]
            return uid
        log.warning("a Command with our name belongs to somebody else", extra={"job": job_id})
        return None

    async def remove_volcano_job(
        self, namespace: str, name: str, uid: str, *, shown: bool = True
    ) -> bool:
        """Delete the VolcanoJob with *uid*; the garbage collector deletes what it owns.

        A VolcanoJob that is gone is no error. A VolcanoJob that no watch has *shown* with this
        instance's labels is left alone if it belongs to another instance.

        Returns:
            Whether the VolcanoJob is gone or being deleted: false if it was left alone.

        Raises:
            KubeError: If it cannot be deleted.
        """
        async with self._unless_going(namespace):
            if not shown:
                found = (await self._kube.get(VCJOBS, name, namespace))["metadata"]
                instance = (found.get("labels") or {}).get(INSTANCE_LABEL, self._instance)
                if found.get("uid") == uid and instance != self._instance:
                    log.warning(
                        "a VolcanoJob has the label of another instance: it is not deleted",
                        extra={"uid": uid},
                    )
                    return False
            await self._delete(VCJOBS, name, namespace, uid)
        return True

    async def find_recovery_data(self, job: ObservedJob) -> Mapping[str, Any]:
        """Return the recovery data that was saved beside exactly this VolcanoJob.

        Raises:
            KubeError: If it cannot be read.
        """
        try:
            name = recovery_name(job.job_id)
            found = await self._kube.get(CONFIG_MAPS, name, job.namespace)
        except (NotFound, Forbidden):
            return {}  # the permissions in a namespace may be deleted before the rest of it
        owners = found.get("metadata", {}).get("ownerReferences") or ()
        ours = any(one.get("uid") == job.uid for one in owners)
        return found.get("data") or {} if ours else {}

    async def find_pods(
        self, namespace: str, job_id: str, *, known: Collection[str] = ()
    ) -> list[ObservedPod]:
        """Return the job's pods as the API server has them now; the cache may lag.

        Args:
            namespace: The job's.
            job_id: The job.
            known: UIDs of pods that the cache shows. If the list lacks one, pods from which a
                webhook has removed the job's label are listed, too.

        Raises:
            KubeError: If they cannot be listed.
        """
        found: list[ObservedPod] = []
        async with self._unless_gone(namespace):
            selector = _selector(labels_of(self._instance, job_id))
            found = await self._list_pods(namespace, selector)
            if not set(known) <= {pod.uid for pod in found}:
                unlabelled = f"{INSTANCE_LABEL}={self._instance},!{JOB_LABEL}"
                others = await self._list_pods(namespace, unlabelled)
                found += [pod for pod in others if pod.job_id == job_id]
        return found

    async def _list_pods(self, namespace: str, selector: str) -> list[ObservedPod]:
        found = await self._kube.list(
            PODS, namespace, labels=selector, transform=PODS_READ.transform
        )
        return [read_pod(given) for given in found]

    async def remove_pods(self, namespace: str, pods: Sequence[ObservedPod]) -> None:
        """Delete exactly these pods, with their own grace periods; a missing pod is no error.

        Their VolcanoJob must be gone: Volcano would create them again, or treat them as evicted.

        Raises:
            KubeError: If one cannot be deleted; others may have been.
        """
        # Running pods first: the others use no resources.
        waiting = deque(sorted(pods, key=lambda pod: pod.is_over))

        async def remove() -> None:
            while waiting:
                pod = waiting.popleft()
                with suppress(
                    Conflict
                ):  # another pod has the name by now; otherwise the step is decided again
                    await self._kube.delete(PODS, pod.name, namespace, uid=pod.uid)

        async with self._unless_going(namespace):
            await _all([remove() for _ in range(min(len(pods), PODS_AT_ONCE))])

    async def remove_volcanos(self, namespace: str, name: str, uid: str) -> None:
        """Delete the objects that Volcano's plugins created for the deleted VolcanoJob *uid*.

        Another VolcanoJob of that *name* would use these objects otherwise: Volcano only checks
        whether an object of the name exists, and does not create it again once the garbage
        collector has deleted it.

        Raises:
            KubeError: If one cannot be deleted; others may have been.
        """
        await _all(
            [self._remove_owned(kind, name + end, namespace, uid) for kind, end in _VOLCANOS]
        )

    async def _remove_owned(self, kind: Kind, name: str, namespace: str, owner_uid: str) -> None:
        """Delete an object if *owner_uid* is its first owner, checked atomically."""
        # Secrets cannot be read; a patch that only tests returns the uid.
        test = {"op": "test", "path": "/metadata/ownerReferences/0/uid", "value": owner_uid}
        with suppress(NotFound, Invalid, Forbidden):  # gone, foreign, or not readable
            found = await self._kube.json_patch(kind, name, [test], namespace)
            await self._delete(kind, name, namespace, str(found["metadata"]["uid"]))

    async def ensure_companion(
        self, job_id: str, namespace: str, companion: Companion, *, owner: ObservedJob | None
    ) -> CompanionRecord:
        """Create the companion, or update the existing one to the plan.

        Raises:
            NameTaken: If an object of its name is not this job's.
            KubeError: If it cannot be created.
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
                made = await self._update_existing(kind, body, namespace, job_id, owner)
            except (NotFound, Forbidden) as error:
                raise _reason_of(refusal, error) from None
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
        """Make *owner* the owner of a companion that was created before it, unless it is lasting.

        Raises:
            NameTaken: If a foreign object has its name by now.
            KubeError: If it cannot be changed.
        """
        if companion.lasting:
            return companion
        kind = _kind_of(companion.kind)
        patch = _bring_to(kind, {}, owner)
        await self._patch_ours(kind, companion.name, companion.namespace, job_id, patch)
        return replace(companion, owner_uid=owner.uid)

    async def remove_companion(self, job_id: str, companion: CompanionRecord) -> None:
        """Delete the companion if it is this job's; a companion that is gone is no error.

        Raises:
            KubeError: If it cannot be deleted.
        """
        kind = _kind_of(companion.kind)
        # A kind that a plugin declared may be removed from the cluster for good, and must not delay
        # the end of a job. If the kind returns with objects, the garbage collector deletes those
        # that the VolcanoJob owned.
        try:
            await self._remove(kind, job_id, companion)
        except NotServed:
            if companion.kind in COMPANION_KINDS:
                raise

    async def _remove(self, kind: Kind, job_id: str, companion: CompanionRecord) -> None:
        async with self._unless_going(companion.namespace):
            uid = companion.uid or await self._uid_of_ours(kind, companion, job_id)
            if uid is None:
                return
            await self._delete(kind, companion.name, companion.namespace, uid)

    async def _delete(self, kind: Kind, name: str, namespace: str, uid: str) -> None:
        """Delete exactly this object; another object of its name stays, which is no error.

        Raises:
            Conflict: If it still exists. A webhook, or a server with a stale cache, responds 409,
                too; an object that is taken for gone is never deleted again.
        """
        try:
            await self._kube.delete(kind, name, namespace, uid=uid)
        except Conflict:
            try:
                found = await self._kube.get(kind, name, namespace)
            except NotServed:
                raise
            except (NotFound, Forbidden):
                return  # some kinds may be deleted but not read
            if found["metadata"].get("uid") == uid:
                raise

    @asynccontextmanager
    async def _unless_gone(self, namespace: str) -> AsyncIterator[None]:
        """Suppress the errors of the block if its object is gone, alone or with *namespace*.

        The controller's permissions in an owner's namespace are objects in it, and are deleted with
        it. The API server then forbids all reads there. The missing namespace is the evidence that
        the object is gone.
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

    @asynccontextmanager
    async def _unless_going(self, namespace: str) -> AsyncIterator[None]:
        """As :meth:`_unless_gone`, for a deletion, also if *namespace* is being deleted.

        That cannot be revoked, and deletes all objects of the namespace. The namespace itself may
        stay for days: an object with a finalizer keeps it, or an API that is unavailable.
        """
        try:
            async with self._unless_gone(namespace):
                yield
        except Forbidden:
            found = await self._kube.get(NAMESPACES, namespace)
            if not found["metadata"].get("deletionTimestamp"):
                raise

    async def _update_existing(
        self, kind: Kind, body: Object, namespace: str, job_id: str, owner: ObservedJob | None
    ) -> Object:
        """Update the existing companion to *body*, if it is the job's."""
        if kind.kind not in COMPANION_KINDS:
            return await self._merge_ours(kind, body, namespace, job_id)
        patch = _bring_to(kind, body, owner)
        return await self._patch_ours(kind, body["metadata"]["name"], namespace, job_id, patch)

    async def _uid_of_ours(self, kind: Kind, companion: CompanionRecord, job_id: str) -> str | None:
        # The companion was intended, and perhaps created. Secrets cannot be read; an empty patch
        # returns the uid.
        try:
            found = await self._patch_ours(kind, companion.name, companion.namespace, job_id, [])
        except (NotFound, NameTaken):
            return None
        return str(found["metadata"]["uid"])

    async def _patch_ours(
        self, kind: Kind, name: str, namespace: str, job_id: str, patch: list[Object]
    ) -> Object:
        """Patch an object if its labels say that it is this job's, checked atomically."""
        tests = [
            {"op": "test", "path": f"/metadata/labels/{_escaped(label)}", "value": value}
            for label, value in labels_of(self._instance, job_id).items()
        ]
        try:
            return await self._kube.json_patch(kind, name, [*tests, *patch], namespace)
        except Invalid as error:
            if verdict_on(error, "patch") == "final":
                raise  # the patch itself is invalid; none of its tests failed
            raise NameTaken(f"a {kind.kind} {name} of somebody else is there") from error

    async def _merge_ours(self, kind: Kind, body: Object, namespace: str, job_id: str) -> Object:
        """Merge *body* into the object of its name if that is this job's, checked atomically.

        Fields that the server sets stay as they are, and so do immutable fields: the controller
        knows neither for a kind that a plugin declares.
        """
        name = body["metadata"]["name"]
        found = await self._kube.get(kind, name, namespace)
        if not self._is_ours(found, job_id):
            raise NameTaken(f"a {body['kind']} {name} of somebody else is there")
        if found["metadata"].get("deletionTimestamp"):
            return found  # an object that is being deleted needs no update
        # Optimistic locking: a concurrent change is a Conflict, and the step is tried again.
        version = {"resourceVersion": found["metadata"]["resourceVersion"]}
        seen = {"metadata": {**body["metadata"], **version}}
        try:
            return await self._kube.merge(kind, name, {**body, **seen}, namespace)
        except Invalid as error:
            log.warning(
                "a companion cannot be updated, and stays as it was created",
                extra={"job": job_id, "object": f"{body['kind']} {name}", "why": str(error)},
            )
            return await self._kube.merge(kind, name, seen, namespace)

    def _is_ours(self, given: Object, job_id: str) -> bool:
        labels = given["metadata"].get("labels") or {}
        return (labels.get(INSTANCE_LABEL), labels.get(JOB_LABEL)) == (self._instance, job_id)


def _reason_of(refusal: KubeError, looked: NotFound | Forbidden) -> KubeError:
    """Return the error of a creation: *refusal*, unless the existing object is unreadable."""
    missing = isinstance(refusal, AlreadyExists) and isinstance(looked, Forbidden)
    return looked if missing else refusal


def _kind_of(key: str) -> Kind:
    """Return the kind with the store's *key*, even if no plugin declares it any more."""
    if key in COMPANION_KINDS:
        return COMPANION_KINDS[key]
    api, _, plural = key.rpartition("/")
    # The kind is needed only to create an object, and is then in the manifest.
    return Kind(api, plural, plural)


async def _all(work: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Await all of *work*; raise the first error once all have ended."""
    for result in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


def _selector(labels: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in labels.items())


def _attempt(job: VolcanoJob) -> str | None:
    return job.annotations.get(ATTEMPT_ANNOTATION)


def _bring_to(kind: Kind, manifest: dict[str, Any], owner: ObservedJob | None) -> list[Object]:
    patch: list[Object] = []
    for name, value in manifest.items():
        if kind == SERVICES and name == "spec":
            # Field by field: clusterIP is part of the spec, and must stay.
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
