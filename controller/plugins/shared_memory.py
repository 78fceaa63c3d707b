"""Shared memory at ``/dev/shm`` as large as the container's limit, instead of 64 MiB."""

from __future__ import annotations

from typing import ClassVar, Final

from controller.jobs.pipeline.builder import JobBuilder
from controller.jobs.pipeline.plugin import JobPlugin
from controller.jobs.spec.model import Job
from controller.volcano.manifest import Mount, Volume

_VOLUME: Final = "shm"
_PATH: Final = "/dev/shm"  # noqa: S108 - a mount point in the job's own container


class SharedMemoryPlugin(JobPlugin):
    """Mounts memory as large as the container's own limit, against which it counts."""

    name: ClassVar[str] = "shared_memory"
    # It reads the memory of the containers, which kata_container may reduce.
    after: ClassVar[tuple[str, ...]] = ("task", "kata_container")

    async def on_create(self, job: Job, builder: JobBuilder) -> None:
        """Add the volume to every task."""
        builder.containers()
        for task in builder.volcano_job.tasks:
            container = task.template.containers[0]
            # Every container has a limit: the task plugin sets the default.
            source = {"medium": "Memory", "sizeLimit": str(container.resources["memory"])}
            task.template.volumes.append(Volume(name=_VOLUME, source={"emptyDir": source}))
            container.mounts.append(Mount(volume=_VOLUME, path=_PATH))
