"""Adopts VolcanoJobs of this instance that the store does not know.

The store can be lost, empty, an old backup, or another store. So an unknown VolcanoJob is deleted
only if the store holds a tombstone for it. Any other unknown VolcanoJob is adopted from its
annotations and reported. If this cluster was used with another store, nothing is submitted or
deleted until all VolcanoJobs are adopted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass, field, replace
from typing import Any, Final

from pydantic import ValidationError

from controller.jobs.cluster.informer import InformerCache
from controller.jobs.cluster.job_objects import JobObjects
from controller.jobs.cluster.prerequisites import ensure_namespace
from controller.jobs.history.job_record import (
    RecoveredHistory,
    State,
    decimal_of,
    known_of,
    recovered,
)
from controller.jobs.spec.accepted import lacks_secrets, public_spec, read_spec
from controller.jobs.spec.endpoints import asked_ports
from controller.jobs.spec.model import Job
from controller.jobs.spec.problems import JobRejected
from controller.jobs.tools.attachments import adopt_run, adopted_tools
from controller.jobs.tools.runs import RunOf
from controller.kube.client import Kube
from controller.kube.errors import AlreadyExists, Conflict, Invalid, KubeError, NotFound
from controller.kube.kinds import CONFIG_MAPS
from controller.site.job_defaults import JobDefaults
from controller.store.database import FencedStore
from controller.store.errors import AlreadyThere, StoreUnavailable
from controller.store.instance import read_store_metadata
from controller.store.jobs.job_rows import JobRecord, has_jobs, insert_job, known_jobs
from controller.store.jobs.progress import intend_companions, record_attempt
from controller.store.jobs.relations import record_connections
from controller.store.jobs.tombstones import has_tombstone
from controller.store.jobs.tools import attach_tools
from controller.volcano.names import (
    CREATED_ANNOTATION,
    INSTANCE_LABEL,
    SPEC_ANNOTATION,
    TOOL_ANNOTATION,
    is_tool,
    peer_service_name,
    volcano_job_name,
)
from controller.volcano.observed import ObservedJob
from shared.errors import FumaroleError
from shared.jose.jws import strict_json_object

RETRY_SECONDS: Final = 5.0
_KEY: Final = "identity"

log = logging.getLogger(__name__)


class CannotAdopt(FumaroleError):
    """The annotations of a VolcanoJob do not describe its job."""


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Adoption:
    """Adopts VolcanoJobs that the store does not know, as the leader of *term*.

    ``problems`` are the readiness problems of this process; ``settled`` is set once there are none.
    """

    store: FencedStore
    kube: InitVar[Kube]
    informer: InformerCache
    cluster: JobObjects
    instance: InitVar[str]
    namespace: InitVar[str]
    defaults: JobDefaults
    clock: Callable[[], float]
    _identity: StoreIdentity = field(init=False)
    problems: tuple[str, ...] = ("store and cluster have not been compared yet",)
    settled: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def __post_init__(self, kube: Kube, instance: str, namespace: str) -> None:
        self._identity = StoreIdentity(kube, instance=instance, namespace=namespace)

    async def settle(self) -> None:
        """Return once the store is shown to belong to this cluster, or all VolcanoJobs are adopted.

        The call retries until then: an operator may have to remove VolcanoJobs that cannot be
        adopted.
        """
        while True:
            try:
                problems = await self._settle()
            except (KubeError, StoreUnavailable) as error:
                problems = (str(error),)
            self.problems = problems
            if not problems:
                self.settled.set()
                return
            log.warning(
                "nothing is reconciled yet",
                extra={"why": "; ".join(problems)[:500]},
            )
            await asyncio.sleep(RETRY_SECONDS)

    async def _settle(self) -> tuple[str, ...]:
        async with self.store.read() as transaction:
            ours = (await read_store_metadata(transaction)).identity
            empty = not await has_jobs(transaction)
        theirs = await self._identity.read()
        strange = theirs not in (None, ours) or (empty and any(True for _ in self.informer.jobs))
        if strange:
            problems = await self._adopt_all()
            if problems:
                return problems
            log.warning("the store is not the one that this cluster was used with; adopted all")
        if theirs != ours:
            await self._identity.write(ours, instead_of=theirs)
        return ()

    async def _adopt_all(self) -> tuple[str, ...]:
        problems = []
        seen = list(self.informer.jobs)
        async with self.store.read() as transaction:
            known = await known_jobs(transaction, [job.job_id for job in seen])
        # Tools come after all jobs: a tool whose job is unknown ends.
        for job in sorted(seen, key=lambda one: is_tool(one.job_id)):
            if job.job_id not in known:
                try:
                    await self._adopt(job)
                except CannotAdopt as error:
                    problems.append(f"{job.namespace}/{job.name} cannot be adopted: {error}")
        return tuple(problems)

    async def look_at(self, job_id: str) -> None:
        """Adopt or delete the VolcanoJobs of this job, which the store does not know.

        Raises:
            KubeError, StoreUnavailable: To be tried again.
        """
        for job in self.informer.jobs.of_job(job_id):
            if (tool := _read_tool(job)) is not None:
                await self._look_at_job_of(tool)
            async with self.store.read() as transaction:
                gone = await has_tombstone(transaction, job_id, job.uid)
            if gone:
                await self.cluster.remove_volcano_job(job.namespace, job.name, job.uid)
                continue
            try:
                await self._adopt(job)
            except CannotAdopt as error:
                log.warning(
                    "an unknown VolcanoJob of this instance cannot be adopted and is left alone",
                    extra={
                        "job": job_id,
                        "vcjob": f"{job.namespace}/{job.name}",
                        "why": str(error),
                    },
                )

    async def _look_at_job_of(self, tool: RunOf) -> None:
        """Adopt the tool's job first, if the store does not know that job either."""
        async with self.store.read() as transaction:
            known = await known_jobs(transaction, [tool.job])
        if not known:
            await self.look_at(tool.job)

    async def _adopt(self, seen: ObservedJob) -> None:
        job, spec = _read_annotations(seen)
        try:
            await self._keep(seen, job, spec)
        except AlreadyThere:
            return  # the job was accepted meanwhile
        log.warning("adopted", extra={"job": job.id, "vcjob": f"{seen.namespace}/{seen.name}"})

    async def _keep(self, seen: ObservedJob, job: Job, spec: Mapping[str, Any]) -> None:
        pods = self.informer.pods.of_job(job.id)
        kept = await self.cluster.find_recovery_data(seen)
        past = recovered(seen, pods, kept, allocated=job.time_allocation_seconds)
        record = replace(_adopted(seen, job, past, self.defaults), spec=spec)
        tool, tools = _read_tool(seen), adopted_tools(job, self.defaults, now=self.clock())
        if tool is not None:
            record = replace(record, tool=tool.model_dump(mode="json"))
        async with self.store.write() as transaction:
            if tool is not None:
                await adopt_run(transaction, record, tool)
            record = replace(record, tools=len(tools))
            await insert_job(transaction, record, labels=job.labels)
            if tools:
                await attach_tools(transaction, tools)
            await record_attempt(
                transaction, record.id, record.attempt, uid=seen.uid, now=self.clock()
            )
            await record_connections(transaction, job.id, asked_ports(job))
            if not lacks_secrets(record.spec, {}):
                # No VolcanoJob owns this Service. The recorded intent leads to its deletion once
                # the job is over.
                lasting = ("Service", record.namespace, peer_service_name(job.id))
                await intend_companions(transaction, job.id, [lasting])


