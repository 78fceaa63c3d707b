"""Public links: names under which anybody reaches the job's first web endpoint."""

from __future__ import annotations

from typing import ClassVar

from controller.jobs.pipeline.builder import JobBuilder
from controller.jobs.pipeline.plugin import JobFromServer, JobPlugin
from controller.jobs.spec.endpoints import exposed_by, why_not_name
from controller.jobs.spec.model import Job


class IngressPlugin(JobPlugin):
    """Checks links, makes them lead to the job while it lives, and releases them.

    Whether a name is free is decided in the transaction that accepts the job.
    """

    name: ClassVar[str] = "ingress"
    # After proxy at clean-up: links are free once no route leads to the job.
    before: ClassVar[tuple[str, ...]] = ("proxy",)
    fields: ClassVar[frozenset[str]] = frozenset({"links"})

    async def on_create(self, job: Job, builder: JobBuilder) -> None:
        """Check the names, and that there is an endpoint for them."""
        for index, name in enumerate(job.links):
            problem = why_not_name(name, reserved=self.context.jobs.reserved_links)
            if problem is not None:
                builder.refuse(f"links[{index}]", problem)
            elif name in job.links[:index]:
                builder.refuse(f"links[{index}]", "is listed twice")
        if job.links and exposed_by(job) is None:
            builder.refuse("links", "the job has no web endpoint that they could lead to")

    async def on_job_start(self, job_id: str, job_from_server: JobFromServer) -> float | None:
        """Make the links lead to this attempt: those of an earlier attempt have ended with it."""
        if job_from_server.job.links:
            await self.context.links.expose(job_from_server.job)
        return None

    async def on_cleanup(self, job_id: str) -> None:
        """Release them: no route leads to the job any more."""
        await self.context.links.release(job_id)
