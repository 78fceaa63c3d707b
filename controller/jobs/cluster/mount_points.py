"""Removes mount points that jobs have left in their owners' output folders.

Where an input is mounted within the output folder, the container's runtime makes a folder, or an
empty file, on the volume. A pod's first container says which were not there before it. Once no job
has the output folder any more, a short pod of ours removes those that are empty. Nothing within a
job's own pods could: to remove a folder unmounts what is mounted on it in every other pod, also in
those of another rank, or of another job, on another node.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from controller.jobs.cluster.job_objects import JobObjects
from controller.jobs.containment import Containment
from controller.jobs.pipeline.builder import NestedMounts
from controller.kube.client import Kube, Object
from controller.kube.errors import AlreadyExists, KubeError
from controller.kube.kinds import VCJOBS
from controller.store.database import Store
from controller.store.errors import StoreUnavailable
from controller.store.jobs.between_jobs import (
    Cleaning,
    MountPoints,
    begin_cleaning,
    end_cleaning,
    last_jobs_of,
    outputs_not_held,
    places_to_clean,
)
from controller.store.jobs.job_rows import JobRecord, find_jobs
from controller.volcano.manifest import Task, VolcanoJob, escape
from controller.volcano.names import INSTANCE_LABEL
from controller.volcano.observed import ObservedJob, read_job
from controller.volcano.policies import Progress, progress_of

EVERY_SECONDS: Final = 2.0
POLL_SECONDS: Final = 1.0
CLEANING_SECONDS: Final = 60.0
"""How long a pod has to be placed and to remove them; a job that wants the folder waits for it."""
LATER_SECONDS: Final = 30.0
"""After which a folder is looked at again whose jobs are over, and that is still in use."""
AT_ONCE: Final = 8
_RETENTION_SECONDS: Final = 60
_TASK: Final = "clean"
_GOES_ON: Final = frozenset({Progress.WAITING, Progress.RUNNING, Progress.ENDING})

log = logging.getLogger(__name__)


def mount_points_of(nested: NestedMounts, job: VolcanoJob) -> MountPoints:
    """Return what the job's pods may leave in its output folder, and what removes it; no I/O.

    The pod that does is placed as the job's own are: only there its claim may be usable.
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
        # The script is ours, and needs no machine of its own.
        **{name: value for name, value in template.more.items() if name != "runtimeClassName"},
        # It ignores a signal, as the first process of a container does, and has nothing to save.
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


class MountPointCleaner:
    """Has mount points removed, as the leader of *term*.

    Args:
        clock: Unix seconds.
        failed: Counts what nobody expected.
    """

    def __init__(
        self,
        store: Store,
        *,
        term: int,
        kube: Kube,
        cluster: JobObjects,
        clock: Callable[[], float],
        failed: Callable[[Exception], None],
    ) -> None:
        self._store = store
        self._term = term
        self._kube = kube
        self._cluster = cluster
        self._clock = clock
        self._later: dict[str, float] = {}
        self._contained = Containment("mount points cannot be removed", failed)

    async def run(self) -> None:
        """Clean folders as jobs leave them; returns only by LeadershipLost."""
        while True:
            try:
                await self.clean_due()
            except StoreUnavailable as error:
                log.warning("no mount points are removed", extra={"why": str(error)})
            await asyncio.sleep(EVERY_SECONDS)

    async def clean_due(self) -> None:
        """Clean some of the folders that no job has any more.

        Raises:
            LeadershipLost: If another one leads.
            StoreUnavailable: If the store does not answer.
        """
        now = self._clock()
        self._later = {place: at for place, at in self._later.items() if at > now}
        async with self._store.read() as transaction:
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
            self._later[place] = self._clock() + LATER_SECONDS
            return
        async with self._store.lead(self._term) as transaction:
            cleaning = await begin_cleaning(transaction, place, now=self._clock())
        if cleaning is None:
            return
        try:
            await self._remove(cleaning)
        except KubeError as error:
            if self._clock() <= _until(cleaning):
                return  # a pod may yet do something: it is tried again until none can
            log.info("mount points stay", extra={"why": str(error)})
        async with self._store.lead(self._term) as transaction:
            await end_cleaning(transaction, place)

    async def _is_in_use(self, place: str) -> bool:
        """Say whether a pod of the jobs that had the folder has it mounted, as far as is known.

        Or one of a job that holds no folder, and has the same output.
        """
        async with self._store.read() as transaction:
            job_ids = await last_jobs_of(transaction, place)
            records = await find_jobs(transaction, job_ids)
            owners = {(one.namespace, one.owner_user) for one in records.values()}
            others = set[str]()
            for namespace, user in owners:
                others |= await outputs_not_held(transaction, namespace=namespace, user=user)
        if any(_output_of(record) in others for record in records.values()):
            return True
        for record in records.values():
            try:
                pods = await self._cluster.find_pods(record.namespace, record.id)
            except KubeError:
                return True
            if any(not pod.is_over for pod in pods):
                return True
        return False

    async def _remove(self, cleaning: Cleaning) -> None:
        """Have a pod remove them, and return once it does nothing any more.

        Raises:
            KubeError: If the cluster cannot be asked to, or refuses.
        """
        body = _cleaner(cleaning)
        name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
        try:
            made = read_job(await self._kube.create(VCJOBS, body, namespace))
        except AlreadyExists:  # by the leader before this one, or its answer was lost
            made = read_job(await self._kube.get(VCJOBS, name, namespace))
        while progress_of(made.phase) in _GOES_ON and self._clock() <= _until(cleaning):
            await asyncio.sleep(POLL_SECONDS)
            made = read_job(await self._kube.get(VCJOBS, name, namespace))
        await self._kube.delete(VCJOBS, name, namespace, uid=made.uid)
        self._tell(made, cleaning)

    def _tell(self, made: ObservedJob, cleaning: Cleaning) -> None:
        about = {"namespace": made.namespace, "mount_points": len(cleaning.names)}
        if progress_of(made.phase) is Progress.SUCCEEDED:
            log.info("removed mount points", extra=about)
        else:
            log.info("mount points stay", extra={**about, "why": made.phase or "no phase"})


def _output_of(record: JobRecord) -> object:
    # One that a newer version has accepted may be kept as anything.
    return record.spec.get("output") if isinstance(record.spec, dict) else None


def _until(cleaning: Cleaning) -> float:
    return cleaning.began_at + CLEANING_SECONDS


def _cleaner(cleaning: Cleaning) -> Object:
    """Return the VolcanoJob of exactly this cleaning: made again, it has the same name."""
    body: dict[str, Any] = cleaning.cleaner
    body["metadata"]["name"] += f"-{int(cleaning.began_at):x}"
    (task,) = body["spec"]["tasks"]
    (container,) = task["template"]["spec"]["containers"]
    container["command"] += [str(int(_until(cleaning))), *map(escape, cleaning.names)]
    return body
