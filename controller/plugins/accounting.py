"""Enters what the job uses into the ledger: every period, and to the last second when it ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from controller.jobs.pipeline.plugin import JobFromServer, JobPlugin


class AccountingPlugin(JobPlugin):
    """Writes the ledger up whenever a period is over, and when nothing of the job runs any more.

    What it enters follows from the cluster's own record of the pods (see
    :mod:`controller.jobs.usage`), so that it does not matter when it comes to do so.
    """

    name: ClassVar[str] = "accounting"

    async def on_job_start(self, job_id: str, job_from_server: JobFromServer) -> float | None:
        """Enter what an attempt before this one used, and look again after a period."""
        return await self.context.ledger.write_up(job_id)

    async def on_job_monitoring(
        self, job_batch: Sequence[JobFromServer]
    ) -> Mapping[str, float | None]:
        """Enter the periods that are over."""
        return {one.job.id: await self.context.ledger.write_up(one.job.id) for one in job_batch}

    async def on_cleanup(self, job_id: str) -> None:
        """Enter the rest: by now all pods have ended, and how long they ran is known."""
        await self.context.ledger.write_up(job_id)