class StoreIdentity:
    """The identity of the store that this cluster is used with, in a ConfigMap."""

    def __init__(self, kube: Kube, *, instance: str, namespace: str) -> None:
        self._kube = kube
        self._instance = instance
        self._namespace = namespace
        self._name = f"fumarole-{instance}.store"

    async def read(self) -> str | None:
        """Return the store's identity; None if none was written.

        Raises:
            KubeError: If the ConfigMap cannot be read.
        """
        try:
            found = await self._kube.get(CONFIG_MAPS, self._name, self._namespace)
        except NotFound:
            return None
        return (found.get("data") or {}).get(_KEY)

    async def write(self, identity: str, *, instead_of: str | None) -> None:
        """Write *identity*, if the ConfigMap still holds *instead_of*.

        Raises:
            KubeError: If it cannot be written; Conflict if the ConfigMap holds another identity.
        """
        try:
            if instead_of is None:
                await self._create(identity)
            else:
                await self._exchange(identity, instead_of)
        except (AlreadyExists, Invalid) as error:
            raise Conflict("the identity of the store was changed meanwhile") from error

    async def _create(self, identity: str) -> None:
        metadata = {"name": self._name, "labels": {INSTANCE_LABEL: self._instance}}
        body = {"metadata": metadata, "data": {_KEY: identity}}
        await ensure_namespace(self._kube, self._namespace, instance=self._instance)
        await self._kube.create(CONFIG_MAPS, body, self._namespace)

    async def _exchange(self, identity: str, before: str) -> None:
        path = f"/data/{_KEY}"
        operations = [
            {"op": "test", "path": path, "value": before},
            {"op": "replace", "path": path, "value": identity},
        ]
        await self._kube.json_patch(CONFIG_MAPS, self._name, operations, self._namespace)


