"""Creates, updates and deletes the companions of a job, such as Secrets and Services.

Every call may be repeated. An existing object belongs to the job if its labels say so, and is then
updated to what is planned. An object of another owner is never changed.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from controller.jobs.cluster.verdicts import NameTaken, may_be_there, reason_of, verdict_on
from controller.jobs.pipeline.builder import Companion
from controller.kube.client import Kube, Object
from controller.kube.errors import Forbidden, Invalid, KubeError, NotFound, NotServed
from controller.kube.kinds import CONFIG_MAPS, NETWORK_POLICIES, SECRETS, SERVICES, Kind
from controller.store.jobs.job_rows import JobRecord
from controller.store.jobs.progress import CompanionRecord
from controller.volcano.names import is_of_job, labels_of
from controller.volcano.observed import ObservedJob

log = logging.getLogger(__name__)

COMPANION_KINDS: Final[dict[str, Kind]] = {
    kind.kind: kind for kind in (SECRETS, CONFIG_MAPS, SERVICES, NETWORK_POLICIES)
}
_NEVER_CHANGES: Final = frozenset({"type", "metadata"})


class CompanionObjects:
    """Creates, updates and deletes the companions of jobs of *instance*."""

    def __init__(self, kube: Kube, *, instance: str) -> None:
        self._kube = kube
        self._instance = instance

    async def ensure(
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
            metadata["ownerReferences"] = [owner.owner_reference]
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
                raise reason_of(refusal, error) from None
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

    async def remove(self, job_id: str, companion: CompanionRecord) -> None:
        """Delete the companion if it is this job's; a companion that is gone is no error.

        Raises:
            KubeError: If it cannot be deleted.
        """
        kind = _kind_of(companion.kind)
        # A kind that a plugin declared may be removed from the cluster for good, and the right to
        # an object that was never seen made may be missing. Neither may delay the end of a job. The
        # garbage collector deletes the objects that the VolcanoJob owned.
        try:
            await self._delete(kind, job_id, companion)
        except (NotServed, Forbidden) as error:
            is_known = companion.uid and isinstance(error, Forbidden)
            if companion.kind in COMPANION_KINDS or is_known:
                raise

    async def _delete(self, kind: Kind, job_id: str, companion: CompanionRecord) -> None:
        async with self._kube.unless_going(companion.namespace):
            uid = companion.uid or await self._uid_of_ours(kind, companion, job_id)
            if uid is None:
                return
            await self._kube.ensure_deleted(kind, companion.name, companion.namespace, uid)

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
        """Patch an object if its labels say that it is this job's."""
        labels = labels_of(self._instance, job_id)
        return await patch_labelled(self._kube, kind, name, namespace, labels, patch)

    async def _merge_ours(self, kind: Kind, body: Object, namespace: str, job_id: str) -> Object:
        """Merge *body* into the object of its name if that is this job's, checked atomically.

        Fields that the server sets stay as they are, and so do immutable fields: the controller
        knows neither for a kind that a plugin declares.
        """
        name = body["metadata"]["name"]
        found = await self._kube.get(kind, name, namespace)
        if not is_of_job(found, instance=self._instance, job_id=job_id):
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


async def patch_labelled(
    kube: Kube,
    kind: Kind,
    name: str,
    namespace: str | None,
    labels: Mapping[str, str],
    patch: Sequence[Object],
) -> Object:
    """Patch an object if it has these *labels*, checked atomically; return it as it is then.

    Raises:
        NameTaken: If it has others.
        KubeError: If it cannot be changed.
    """
    tests = [
        {"op": "test", "path": f"/metadata/labels/{_escaped(label)}", "value": value}
        for label, value in labels.items()
    ]
    try:
        return await kube.json_patch(kind, name, [*tests, *patch], namespace)
    except Invalid as error:
        if verdict_on(error, "patch") == "final":
            raise  # the patch itself is invalid; none of its tests failed
        raise NameTaken(f"a {kind.kind} {name} of somebody else is there") from error


APPLIED_SECONDS: Final = 300.0
"""How long a companion is not applied again."""
MOST_JOBS: Final = 2000

