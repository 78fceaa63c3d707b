"""Creates, finds and deletes the VolcanoJob of a job, its pods and its commands.

Every call may be repeated. An object of another owner is never changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal

from controller.jobs.cluster.companion_objects import CompanionObjects
from controller.jobs.cluster.informer import PODS_READ
from controller.jobs.cluster.verdicts import NameTaken, may_be_there, reason_of
from controller.jobs.history.job_record import recovery_name
from controller.jobs.pipeline.pipeline import Plan
from controller.kube.client import Kube, Object, Objects
from controller.kube.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    Unavailable,
)
from controller.kube.kinds import (
    COMMANDS,
    CONFIG_MAPS,
    EVENTS,
    PODS,
    SECRETS,
    SERVICES,
    VCJOBS,
    Kind,
)
from controller.volcano.manifest import VolcanoJob
from controller.volcano.names import (
    API_VERSION,
    ATTEMPT_ANNOTATION,
    INSTANCE_LABEL,
    JOB_LABEL,
    companion_name,
    is_of_job,
    labels_of,
)
from controller.volcano.observed import ObservedJob, ObservedPod
from controller.volcano.parsing import read_job, read_pod

log = logging.getLogger(__name__)

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


class JobObjects:
    """Creates, finds and deletes the objects of jobs of *instance*.

    Every method raises KubeError if the API server refuses, or does not respond.
    """

    def __init__(self, kube: Kube, *, instance: str) -> None:
        self._kube = kube
        self._instance = instance
        self.companions = CompanionObjects(kube, instance=instance)

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
            if not is_of_job(made, instance=self._instance, job_id=plan.job.id):
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
        if is_of_job(made, instance=self._instance, job_id=job_id):
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
                raise reason_of(refusal, error) from None
        raise refusal

    async def find_volcano_job(self, namespace: str, name: str, job_id: str) -> ObservedJob | None:
        """Return the job's VolcanoJob as the API server has it now; the cache may lag."""
        found: Object | None = None
        async with self._kube.unless_gone(namespace):
            found = await self._read_volcano_job(namespace, name, job_id)
        return (
            read_job(found)
            if found and is_of_job(found, instance=self._instance, job_id=job_id)
            else None
        )

    async def _read_volcano_job(self, namespace: str, name: str, job_id: str) -> Object | None:
        try:
            return await self._kube.get(VCJOBS, name, namespace)
        except Forbidden:
            # The permissions in a namespace may be deleted before the rest of it. VolcanoJobs may
            # be listed in the whole cluster.
            selector = _selector(labels_of(self._instance, job_id))
            listed = await self._kube.list(VCJOBS, namespace, labels=selector)
            return next((one for one in listed if one["metadata"].get("name") == name), None)

    async def find_events(self, job: ObservedJob) -> Objects:
        """Return the events about the VolcanoJob; none if the controller may not list them."""
        try:
            return await self._kube.list(
                EVENTS, job.namespace, fields=f"involvedObject.uid={job.uid}"
            )
        except (NotFound, Forbidden):
            return []

    async def command(self, job_id: str, job: ObservedJob, action: str) -> bool:
        """Issue a Volcano command for the VolcanoJob, unless one is pending.

        Returns:
            Whether it was issued now: false if Volcano has not taken an earlier one yet.
        """
        target = {"apiVersion": API_VERSION, "kind": "Job", "name": job.name, "uid": job.uid}
        for what in _COMMANDS:
            metadata = {
                "name": companion_name(job_id, what),
                "labels": labels_of(self._instance, job_id),
                # Volcano does not compare UIDs: a left-over command must not outlive its
                # VolcanoJob.
                "ownerReferences": [job.owner_reference],
            }
            body = {"metadata": metadata, "action": action, "target": target, "reason": "asked"}
            try:
                await self._kube.create(COMMANDS, body, job.namespace)
            except AlreadyExists:
                match await self._state_of_command(job_id, job.namespace, what):
                    case "foreign":
                        continue
                    case "pending":
                        return False
            return True
        raise Unavailable("Commands of somebody else have our names")

    async def withdraw_command(self, job_id: str, namespace: str) -> None:
        """Delete a pending Command of the job: Volcano would apply it to the next attempt.

        A foreign Command with this name stays.
        """
        async with self._kube.unless_going(namespace):
            for what in _COMMANDS:
                uid = await self._has_command(job_id, namespace, what)
                if uid is not None:
                    await self._kube.ensure_deleted(
                        COMMANDS, companion_name(job_id, what), namespace, uid
                    )
                    return

    async def _state_of_command(
        self, job_id: str, namespace: str, what: str
    ) -> Literal["foreign", "pending", "taken"]:
        try:
            uid = await self._has_command(job_id, namespace, what)
        except NotFound:
            return "taken"  # Volcano has just carried it out
        return "foreign" if uid is None else "pending"

    async def _has_command(self, job_id: str, namespace: str, what: str) -> str | None:
        """Return the uid of the job's Command; None if the Command is foreign.

        Raises:
            NotFound: If there is none.
        """
        found = await self._kube.get(COMMANDS, companion_name(job_id, what), namespace)
        if is_of_job(found, instance=self._instance, job_id=job_id):
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
        """
        async with self._kube.unless_going(namespace):
            if not shown:
                found = (await self._kube.get(VCJOBS, name, namespace))["metadata"]
                instance = (found.get("labels") or {}).get(INSTANCE_LABEL, self._instance)
                if found.get("uid") == uid and instance != self._instance:
                    log.warning(
                        "a VolcanoJob has the label of another instance: it is not deleted",
                        extra={"uid": uid},
                    )
                    return False
            await self._kube.ensure_deleted(VCJOBS, name, namespace, uid)
        return True

    async def find_recovery_data(self, job: ObservedJob) -> Mapping[str, Any]:
        """Return the recovery data that was saved beside exactly this VolcanoJob."""
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
        """
        found: list[ObservedPod] = []
        async with self._kube.unless_gone(namespace):
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

        async with self._kube.unless_going(namespace):
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
            await self._kube.ensure_deleted(kind, name, namespace, str(found["metadata"]["uid"]))


async def _all(work: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Await all of *work*; raise the first error once all have ended."""
    for result in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


def _selector(labels: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in labels.items())


def _attempt(job: VolcanoJob) -> str | None:
    return job.annotations.get(ATTEMPT_ANNOTATION)