def _read_annotations(seen: ObservedJob) -> tuple[Job, Mapping[str, Any]]:
    """Return the job, and the accepted spec for the store.

    The spec of a newer version is stored as that version wrote it; the job is parked then.
    """
    try:
        spec: Mapping[str, Any] = strict_json_object(seen.annotations[SPEC_ANNOTATION].encode())
        job = read_spec(spec, {})
        spec = public_spec(job)
    except KeyError:
        raise CannotAdopt("it does not say what was accepted") from None
    except JobRejected as rejected:
        job = _of_another_version(spec, rejected)
    except (ValueError, AttributeError) as error:
        raise CannotAdopt(f"what it says was accepted is not valid: {error}") from None
    if is_tool(job.id) and _read_tool(seen) is None:
        raise CannotAdopt("it does not say whose tool it is")
    if job.id != seen.job_id or seen.name != volcano_job_name(job.id):
        raise CannotAdopt("it says to be another job than its name does")
    return job, spec


def _read_tool(seen: ObservedJob) -> RunOf | None:
    """Return the job and tool of the VolcanoJob's run; None if it runs no known tool."""
    if not is_tool(seen.job_id):
        return None
    try:
        return RunOf.model_validate_json(seen.annotations.get(TOOL_ANNOTATION, ""))
    except ValidationError:
        return None


def _of_another_version(spec: Mapping[str, Any], rejected: JobRejected) -> Job:
    owner = spec.get("owner")
    job_id, user = spec.get("id"), owner.get("user") if isinstance(owner, Mapping) else None
    project = owner.get("project") if isinstance(owner, Mapping) else None
    # A spec with unknown fields counts as a newer version's; any other error may be a mistake.
    unknown = all(one.message == "unknown field" for one in rejected.problems)
    if not unknown or not isinstance(job_id, str) or not isinstance(user, str):
        text = f"what it says was accepted is not valid: {rejected}"
        raise CannotAdopt(text) from rejected
    return known_of(spec, job_id, user, project if isinstance(project, str) else None)


def _adopted(
    seen: ObservedJob, job: Job, past: RecoveredHistory, defaults: JobDefaults
) -> JobRecord:
    # A tool is never suspended, and cannot be resumed: an aborted tool has ended.
    suspended = seen.phase in ("Aborting", "Aborted") and not is_tool(job.id)
    return JobRecord(
        id=job.id,
        owner_user=job.owner.user,
        owner_project=job.owner.project,
        namespace=seen.namespace,
        spec=public_spec(job),
        # An aborted VolcanoJob was suspended: the job is resumed or ended on request.
        desired="suspended" if suspended else "run",
        state=State.IN_QUEUE.value,
        reason="adopted",
        message="found in the cluster, not in the store",
        attempt=seen.attempt,
        uid=seen.uid,
        queue=seen.queue or None,
        created_at=decimal_of(seen.annotations.get(CREATED_ANNOTATION)) or seen.created_at,
        started_at=past.started_at,
        allocated_seconds=past.allocated_seconds,
        retries_used=past.retries_used,
        evictions=past.evictions,
        **defaults.charged_by(job, defaults.pods.catalogue),
        stopping=suspended,
    )
