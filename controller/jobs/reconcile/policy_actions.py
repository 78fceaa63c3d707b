"""Carries out what a job's policies say where Volcano does not; each call may be the second one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from controller.jobs.cluster.job_objects import JobObjects
from controller.jobs.history.job_record import JobRecords
from controller.jobs.history.pod_records import are_recorded
from controller.jobs.reconcile.lifecycle import ObservedState
from controller.jobs.reconcile.requeue import RequeueAfter
from controller.jobs.reconcile.steps import Order
from controller.store.jobs.job_rows import JobRecord
from controller.store.jobs.timers import Timer, replace_timers

LOOK_AGAIN_SECONDS: Final = 2.0


class PolicyActions:
    """Times policies, and has Volcano do what they say."""

    def __init__(self, records: JobRecords, cluster: JobObjects) -> None:
        self._records = records
        self._cluster = cluster

    async def set_timers(self, record: JobRecord, timers: Sequence[Timer]) -> None:
        """Have exactly these timers run; those that run already keep their due times."""
        async with self._records.lead() as transaction:
            if await self._records.held(transaction, record) is not None:
                await replace_timers(transaction, record.id, timers=timers)

    async def order(self, step: Order, seen: ObservedState) -> None:
        """Have Volcano abort, terminate or complete the VolcanoJob, and remember that it was us."""
        record, job = seen.record, seen.job
        if job is None:
            return
        # Before the command: whoever finds the VolcanoJob ended must know why.
        await self._records.tell(record, ordered=step.action, ordered_why=step.why)
        await self._cluster.command(record.id, job, step.action)
        # Volcano loses a command that comes while it starts the job over.
        raise RequeueAfter(LOOK_AGAIN_SECONDS)

    async def are_as_seen(self, seen: ObservedState) -> bool:
        """Say whether the cluster itself shows the VolcanoJob's pods as they are written down.

        The news of pods comes apart from that of VolcanoJobs, and perhaps much later.
        """
        record = seen.record
        pods = await self._cluster.find_pods(record.namespace, record.id)
        own = [pod for pod in pods if pod.owner_uid == record.uid]
        there = {pod.uid for pod in own}
        runs = {uid: run for uid, run in seen.runs.items() if uid in there}
        return are_recorded(runs, own, ())
