"""Deletes mount points that jobs have left in their owners' output folders.

If an input is mounted within the output folder, the container runtime creates a folder, or an empty
file, on the volume. The first container of each pod reports the mount points that did not exist
before. Once no job uses the output folder any more, a short pod deletes the empty ones. No
container of a job's own pods can delete them: deleting a folder unmounts it in every other pod,
also in pods of another rank or another job on another node.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable
from dataclasses import KW_ONLY, InitVar, dataclass, field, replace
from typing import Any, Final

from controller.jobs.cluster.job_objects import JobObjects
from controller.jobs.containment import Containment
from controller.jobs.pipeline.builder import NestedMounts
from controller.jobs.spec.accepted import output_of
from controller.kube.client import Kube, Object
from controller.kube.errors import AlreadyExists, KubeError
from controller.kube.kinds import VCJOBS
from controller.store.database import FencedStore
from controller.store.jobs.folders import (
    Cleaning,
    MountPoints,
    begin_cleaning,
    end_cleaning,
    last_jobs_of,
    outputs_not_held,
    places_to_clean,
)
from controller.store.jobs.job_rows import find_jobs
from controller.volcano.manifest import Task, VolcanoJob, escape
from controller.volcano.names import INSTANCE_LABEL
from controller.volcano.observed import ObservedJob, Progress, progress_of
from controller.volcano.parsing import read_job

EVERY_SECONDS: Final = 2.0
POLL_SECONDS: Final = 1.0
CLEANING_SECONDS: Final = 60.0
"""How long the cleaning pod may take; a job that needs the folder waits for it."""
LATER_SECONDS: Final = 30.0
"""The pause before a folder is checked again that is still in use although its jobs are over."""
AT_ONCE: Final = 8
_RETENTION_SECONDS: Final = 60
_TASK: Final = "clean"
_GOES_ON: Final = frozenset({Progress.WAITING, Progress.RUNNING, Progress.ENDING})

log = logging.getLogger(__name__)


def mount_points_of(nested: NestedMounts, job: VolcanoJob) -> MountPoints:
    """Return the mount points that the job's pods may leave, and their cleaner; no I/O.

    The cleaning pod is placed as the job's own pods are: the claim may be usable on their nodes
    only.
    """
    place = (job.labels.get(INSTANCE_LABEL, ""), job.namespace, nested.claim, nested.folder)
    digest = hashlib.sha256("\0".join(place).encode()).hexdigest()[:32]
    template = replace(
        job.tasks[0].template,
        containers=[nested.cleaner],
        init_containers=[],
        labels={},
        annotations={},
        volumes=[nested.volume],
    )
    template.more = {
        # The script is trusted, and needs no sandbox.
        **{name: value for name, value in template.more.items() if name != "runtimeClassName"},
        # As process 1 of its container it ignores SIGTERM, and it has nothing to save.
        "activeDeadlineSeconds": int(CLEANING_SECONDS),
        "terminationGracePeriodSeconds": 1,
    }
    cleaner = VolcanoJob(
        name=f"mounts-{digest[:20]}",
        namespace=job.namespace,
        queue=job.queue,
        min_available=1,
        retention_seconds=_RETENTION_SECONDS,
        tasks=[Task(name=_TASK, replicas=1, template=template)],
    )
    return MountPoints(place=digest, names=nested.names, cleaner=cleaner.manifest())


@dataclass(slots=True, eq=False, repr=False)
class MountPointCleaner:
    """Deletes mount points, as the leader of *term*."""

    store: FencedStore
    _: KW_ONLY
    kube: Kube
    cluster: JobObjects
    clock: Callable[[], float]
    """Unix seconds."""
    failed: InitVar[Callable[[Exception], None]]
    _later: dict[str, float] = field(default_factory=dict, init=False)
    _contained: Containment = field(init=False)

    def __post_init__(self, failed: Callable[[Exception], None]) -> None:
        self._contained = Containment("mount points cannot be removed", failed)

    async def run(self) -> None:
        """Clean folders that jobs have left; returns only by LeadershipLost."""
        await self._contained.repeat(self.clean_due, lambda: EVERY_SECONDS)

    async def clean_due(self) -> None:
        """Clean some of the folders that no job uses any more.

        Raises:
            LeadershipLost: If another process leads.
            StoreUnavailable: If the store does not respond.
        """
        now = self.clock()
        self._later = {place: at for place, at in self._later.items() if at > now}
        async with self.store.read() as transaction:
            places = await places_to_clean(transaction, limit=AT_ONCE + len(self._later))
        due = [place for place in places if place not in self._later][:AT_ONCE]
        cleaning = [self._clean_contained(place) for place in due]
        for result in await asyncio.gather(*cleaning, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    async def _clean_contained(self, place: str) -> None:
        with self._contained.of(place):
            await self._clean(place)

    async def _clean(self, place: str) -> None:
        if await self._is_in_use(place):
            self._later[place] = self.clock() + LATER_SECONDS
            return
        async with self.store.write() as transaction:
            cleaning = await begin_cleaning(transaction, place, now=self.clock())
        if cleaning is None:
            return
        try:
            await self._remove(cleaning)
        except KubeError as error:
            if self.clock() <= _until(cleaning):
                return  # the pod may still run: it is tried again until its deadline
            log.info("mount points were not removed", extra={"why": str(error)})
        async with self.store.write() as transaction:
            await end_cleaning(transaction, place)

    async def _is_in_use(self, place: str) -> bool:
        """Return whether a pod may have the folder mounted.

        Pods of the jobs that used the folder may have it mounted, and pods of a job with the same
        output that does not hold the folder.
        """
        async with self.store.read() as transaction:
            job_ids = await last_jobs_of(transaction, place)
            records = await find_jobs(transaction, job_ids)
            owners = {(one.namespace, one.owner_user) for one in records.values()}
            others = set[str]()
            for namespace, user in owners:
                others |= await outputs_not_held(transaction, namespace=namespace, user=user)
        if any(output_of(record.spec) in others for record in records.values()):
            return True
        for record in records.values():
            try:
                pods = await self.cluster.find_pods(record.namespace, record.id)
            except KubeError:
                return True
            if any(not pod.is_over for pod in pods):
                return True
        return False

    async def _remove(self, cleaning: Cleaning) -> None:
        """Have a pod delete them; return once the pod has ended.

        Raises:
            KubeError: If the API server does not respond, or refuses.
        """
        body = _cleaner(cleaning)
        name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
        try:
            made = read_job(await self.kube.create(VCJOBS, body, namespace))
        except AlreadyExists:  # by the leader before this one, or the response was lost
            made = read_job(await self.kube.get(VCJOBS, name, namespace))
        while progress_of(made.phase) in _GOES_ON and self.clock() <= _until(cleaning):
            await asyncio.sleep(POLL_SECONDS)
            made = read_job(await self.kube.get(VCJOBS, name, namespace))
        await self.kube.delete(VCJOBS, name, namespace, uid=made.uid)
        self._tell(made, cleaning)

    def _tell(self, made: ObservedJob, cleaning: Cleaning) -> None:
        about = {"namespace": made.namespace, "mount_points": len(cleaning.names)}
        if progress_of(made.phase) is Progress.SUCCEEDED:
            log.info("mount points were removed", extra=about)
        else:
            log.info(
                "mount points were not removed", extra={**about, "why": made.phase or "no phase"}
            )


def _until(cleaning: Cleaning) -> float:
    return cleaning.began_at + CLEANING_SECONDS


def _cleaner(cleaning: Cleaning) -> Object:
    """Return the VolcanoJob of exactly this cleaning; a repetition has the same name."""
    body: dict[str, Any] = cleaning.cleaner
    body["metadata"]["name"] += f"-{int(cleaning.began_at):x}"
    (task,) = body["spec"]["tasks"]
    (container,) = task["template"]["spec"]["containers"]
    container["command"] += [str(int(_until(cleaning))), *map(escape, cleaning.names)]
    return body