_Key = tuple[str, str]
_Attempt = tuple[int, float]


@dataclass(frozen=True, slots=True)
class _Applied:
    """A companion as it exists; ``digest`` identifies what was planned."""

    digest: str
    made: CompanionRecord
    until: float


@dataclass(frozen=True, slots=True)
class _OfJob:
    attempt: _Attempt
    namespace: str
    applied: dict[_Key, _Applied] = field(default_factory=dict)


class AppliedCompanions:
    """The companions that the tries of a submission have applied; bounded in time and number.

    A submission may be tried many times, because a quota is exhausted, another job's address is
    awaited or the API server throttles. A repetition applies only what was not applied yet, or is
    planned differently now. Otherwise each try would write all companions again, and add to the
    load for which the API server throttles.

    A companion that another client deletes meanwhile is applied again within a few minutes, as
    those of running jobs are. No I/O.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._jobs: dict[str, _OfJob] = {}

    def find(self, record: JobRecord, companion: Companion) -> CompanionRecord | None:
        """Return the companion if this attempt has applied it recently, exactly as planned now."""
        job = self._jobs.get(record.id)
        if job is None or job.attempt != _attempt_of(record):
            return None
        found = job.applied.get((companion.kind, companion.name))
        if found is None or self._clock() >= found.until or found.digest != _digest(companion):
            return None
        return found.made

    def keep(self, record: JobRecord, companion: Companion, made: CompanionRecord) -> None:
        """Remember that *companion* was applied, and exists as *made*."""
        job = self._jobs.pop(record.id, None)
        if job is None or job.attempt != _attempt_of(record):
            job = _OfJob(_attempt_of(record), record.namespace)
        if len(self._jobs) >= MOST_JOBS:
            del self._jobs[next(iter(self._jobs))]  # of which no companion was applied for longest
        self._jobs[record.id] = job
        until = self._clock() + APPLIED_SECONDS
        key = companion.kind, companion.name
        job.applied[key] = _Applied(_digest(companion), made, until)

    def forget(self, job_id: str) -> None:
        """Forget the job's companions: it is submitted, or never will be."""
        self._jobs.pop(job_id, None)

    def forget_namespace(self, namespace: str) -> None:
        """Forget all companions in *namespace*: they may be gone with it."""
        gone = [job_id for job_id, one in self._jobs.items() if one.namespace == namespace]
        for job_id in gone:
            del self._jobs[job_id]


def _attempt_of(record: JobRecord) -> _Attempt:
    return record.attempt, record.created_at


def _digest(companion: Companion) -> str:
    # Of a Secret, no value is kept.
    return hashlib.sha256(json.dumps(asdict(companion), sort_keys=True).encode()).hexdigest()


def _kind_of(key: str) -> Kind:
    """Return the kind with the store's *key*, even if no plugin declares it any more."""
    if key in COMPANION_KINDS:
        return COMPANION_KINDS[key]
    api, _, plural = key.rpartition("/")
    # The kind is needed only to create an object, and is then in the manifest.
    return Kind(api, plural, plural)


def _bring_to(kind: Kind, manifest: dict[str, Any], owner: ObservedJob | None) -> list[Object]:
    patch: list[Object] = []
    for name, value in manifest.items():
        if kind == SERVICES and name == "spec":
            # Field by field: clusterIP is part of the spec, and must stay.
            patch += [set_field(f"/spec/{_escaped(part)}", given) for part, given in value.items()]
        elif name not in _NEVER_CHANGES:
            patch.append(set_field(f"/{_escaped(name)}", value))
    if owner is not None:
        patch.append(set_field("/metadata/ownerReferences", [owner.owner_reference]))
    return patch


def set_field(path: str, value: Any) -> Object:
    """Return the operation of a JSON patch that sets *path*."""
    return {"op": "add", "path": path, "value": value}


def _address(kind: Kind, made: Object) -> str | None:
    address = made["spec"].get("clusterIP") if kind == SERVICES else None
    return address if address not in ("", "None") else None


def _escaped(name: str) -> str:
    """Return *name* as a part of a JSON pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")
