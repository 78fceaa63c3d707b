"""Enters the usage of the job into the ledger: every period, and exactly to its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from controller.jobs.pipeline.plugin import JobFromServer, JobPlugin


class AccountingPlugin(JobPlugin):
    """Updates the ledger whenever a period is over, and when no pod of the job runs any more.

    The entries follow from the cluster's records of the pods (see :mod:`controller.jobs.usage`), so
    the time at which they are made has no effect.
    """

    name: ClassVar[str] = "accounting"

    async def on_job_start(self, job_id: str, job_from_server: JobFromServer) -> float | None:
        """Enter what an earlier attempt used; due again after a period."""
        return await self.context.ledger.write_up(job_id)

    async def on_job_monitoring(
        self, job_batch: Sequence[JobFromServer]
    ) -> Mapping[str, float | None]:
        """Enter the periods that are over."""
        return {one.job.id: await self.context.ledger.write_up(one.job.id) for one in job_batch}

    async def on_cleanup(self, job_id: str) -> None:
        """Enter the rest: by now all pods have ended, and their run times are known."""
        await self.context.ledger.write_up(job_id)
