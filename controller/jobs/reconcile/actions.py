"""Does the steps that ``lifecycle`` decides on; each may be done twice."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from typing import Any, assert_never

from controller.jobs.cluster.job_objects import JobsInCluster
from controller.jobs.cluster.prerequisites import Ground
from controller.jobs.history.job_record import Records
from controller.jobs.history.pod_records import is_of, make_runs
from controller.jobs.history.states import Happening, next_state
from controller.jobs.pipeline.pipeline import HookRecorder, Pipeline
from controller.jobs.pipeline.plugin import JobFromServer
from controller.jobs.reconcile.ending import LOOK_AGAIN_SECONDS, Ending
from controller.jobs.reconcile.lifecycle import (
    CatchUp,
    Conclude,
    Confirm,
    ConfirmPods,
    EndOverdue,
    Expose,
    Finish,
    KeepForRecovery,
    Note,
    Order,
    Park,
    Remove,
    RemovePods,
    Renew,
    Replace,
    Rest,
    Restore,
    RunHooks,
    Seen,
    SetTimers,
    Step,
    Stop,
    Submit,
    WriteDown,
)
from controller.jobs.reconcile.plugin_calls import Calls, StillRunning
from controller.jobs.reconcile.policy_actions import PolicyActions
from controller.jobs.reconcile.requeue import Later
from controller.jobs.reconcile.submitting import Submitting
from controller.store.jobs.hook_runs import HookState
from controller.store.jobs.pods import record_runs, runs_of
from controller.store.jobs.progress import move_attempt, start_attempt
from controller.volcano.observed import ObservedPod

log = logging.getLogger(__name__)


class Actions:
    """Changes store and cluster, as the leader.

    Args:
        records: The leader's way to jobs' records.
        pipeline: The plugins.
        cluster: What is made and removed there.
        ground: Where jobs run.
        recorder: Remembers which hooks have run.
        looked_until: When the leader before this one looked last; what happened between then and
            this one's first look, nobody saw.
        calls: Waits for plugins.
    """

    def __init__(
        self,
        records: Records,
        *,
        pipeline: Pipeline,
        cluster: JobsInCluster,
        ground: Ground,
        recorder: HookRecorder,
        looked_until: float = 0.0,
        calls: Calls | None = None,
    ) -> None:
        self._records = records
        self._calls = calls or Calls()
        self._pipeline = pipeline
        self._cluster = cluster
        self._recorder = recorder
        self._looked_until = looked_until
        self._submitting = Submitting(
            records, pipeline=pipeline, cluster=cluster, ground=ground, calls=self._calls
        )
        self._ending = Ending(records, cluster)
        self._policies = PolicyActions(records, cluster)

    async def do(self, step: Step, seen: Seen) -> Seen | None:  # noqa: C901 - one case a step
        """Do *step*; return how the job is seen then, where that is known without another look.

        Raises:
            Later: If it must wait for something that is not there yet.
            LeadershipLost: If another one leads.
            KubeError, StoreUnavailable, PluginFailed: If it failed, and is to be tried again.
        """
        match step:
            case WriteDown():
                return await self._write_down(seen)
            case Submit():
                await self._submitting.submit(seen.record)
            case Expose():
                await self._submitting.expose(seen)
            case Restore():
                await self._submitting.expose(seen)
                # The watch will show it; looking again is for when it does not.
                raise Later(LOOK_AGAIN_SECONDS)
            case Note():
                await self._note(step, seen)
            case RunHooks():
                await self._run_hooks(step, seen)
            case KeepForRecovery(what):
                await self._submitting.keep_for_recovery(seen, what)
            case Stop():
                await self._ending.stop(seen)
            case Renew():
                await self._ending.renew(step, seen)
            case Replace():
                await self._ending.replace(seen.record)
            case CatchUp():
                await self._ending.catch_up(seen)
            case Conclude():
                await self._ending.conclude(step, seen)
            case Confirm():
                await self._ending.confirm(step, seen)
            case Order():
                await self._policies.order(step, seen)
            case SetTimers(timers):
                await self._policies.set_timers(seen.record, timers)
            case ConfirmPods():
                await self._confirm_pods(step, seen)
            case Remove(uid):
                await self._ending.remove(seen.record, uid)
            case RemovePods(pods):
                await self._ending.remove_pods(seen.record, pods)
                # The watch tells when it is gone; looking again is for when it does not.
                raise Later(5.0)
            case Finish():
                await self._ending.finish(seen.record)
            case Park(why):
                await self._park(seen, why)
            case EndOverdue():
                await self._ending.end_overdue(seen.record)
            case Rest():
                pass
            case _:
                assert_never(step)
        return None

    async def _park(self, seen: Seen, why: str | None) -> None:
        await self._records.tell(seen.record, parked=why)
        tell = log.warning if why else log.info
        text = "a job is parked" if why else "a job is taken up again"
        tell(text, extra={"job": seen.record.id, "why": why or ""})

    async def _write_down(self, seen: Seen) -> Seen | None:
        record = seen.record
        runs = make_runs(
            self._records.readable_job(record),
            record.attempt,
            runs=seen.runs,
            present=_own(seen, seen.pods),
            departed=_own(seen, seen.departed),
            now=self._records.clock(),
            looked_until=self._looked_until,
        )
        async with self._records.lead() as transaction:
            await record_runs(transaction, runs)
            if seen.job is not None and seen.job.retries:
                retries = seen.job.retries
                await move_attempt(transaction, record.id, record.attempt, retries=retries)
            written = await runs_of(transaction, record.id, record.attempt)
        if seen.departed:
            return None  # another look forgets those
        return replace(seen, runs={run.pod_uid: run for run in written})

    async def _confirm_pods(self, step: ConfirmPods, seen: Seen) -> None:
        """Do what follows from the pods, unless the picture of them is behind."""
        if not await self._policies.are_as_seen(seen):
            raise Later(1.0)
        match step.then:
            case Conclude() as conclusion:
                await self._ending.conclude(conclusion, seen)
            case Renew() as renewal:
                await self._ending.renew(renewal, seen)
            case Order() as order:
                await self._policies.order(order, seen)
            case _:
                assert_never(step.then)

    async def _note(self, note: Note, seen: Seen) -> None:
        record = seen.record
        values: dict[str, Any] = {
            "state": next_state(record.state, note.happening),
            "reason": note.reason,
            "message": note.message,
        }
        started = None
        if note.happening is Happening.STARTED:
            started = self._start_of(seen)
            values["started_at"] = record.started_at or started
        async with self._records.lead() as transaction:
            if await self._records.move(transaction, record, **values) and started is not None:
                await start_attempt(transaction, record.id, record.attempt, at=started)

    def _start_of(self, seen: Seen) -> float:
        """Return when this attempt began to run: when its first program did, if that is known."""
        starts = [pod.started_at for pod in _own(seen, seen.pods) if pod.started_at]
        starts += [run.started_at for run in seen.runs.values() if run.started_at]
        now = self._records.clock()
        # Nodes have clocks of their own, and the cluster's times are whole seconds.
        return min(now, max(seen.record.created_at, min(starts, default=now)))

    async def _run_hooks(self, step: RunHooks, seen: Seen) -> None:
        record = seen.record
        state, view = seen.hooks.get(step.hook, HookState()), self.picture_of(seen)

        async def run() -> None:
            await self._pipeline.run(
                step.hook, view, done=state.done, failed=state.failed, recorder=self._recorder
            )

        # It is looked at again at once: what it is to do next may not have to wait for hooks.
        with suppress(StillRunning):
            await self._calls.result(record.id, "hooks", (record.attempt, step.hook), run)

    def picture_of(self, seen: Seen) -> JobFromServer:
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


def _own(seen: Seen, pods: tuple[ObservedPod, ...]) -> list[ObservedPod]:
    return [pod for pod in pods if is_of(pod, seen.record.uid, seen.runs)]
