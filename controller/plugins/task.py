"""Makes the job's tasks: their pods, and what each pod gets."""

from __future__ import annotations

from typing import ClassVar

from controller.jobs.builder import JobBuilder
from controller.jobs.model import Job
from controller.jobs.plugin import JobPlugin
from controller.volcano.manifest import Container, PodTemplate, Task
from controller.volcano.names import JOB_CONTAINER
from controller.volcano.quantity import Quantity


class TaskPlugin(JobPlugin):
    """Makes one pod a replica, all started together, with requests equal to limits.

    Volcano's ``svc`` gives the pods names and ``env`` their index. No pod is started again on
    its own: that an image fails is for people to see.
    """

    name: ClassVar[str] = "task"
    fields: ClassVar[frozenset[str]] = frozenset({"image", "resources", "replicas"})

    async def on_create(self, job: Job, builder: JobBuilder) -> None:
        """Add the tasks."""
        volcano_job = builder.volcano_job
        labels = dict(volcano_job.labels)
        for task in job.effective_tasks:
            container = Container(
                name=JOB_CONTAINER, image=task.image, resources=self._amounts(job)
            )
            template = PodTemplate(containers=[container], labels=dict(labels))
            volcano_job.tasks.append(
                Task(name=task.name, replicas=task.replicas, template=template)
            )
        volcano_job.queue = self.context.jobs.queue
        # A gang: either all of them are placed, or none waits in possession of a node.
        volcano_job.min_available = job.ranks
        volcano_job.max_retry = 1
        volcano_job.retention_seconds = self.context.jobs.retention_seconds
        volcano_job.plugins = {"env": [], "svc": []}

    def _amounts(self, job: Job) -> dict[str, Quantity]:
        defaults, wanted = self.context.jobs, job.resources
        amounts = {
            "cpu": wanted.cpu or defaults.cpu,
            "memory": wanted.memory or defaults.memory,
        }
        if wanted.gpu:
            amounts[defaults.gpu_resource] = Quantity(wanted.gpu * 1000)
        return amounts
