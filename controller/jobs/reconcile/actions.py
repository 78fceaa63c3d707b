"""Does the steps that ``lifecycle`` decides. Every step may be done twice."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, InitVar, dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, assert_never

from controller.jobs.cluster.job_objects import JobObjects
from controller.jobs.cluster.prerequisites import Prerequisites
from controller.jobs.cluster.priorities import PriorityValues
from controller.jobs.cluster.verdicts import row_of
from controller.jobs.history.job_record import JobEvent, JobRecords, State, next_state
from controller.jobs.history.pod_records import are_final, are_recorded, make_pod_records
from controller.jobs.pipeline.border import HookRecorder
from controller.jobs.pipeline.pipeline import Pipeline
from controller.jobs.pipeline.plugin import JobFromServer
from controller.jobs.reconcile.ending import (
    LOOK_AGAIN_SECONDS,
    SUSPENDING,
    EndActions,
    after_command,
)
from controller.jobs.reconcile.lifecycle import steps
from controller.jobs.reconcile.lifecycle.failure import NEWS_SECONDS
from controller.jobs.reconcile.lifecycle.observed_state import ObservedState
from controller.jobs.reconcile.plugin_calls import PluginCalls, StillRunning
from controller.jobs.reconcile.submitting import LONGEST_MESSAGE, NOT_EXPOSED, SubmitActions
from controller.jobs.reconcile.workqueue import RequeueAfter
from controller.jobs.submission.commands import EXPIRED
from controller.jobs.tools.runs import DueRun, describe_run, run_id
from controller.kube.errors import Forbidden, KubeError
from controller.store.jobs.folders import record_missing_mount_points
from controller.store.jobs.job_rows import JobRecord, find_job, insert_job
from controller.store.jobs.progress import (
    HookState,
    Timer,
    attempts_of,
    replace_timers,
    start_attempt,
    update_attempt,
    upsert_pod_records,
)
from controller.store.jobs.tools import find_tool, set_run
from controller.volcano.observed import as_of
from controller.volcano.reasons.causes import cause_of_refusal
from shared.text import plain_text

_REFUSED: Final[Mapping[type[steps.Step], str]] = MappingProxyType(
    {
        steps.AbortVolcanoJob: "it cannot be suspended",
        steps.IssueCommand: "its policy cannot be carried out",
        steps.ApplyCompanions: NOT_EXPOSED,
        steps.RestoreCompanions: NOT_EXPOSED,
        steps.DeleteVolcanoJob: "its VolcanoJob cannot be deleted",
        steps.ResetForNextAttempt: "its next attempt cannot begin",
        steps.Finish: "the objects that were created for it cannot be deleted",
    }
)
"""The message of a job for which the API server refuses a step."""

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False, repr=False)
class Actions:
    """Changes the store and the cluster, as the leader."""

    records: JobRecords
    _: KW_ONLY
    pipeline: Pipeline
    cluster: JobObjects
    prerequisites: Prerequisites
    """The objects that must exist before a job is submitted."""
    priorities: InitVar[PriorityValues]
    recorder: HookRecorder
    calls: PluginCalls
    looked_until: float = 0.0
    """The time of the previous leader's last observation of the cluster. Between then and this
    leader's first observation, the cluster was not observed."""
    _submitting: SubmitActions = field(init=False)
    _ending: EndActions = field(init=False)

    def __post_init__(self, priorities: PriorityValues) -> None:
        self._submitting = SubmitActions(
            self.records,
            pipeline=self.pipeline,
            cluster=self.cluster,
            prerequisites=self.prerequisites,
            priorities=priorities,
            calls=self.calls,
        )
        self._ending = EndActions(self.records, self.cluster)

    async def do(self, step: steps.Step, seen: ObservedState) -> ObservedState | None:  # noqa: C901 - one case a step
        """Do *step*; return the observed state after it, or None if the job must be observed anew.

        Raises:
            RequeueAfter: If the step must wait for something.
            LeadershipLost: If another process leads.
            KubeError, StoreUnavailable, PluginFailed: If it failed, and is to be tried again.
        """
        match step:
            case steps.RecordPods():
                return await self._record_pods(seen)
            case steps.Submit(made):
                await self._submitting.submit(seen.record, made)
            case steps.ApplyCompanions():
                await self._submitting.apply_companions(seen)
            case steps.RestoreCompanions():
                await self._submitting.apply_companions(seen)
                # The watch shows the pods; the requeue is for an interrupted watch.
                raise RequeueAfter(LOOK_AGAIN_SECONDS)
            case steps.UpdateStatus():
                return seen.after(await self._update_status(step, seen))
            case steps.RunHooks():
                await self._run_hooks(step, seen)
            case steps.SaveRecoveryData(what):
                return seen.after(await self._submitting.save_recovery_data(seen, what))
            case steps.AbortVolcanoJob():
                await self._ending.abort_volcano_job(seen)
            case steps.StartNextAttempt():
                await self._ending.start_next_attempt(step, seen)
            case steps.ResetForNextAttempt():
                await self._ending.reset_for_next_attempt(seen.record)
            case steps.AdoptNewerAttempt():
                await self._ending.adopt_newer_attempt(seen)
            case steps.SetOutcome():
                return seen.after(await self._ending.set_outcome(step, seen))
            case steps.ConfirmGone(then):
                await self._ending.confirm_gone(seen.record)
                return await self.do(then, seen)
            case steps.IssueCommand():
                await self._issue_command(step, seen)
            case steps.SetTimers(timers):
                await self._set_timers(seen.record, timers)
            case steps.ConfirmPods(then):
                if not await self._are_as_recorded(seen):
                    raise RequeueAfter(1.0)  # the cache of pods lags
                return await self.do(then, seen)
            case steps.ConfirmNotRefused(then, since):
                if await self._ending.record_refused_pods(seen, since=since):
                    return None
                return await self.do(then, seen)
            case steps.ConfirmGivenUp(then, otherwise):
                commanded = await self._ending.was_commanded(seen, "TerminateJob")
                return await self.do(otherwise if commanded else then, seen)
            case steps.DeleteVolcanoJob(uid):
                shown = seen.job if seen.job is not None and seen.job.uid == uid else None
                in_use = seen.still_runs()
                await self._ending.delete_volcano_job(seen.record, shown, uid, in_use=in_use)
            case steps.DeleteRevivedJob(uid):
                await self._ending.delete_revived_job(seen.record, uid)
            case steps.DeletePods(pods):
                await self._ending.delete_pods(seen.record, pods)
            case steps.Finish():
                await self._ending.finish(seen.record)
            case steps.Park(why):
                await self._park(seen, why)
            case steps.ExpireJob():
                await self._ending.request_end_of(seen.record, EXPIRED)
            case steps.StartTool(due):
                await self._start_tool(seen.record, due)
            case steps.EndTool(how):
                await self._ending.request_end_of(seen.record, how)
            case steps.Wait():
                pass
            case _:
                assert_never(step)
        return None

    async def react_to_refusal(self, step: steps.Step, record: JobRecord, error: KubeError) -> None:
        """Record on the job that the API server refused *step*, unless the error passes by itself.

        If a right is missing in the namespace of a running job, our RoleBindings are restored.

        Raises:
            StoreUnavailable: If it cannot be recorded.
            LeadershipLost: If another process leads.
        """
        await self._record_refusal(step, record, error)
        # A job that is submitted has its prerequisites checked by that.
        if isinstance(error, Forbidden) and not isinstance(step, steps.Submit):
            await self.prerequisites.restore_rights(record.namespace)

    async def _record_refusal(self, step: steps.Step, record: JobRecord, error: KubeError) -> None:
        row = row_of(error)
        what = _REFUSED.get(type(step))
        if what is None or not (row.reason or row.means["submission"] == "final"):
            return
        text = plain_text(f"{what}: {error}", LONGEST_MESSAGE)
        cause = {"cause": cause_of_refusal(text)} if row.reason == "forbidden" else None
        values: dict[str, Any] = {"reason": row.reason or "refused", "details": cause}
        if record.state == State.CANCELING:
            values = {"details": record.details}  # these say which user requested the end, and why
        elif isinstance(step, steps.AbortVolcanoJob):
            values = {"reason": SUSPENDING["reason"], "details": None}
        await self.records.update_if_changed(record, message=text, **values)

    async def _park(self, seen: ObservedState, why: str | None) -> None:
        await self.records.update_if_changed(seen.record, parked=why)
        tell = log.warning if why else log.info
        text = "a job is parked" if why else "a job is taken up again"
        tell(text, extra={"job": seen.record.id, "why": why or ""})

    async def _record_pods(self, seen: ObservedState) -> ObservedState | None:
        record = seen.record
        runs = make_pod_records(
            self.records.readable_job(record),
            record.attempt,
            runs=seen.runs,
            present=seen.own(seen.pods),
            departed=seen.own(seen.departed),
            now=self.records.clock(),
            looked_until=self.looked_until,
        )
        async with self.records.store.write() as transaction:
            await upsert_pod_records(transaction, runs)
            if missing := _missing_mount_points(seen):
                await record_missing_mount_points(transaction, record.id, missing)
            if seen.job is not None and seen.job.retries:
                counts = {"retries": seen.job.retries, "restarts": seen.job.restarts}
                await update_attempt(transaction, record.id, record.attempt, **counts)
        if seen.departed:
            return None  # the next observation drops the departed pods
        return replace(seen, runs={**seen.runs, **{run.pod_uid: run for run in runs}})

    async def _set_timers(self, record: JobRecord, timers: Sequence[Timer]) -> None:
        """Replace the timers of the job; a timer that runs already keeps its due time."""
        async with self.records.store.write() as transaction:
            if await self.records.lock_if_unchanged(transaction, record) is not None:
                await replace_timers(transaction, record.id, timers=timers)

    async def _issue_command(self, step: steps.IssueCommand, seen: ObservedState) -> None:
        """Issue a command that aborts, terminates or completes the VolcanoJob, and record it."""
        record, job = seen.record, seen.job
        if job is None:
            return
        # Recorded before the command: a leader that finds the VolcanoJob ended must know why.
        values = {"ordered": step.action, "ordered_why": step.why}
        if await self.records.update_if_changed(record, **values) is None:
            return  # the job was changed meanwhile
        raise after_command(await self.cluster.command(record.id, job, step.action))

    async def _are_as_recorded(self, seen: ObservedState) -> bool:
        """Return whether the API server shows the VolcanoJob's pods as they are recorded.

        Pods and VolcanoJobs have separate watches, so events of pods may arrive much later. If the
        cache still shows a pod that is gone, the event with its last state is outstanding.
        """
        record = seen.record
        known = {pod.uid for pod in seen.pods if pod.owner_uid == record.uid}
        pods = await self.cluster.find_pods(record.namespace, record.id, known=known)
        now = self.records.clock() + seen.clock_offset
        own = [as_of(pod, now) for pod in pods if pod.owner_uid == record.uid]
        there = {pod.uid for pod in own}
        if not known <= there:
            return False
        runs = {uid: run for uid, run in seen.runs.items() if uid in there}
        return are_recorded(runs, own, ())

    async def _start_tool(self, record: JobRecord, due: DueRun) -> None:
        """Start the tool, if it and its job are still as observed."""
        run = _record_of_run(record, due, now=self.records.clock())
        async with self.records.store.write() as transaction:
            if await self.records.lock_if_unchanged(transaction, record) is None:
                return
            tool = await find_tool(transaction, due.tool.place)
            if tool != due.tool:
                return
            if await find_job(transaction, run.id) is None:
                await insert_job(transaction, run, labels={})
            await set_run(transaction, tool, run.id)
        log.info("a tool was started", extra={"job": record.id, "tool": tool.name, "run": run.id})

    async def _update_status(
        self, update: steps.UpdateStatus, seen: ObservedState
    ) -> JobRecord | None:
        record = seen.record
        values: dict[str, Any] = {
            "state": next_state(record.state, update.event),
            "reason": update.reason,
            "message": update.message,
            "details": _dated(update.details, self.records.clock()),
        }
        started = None
        if update.event is JobEvent.STARTED:
            started = self._start_of(seen)
            values["started_at"] = record.started_at or started
        async with self.records.store.write() as transaction:
            after = await self.records.update(transaction, record, **values)
            if after is not None and started is not None:
                await start_attempt(transaction, record.id, record.attempt, at=started)
        return after

    def _start_of(self, seen: ObservedState) -> float:
        """Return when this attempt started: when its first program did, if that is known."""
        starts = [pod.started_at for pod in seen.own(seen.pods) if pod.started_at]
        starts += [run.started_at for run in seen.runs.values() if run.started_at]
        now = self.records.clock()
        # Clocks of nodes differ, and the cluster's times are whole seconds.
        return min(now, max(seen.record.created_at, min(starts, default=now)))

    async def _run_hooks(self, step: steps.RunHooks, seen: ObservedState) -> None:
        record = seen.record
        # Accounting charges by the pods that the last hook sees.
        if step.hook == "cleanup" and not await self._knows_pods(seen):
            raise RequeueAfter(1.0)
        state, view = seen.hooks.get(step.hook, HookState()), self.view_of(seen)

        async def run() -> None:
            await self.pipeline.run(
                step.hook, view, done=state.done, failed=state.failed, recorder=self.recorder
            )

        # The job is observed anew at once: its next step may not depend on the hooks.
        with suppress(StillRunning):
            await self.calls.result(record.id, "hooks", (record.attempt, step.hook), run)

    async def _knows_pods(self, seen: ObservedState) -> bool:
        """Return whether the pods' records are final.

        A lagging watch may still deliver events of pods that are gone. The step waits for them for
        a while if the watch is interrupted, or if the job ran and no record shows the start of its
        program.
        """
        if not await self._are_as_recorded(seen):
            return False
        if not seen.pods_stale and are_final(seen.runs.values()):
            return True
        async with self.records.store.read() as transaction:
            attempts = await attempts_of(transaction, seen.record.id)
        last = attempts[-1] if attempts else None
        if last is None or last.attempt != seen.record.attempt or last.ended_at is None:
            return True
        waits = seen.pods_stale or last.started_at is not None
        return not waits or seen.now - last.ended_at > NEWS_SECONDS

    def view_of(self, seen: ObservedState) -> JobFromServer:
        """Return what plugins see of the job."""
        record = seen.record
        return JobFromServer(
            job=self.records.readable_job(record),
            namespace=record.namespace,
            uid=record.uid or "",
            attempt=record.attempt,
            phase=seen.job.phase if seen.job is not None else "",
            started_at=record.started_at,
            expires_at=record.expires_at,
            pods=seen.pods,
        )


def _record_of_run(record: JobRecord, due: DueRun, *, now: float) -> JobRecord:
    """Return the record of a tool's run, which is reconciled as a job is."""
    of = describe_run(due, record)
    named = run_id(of)
    return JobRecord(
        id=named,
        owner_user=record.owner_user,
        owner_project=record.owner_project,
        namespace=record.namespace,
        spec={**due.tool.spec, "id": named},
        created_at=now,
        tool=of.model_dump(mode="json"),
        **due.tool.charged,
    )


def _dated(details: steps.Details, now: float) -> dict[str, Any] | None:
    """Return *details* with the time at which they were recorded."""
    return None if details is None else {**details, "at": now}


def _missing_mount_points(seen: ObservedState) -> set[int]:
    pods = seen.own((*seen.pods, *seen.departed))
    return {number for pod in pods for number in pod.missing_mount_points}
