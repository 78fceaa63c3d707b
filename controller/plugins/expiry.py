"""Ends the job when its time is over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from controller.jobs.pipeline.plugin import JobFromServer, JobPlugin


class ExpiryPlugin(JobPlugin):
    """Counts a job's time from its first start, through restarts, attempts and suspensions.

    The time is in the store, with what was added to it; here it is only looked at when it is due,
    and there that it is decided, since somebody may be adding some at this very moment.
    """

    name: ClassVar[str] = "expiry"
    # What ends now is entered to its end later, not period by period.
    before: ClassVar[tuple[str, ...]] = ("accounting",)
    fields: ClassVar[frozenset[str]] = frozenset({"time_allocation_seconds"})

    async def on_job_start(self, job_id: str, job_from_server: JobFromServer) -> float | None:
        """Look again when its time is over; also where it has been over for long."""
        return job_from_server.expires_at

    async def on_job_monitoring(
        self, job_batch: Sequence[JobFromServer]
    ) -> Mapping[str, float | None]:
        """End those whose time is over; look again at those that were given more."""
        return await self.context.control.end_if_over([one.job.id for one in job_batch])
