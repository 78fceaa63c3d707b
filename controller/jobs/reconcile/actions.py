"""Does the steps that ``lifecycle`` decides on; each may be done twice."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, assert_never

from controller.jobs.cluster.job_objects import JobObjects
from controller.jobs.cluster.prerequisites import Prerequisites
from controller.jobs.history.job_record import JobRecords
from controller.jobs.history.pod_records import is_of, make_pod_records
from controller.jobs.history.states import Happening, next_state
from controller.jobs.pipeline.pipeline import HookRecorder, Pipeline
from controller.jobs.pipeline.plugin import JobFromServer
from controller.jobs.reconcile.ending import LOOK_AGAIN_SECONDS, EndActions
from controller.jobs.reconcile.lifecycle import ObservedState
from controller.jobs.reconcile.plugin_calls import PluginCalls, StillRunning
from controller.jobs.reconcile.policy_actions import PolicyActions
from controller.jobs.reconcile.requeue import RequeueAfter
from controller.jobs.reconcile.steps import (
    AdoptNewerAttempt,
    Conclude,
    Confirm,
    ConfirmPods,
    Details,
    EndOverdue,
    EndTool,
    Expose,
    Finish,
    KeepForRecovery,
    Note,
    Order,
    Park,
    RecordPods,
    Remove,
    RemovePods,
    Replace,
    Rest,
    Restore,
    RunHooks,
    SetTimers,
    StartNextAttempt,
    StartTool,
    Step,
    Stop,
    Submit,
)
from controller.jobs.reconcile.submitting import SubmitActions
from controller.jobs.reconcile.tool_actions import ToolActions
from controller.jobs.submission.commands import EXPIRED
from controller.store.jobs.hook_runs import HookState
from controller.store.jobs.job_rows import JobRecord
from controller.store.jobs.mount_points import note_missing
from controller.store.jobs.pods import pod_records_of, upsert_pod_records
from controller.store.jobs.progress import attempts_of, move_attempt, start_attempt
from controller.volcano.observed import ObservedPod

NEWS_SECONDS: Final = 30.0
"""How long the end of a job waits for news of its pods, when there is reason to."""

log = logging.getLogger(__name__)


class Actions:
    """Changes store and cluster, as the leader.

    Args:
        records: The leader's way to jobs' records.
        pipeline: The plugins.
        cluster: What is made and removed there.
        prerequisites: Where jobs run.
        recorder: Remembers which hooks have run.
        looked_until: When the leader before this one looked last; what happened between then and
            this one's first look, nobody saw.
        calls: Waits for plugins.
    """

    def __init__(
        self,
        records: JobRecords,
        *,
        pipeline: Pipeline,
        cluster: JobObjects,
        prerequisites: Prerequisites,
        recorder: HookRecorder,
        looked_until: float = 0.0,
        calls: PluginCalls | None = None,
    ) -> None:
        self._records = records
        self._calls = calls or PluginCalls()
        self._pipeline = pipeline
        self._cluster = cluster
        self._recorder = recorder
        self._looked_until = looked_until
        self._submitting = SubmitActions(
            records,
            pipeline=pipeline,
            cluster=cluster,
            prerequisites=prerequisites,
            calls=self._calls,
        )
        self._ending = EndActions(records, cluster)
        self._policies = PolicyActions(records, cluster)
        self._tools = ToolActions(records)

    async def do(self, step: Step, seen: ObservedState) -> ObservedState | None:  # noqa: C901 - one case a step
        """Do *step*; return how the job is observed then, None where that takes another look.

        Raises:
            Later: If it must wait for something that is not there yet.
            LeadershipLost: If another one leads.
            KubeError, StoreUnavailable, PluginFailed: If it failed, and is to be tried again.
        """
        match step:
            case RecordPods():
                return await self._record_pods(seen)
            case Submit():
                await self._submitting.submit(seen.record)
            case Expose():
                await self._submitting.expose(seen)
            case Restore():
                await self._submitting.expose(seen)
                # The watch will show it; looking again is for when it does not.
                raise RequeueAfter(LOOK_AGAIN_SECONDS)
            case Note():
                return seen.after(await self._note(step, seen))
            case RunHooks():
                await self._run_hooks(step, seen)
            case KeepForRecovery(what):
                return seen.after(await self._submitting.keep_for_recovery(seen, what))
            case Stop():
                await self._ending.stop(seen)
            case StartNextAttempt():
                await self._ending.renew(step, seen)
            case Replace():
                await self._ending.replace(seen.record)
            case AdoptNewerAttempt():
                await self._ending.catch_up(seen)
            case Conclude():
                return seen.after(await self._ending.conclude(step, seen))
            case Confirm():
                await self._ending.confirm(step, seen)
            case Order():
                await self._policies.order(step, seen)
            case SetTimers(timers):
                await self._policies.set_timers(seen.record, timers)
            case ConfirmPods():
                return await self._confirm_pods(step, seen)
            case Remove(uid):
                shown = seen.job if seen.job is not None and seen.job.uid == uid else None
                await self._ending.remove(seen.record, shown, uid)
            case RemovePods(pods):
                await self._ending.remove_pods(seen.record, pods)
                # The watch tells when it is gone; looking again is for when it does not.
                raise RequeueAfter(5.0)
            case Finish():
                await self._ending.finish(seen.record)
            case Park(why):
                await self._park(seen, why)
            case EndOverdue():
                await self._ending.ask(seen.record, EXPIRED)
            case StartTool(due):
                await self._tools.start(seen.record, due)
            case EndTool(how):
                await self._ending.ask(seen.record, how)
            case Rest():
                pass
            case _:
                assert_never(step)
        return None

    async def _park(self, seen: ObservedState, why: str | None) -> None:
        await self._records.tell(seen.record, parked=why)
        tell = log.warning if why else log.info
        text = "a job is parked" if why else "a job is taken up again"
        tell(text, extra={"job": seen.record.id, "why": why or ""})

    async def _record_pods(self, seen: ObservedState) -> ObservedState | None:
        record = seen.record
        runs = make_pod_records(
            self._records.readable_job(record),
            record.attempt,
            runs=seen.runs,
            present=_own(seen, seen.pods),
            departed=_own(seen, seen.departed),
            now=self._records.clock(),
            looked_until=self._looked_until,
        )
        async with self._records.lead() as transaction:
            await upsert_pod_records(transaction, runs)
            if missing := _missing_mount_points(seen):
                await note_missing(transaction, record.id, missing)
            if seen.job is not None and seen.job.retries:
                counts = {"retries": seen.job.retries, "restarts": seen.job.restarts}
                await move_attempt(transaction, record.id, record.attempt, **counts)
            written = await pod_records_of(transaction, record.id, record.attempt)
        if seen.departed:
            return None  # another look forgets those
        return replace(seen, runs={run.pod_uid: run for run in written})

    async def _confirm_pods(self, step: ConfirmPods, seen: ObservedState) -> ObservedState | None:
        """Do what follows from the pods, unless their cache is behind."""
        if not await self._policies.are_as_seen(seen):
            raise RequeueAfter(1.0)
        match step.then:
            case Conclude() as conclusion:
                return seen.after(await self._ending.conclude(conclusion, seen))
            case StartNextAttempt() as renewal:
                await self._ending.renew(renewal, seen)
            case Order() as order:
                await self._policies.order(order, seen)
            case _:
                assert_never(step.then)
        return None

    async def _note(self, note: Note, seen: ObservedState) -> JobRecord | None:
        record = seen.record
        values: dict[str, Any] = {
            "state": next_state(record.state, note.happening),
            "reason": note.reason,
            "message": note.message,
            "details": _dated(note.details, self._records.clock()),
        }
        started = None
        if note.happening is Happening.STARTED:
            started = self._start_of(seen)
            values["started_at"] = record.started_at or started
        async with self._records.lead() as transaction:
            after = await self._records.move(transaction, record, **values)
            if after is not None and started is not None:
                await start_attempt(transaction, record.id, record.attempt, at=started)
        return after

    def _start_of(self, seen: ObservedState) -> float:
        """Return when this attempt began to run: when its first program did, if that is known."""
        starts = [pod.started_at for pod in _own(seen, seen.pods) if pod.started_at]
        starts += [run.started_at for run in seen.runs.values() if run.started_at]
        now = self._records.clock()
        # Nodes have clocks of their own, and the cluster's times are whole seconds.
        return min(now, max(seen.record.created_at, min(starts, default=now)))

    async def _run_hooks(self, step: RunHooks, seen: ObservedState) -> None:
        record = seen.record
        # What the last hook sees of the pods is what is paid for.
        if step.hook == "cleanup" and not await self._knows_pods(seen):
            raise RequeueAfter(1.0)
        state, view = seen.hooks.get(step.hook, HookState()), self.view_of(seen)

        async def run() -> None:
            await self._pipeline.run(
                step.hook, view, done=state.done, failed=state.failed, recorder=self._recorder
            )

        # It is looked at again at once: what it is to do next may not have to wait for hooks.
        with suppress(StillRunning):
            await self._calls.result(record.id, "hooks", (record.attempt, step.hook), run)

    async def _knows_pods(self, seen: ObservedState) -> bool:
        """Say whether what is written down of the pods is all that will be.

        Those that are gone from the cluster may be on their way in a watch that is behind: it is
        waited for, a while, where nothing is followed, or a job ran and no pod of it is known to.
        """
        if not await self._policies.are_as_seen(seen):
            return False
        if not seen.blind and any(run.started_at is not None for run in seen.runs.values()):
            return True
        async with self._records.read() as transaction:
            attempts = await attempts_of(transaction, seen.record.id)
        last = attempts[-1] if attempts else None
        if last is None or last.attempt != seen.record.attempt or last.ended_at is None:
            return True
        waits = seen.blind or last.started_at is not None
        return not waits or seen.now - last.ended_at > NEWS_SECONDS

    def view_of(self, seen: ObservedState) -> JobFromServer:
        """Return what plugins are shown of the job."""
        record = seen.record
        return JobFromServer(
            job=self._records.readable_job(record),
            namespace=record.namespace,
            uid=record.uid or "",
            attempt=record.attempt,
            phase=seen.job.phase if seen.job is not None else "",
            started_at=record.started_at,
            expires_at=record.expires_at,
            pods=seen.pods,
        )


def _dated(details: Details, now: float) -> dict[str, Any] | None:
    """Return *details* with the time at which they were told."""
    return None if details is None else {**details, "at": now}


def _own(seen: ObservedState, pods: tuple[ObservedPod, ...]) -> list[ObservedPod]:
    return [pod for pod in pods if is_of(pod, seen.record.uid, seen.runs)]


def _missing_mount_points(seen: ObservedState) -> set[int]:
    pods = _own(seen, (*seen.pods, *seen.departed))
    return {number for pod in pods for number in pod.missing_mount_points}
