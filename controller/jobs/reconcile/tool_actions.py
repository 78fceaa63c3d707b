"""Begins runs of tools; each call may be the second one."""

from __future__ import annotations

import logging

from controller.jobs.history.job_record import JobRecords
from controller.jobs.tools.runs import DueRun, describe_run, run_id
from controller.store.jobs.job_rows import JobRecord, find_job, insert_job
from controller.store.jobs.tools import find_tool, set_run

log = logging.getLogger(__name__)


class ToolActions:
    """Makes records of runs: what else becomes of these is as of jobs."""

    def __init__(self, records: JobRecords) -> None:
        self._records = records

    async def start(self, record: JobRecord, due: DueRun) -> None:
        """Have the tool run, if it and its job are still as they were seen."""
        run = self._run(record, due)
        async with self._records.lead() as transaction:
            if await self._records.held(transaction, record) is None:
                return
            tool = await find_tool(transaction, due.tool.place)
            if tool != due.tool:
                return
            if await find_job(transaction, run.id) is None:
                await insert_job(transaction, run, labels={})
            await set_run(transaction, tool, run.id)
        log.info("a tool begins", extra={"job": record.id, "tool": tool.name, "run": run.id})

    def _run(self, record: JobRecord, due: DueRun) -> JobRecord:
        of = describe_run(due, record)
        named = run_id(of)
        return JobRecord(
            id=named,
            owner_user=record.owner_user,
            owner_project=record.owner_project,
            namespace=record.namespace,
            spec={**due.tool.spec, "id": named},
            sealed=None,
            fingerprint=None,
            desired="run",
            state="IN_QUEUE",
            reason="submitting",
            message="being submitted",
            attempt=1,
            uid=None,
            outcome=None,
            created_at=self._records.clock(),
            started_at=None,
            finished_at=None,
            tool=of.model_dump(mode="json"),
            **due.tool.charged,
        )
