"""A plugin of somebody else's, written for version 0.1.0 as docs/plugins/write-your-own.md taught.

It uses all of the interface that such a plugin may use, and is never changed: a later version
that cannot run it as it stands has taken something away from its users. What its hooks are called
for is written to the file that ``COST_CENTRE_LOG`` names. ``COST_CENTRE_TROUBLE`` names hooks that
fail, as ``<hook>:<job>``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import ClassVar

from controller.jobs.builder import Companion, JobBuilder
from controller.jobs.model import Job
from controller.jobs.plugin import JobFromServer, JobPlugin
from controller.jobs.problems import JobRejected, Problem
from controller.volcano.manifest import Variable
from controller.volcano.names import companion_name

EVERY_SECONDS = 5.0


class CostCentrePlugin(JobPlugin):
    """Labels pods with the cost centre of their job, without which no job runs."""

    name: ClassVar[str] = "cost_centre"
    fields: ClassVar[frozenset[str]] = frozenset()

    async def on_create(self, job: Job, builder: JobBuilder) -> None:
        centre = job.labels.get("cost-centre")
        if centre is None:
            builder.refuse("labels.cost-centre", "is missing")
            return
        if centre == "closed":
            raise JobRejected([Problem("labels.cost-centre", "is closed")])
        for task in builder.volcano_job.tasks:
            task.template.labels["example.com/cost-centre"] = centre
        for container in builder.containers():
            container.environment.append(Variable(name="COST_CENTRE", value=centre))
        builder.add_companion(
            Companion(
                kind="ConfigMap",
                name=companion_name(job.id, "cost-centre"),
                manifest={"data": {"centre": centre, "instance": self.context.instance}},
                when="after",
            )
        )

    async def on_job_start(self, job_id: str, job_from_server: JobFromServer) -> float | None:
        self._note("start", job_id, job_from_server.attempt, job_from_server.job.labels)
        return time.time() + EVERY_SECONDS

    async def on_job_monitoring(
        self, job_batch: Sequence[JobFromServer]
    ) -> Mapping[str, float | None]:
        for one in job_batch:
            self._note("monitoring", one.job.id, one.attempt, one.job.labels)
        return {one.job.id: time.time() + EVERY_SECONDS for one in job_batch}

    async def on_job_complete(self, job_id: str, job_from_server: JobFromServer) -> None:
        self._note("complete", job_id, job_from_server.attempt, job_from_server.job.labels)

    async def on_cleanup(self, job_id: str) -> None:
        self._note("cleanup", job_id, 0, {})

    def _note(self, hook: str, job_id: str, attempt: int, labels: Mapping[str, str]) -> None:
        if f"{hook}:{job_id}" in os.environ.get("COST_CENTRE_TROUBLE", "").split(","):
            raise ConnectionError("the accounts do not answer")
        with open(os.environ["COST_CENTRE_LOG"], "a", encoding="utf-8") as file:
            file.write(f"{hook} {job_id} {attempt} {labels.get('cost-centre', '-')}\n")
