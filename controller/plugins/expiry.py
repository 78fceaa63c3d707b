"""Ends the job when its time is over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from controller.jobs.pipeline.plugin import JobFromServer, JobPlugin


class ExpiryPlugin(JobPlugin):
    """Ends a job whose time is over; time runs from its first start, through restarts and attempts.

    Time and extensions are in the store. This plugin only asks when a job is due. The store decides
    in a transaction, since a caller may be extending the job at this moment.
    """

    name: ClassVar[str] = "expiry"
    # Before accounting: usage of a job that ends now is entered later, up to its end.
    before: ClassVar[tuple[str, ...]] = ("accounting",)
    fields: ClassVar[frozenset[str]] = frozenset({"time_allocation_seconds"})

    async def on_job_start(self, job_id: str, job_from_server: JobFromServer) -> float | None:
        """Be due when the time is over, also if it has been over for long."""
        return job_from_server.expires_at

    async def on_job_monitoring(
        self, job_batch: Sequence[JobFromServer]
    ) -> Mapping[str, float | None]:
        """End the jobs whose time is over; be due again for those that were extended."""
        return await self.context.control.end_if_over([one.job.id for one in job_batch])
