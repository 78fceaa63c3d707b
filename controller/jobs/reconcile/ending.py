"""Ends a job, or one attempt of it. Every call may be a repetition."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import Any, Final

from controller.jobs.cluster.job_objects import JobObjects
from controller.jobs.history.job_record import (
    EVENT_OF_OUTCOME,
    JobEvent,
    JobRecords,
    State,
    decided_as,
    next_state,
    recovered,
)
from controller.jobs.history.pod_records import exits_of
from controller.jobs.history.retries import UNKNOWN_TRIGGER, policies_of, triggered, used_retries
from controller.jobs.reconcile.lifecycle.observed_state import ObservedState
from controller.jobs.reconcile.lifecycle.steps import Details, SetOutcome, StartNextAttempt
from controller.jobs.reconcile.workqueue import RequeueAfter
from controller.kube.client import Objects
from controller.kube.errors import Forbidden, KubeError
from controller.store.database import Transaction
from controller.store.jobs.folders import release_mount_points
from controller.store.jobs.job_rows import (
    FINAL_STATES,
    JobRecord,
    RequestedEnd,
    lock_job,
    request_end,
)
from controller.store.jobs.progress import (
    CompanionRecord,
    PodRecord,
    attempts_of,
    companions_of,
    drop_companions,
    drop_due,
    drop_hooks,
    make_due_now,
    pod_records_of,
    record_attempt,
    replace_timers,
    start_attempt,
    update_attempt,
)
from controller.store.jobs.relations import settle_followers, touch_jobs
from controller.volcano.names import volcano_job_name
from controller.volcano.observed import ObservedJob, ObservedPod, Progress, progress_of
from controller.volcano.reasons.waiting import explain_refused, has_command
from shared.audit import AuditRecord, write_audit

LOOK_AGAIN_SECONDS = 2.0
PENDING_SECONDS: Final = 10.0
"""The pause while Volcano takes no command: it is busy, or away."""
EVENTS_SECONDS: Final = 120.0
"""How long the events of a VolcanoJob that has ended are waited for. They may have a database of
their own, which can be away while all else works."""
FORBIDDEN_SECONDS = 30.0
_NEW_ATTEMPT: Final = MappingProxyType(
    dict.fromkeys(("uid", "renewal", "kept", "ordered", "ordered_why")) | {"stopping": False}
)
"""Fields of the record that belong to one VolcanoJob, reset for the next one."""
SUSPENDING: Final = MappingProxyType({"reason": "suspending", "message": "being suspended"})
"""The status of a job that is being aborted so that it can be resumed."""
_OUTCOMES: Final = {
    "evicted": "EVICTED",
    "forbidden": "REFUSED",
    "resumed": "SUSPENDED",
    "retried": "RETRIED",
}
"""The outcome of an attempt with a successor, by the reason for the successor."""

log = logging.getLogger(__name__)


def after_command(issued: bool) -> RequeueAfter:
    """Return when the job is reconciled again: Volcano loses a command while it restarts a job."""
    return RequeueAfter(LOOK_AGAIN_SECONDS if issued else PENDING_SECONDS)


class EndActions:
    """Decides and carries out the end of attempts and jobs."""

    def __init__(self, records: JobRecords, cluster: JobObjects) -> None:
        self._records = records
        self._cluster = cluster

    async def abort_volcano_job(self, seen: ObservedState) -> None:
        """Have Volcano abort the VolcanoJob."""
        record, job = seen.record, seen.job
        if job is None:
            return
        # Recorded before the command: a leader that finds the VolcanoJob aborted must know that
        # this controller aborted it. The message that the command was refused stays until it is
        # accepted.
        was_refused = record.stopping and record.reason == SUSPENDING["reason"]
        values = {} if was_refused else SUSPENDING
        if await self._records.update_if_changed(record, stopping=True, **values) is None:
            return  # resumed, or ended, meanwhile
        issued = await self._cluster.command(record.id, job, "AbortJob")
        if was_refused:
            await self._records.update_if_changed(record, **SUSPENDING)
        raise after_command(issued)

    async def start_next_attempt(self, step: StartNextAttempt, seen: ObservedState) -> None:
        """Record that another attempt follows, and close this one."""
        record, now = seen.record, self._records.clock()
        values: dict[str, Any] = {
            "renewal": step.why,
            "evictions": record.evictions + (step.why == "evicted"),
            "state": next_state(record.state, JobEvent.WAITS),
            "reason": step.why,
            "message": step.message,
            "details": None if step.details is None else {**step.details, "at": now},
        }
        async with self._records.store.write() as transaction:
            if await self._records.update(transaction, record, **values):
                outcome = _OUTCOMES[step.why]
                await self._close_attempt(
                    transaction, seen, outcome, step.why, step.message, step.details
                )

    async def reset_for_next_attempt(self, record: JobRecord) -> None:
        """Begin the next attempt once no object of the last attempt is left."""
        if await self._remove_unseen(record) or await self._has_unseen_pods(record):
            raise RequeueAfter(1.0)
        if record.uid is not None:
            name = volcano_job_name(record.id)
            await self._cluster.remove_volcanos(record.namespace, name, record.uid)
        # The garbage collector deletes the VolcanoJob's companions some time after the VolcanoJob;
        # the next attempt must not find them. The lasting companions stay: other jobs use their
        # addresses.
        passing = [one for one in await self._known(record) if not one.lasting]
        await self._remove_companions(record, passing)
        await self._cluster.withdraw_command(record.id, record.namespace)
        values: dict[str, Any] = {**_NEW_ATTEMPT, "attempt": record.attempt + 1}
        async with self._records.store.write() as transaction:
            used = await self._used(transaction, record)
            values["retries_used"] = record.retries_used + (used or 0)
            if await self._records.update(transaction, record, **values):
                await replace_timers(transaction, record.id, timers=())
                if used is not None:
                    await update_attempt(transaction, record.id, record.attempt, used=used)
            await make_due_now(transaction, record.id, now=self._records.clock())

    async def _used(self, transaction: Transaction, record: JobRecord) -> int | None:
        """Return the number of retries that the attempt has used; None if they are counted already.

        They are counted once, for the VolcanoJob that failed, in the transaction that begins the
        next attempt.
        """
        attempts = await attempts_of(transaction, record.id)
        ended = next((one for one in attempts if one.attempt == record.attempt), None)
        if ended is None or ended.uid != record.uid or ended.used is not None:
            return None
        runs = await pod_records_of(transaction, record.id, record.attempt)
        followed, policies = None, policies_of(record)
        if record.renewal == "retried":
            followed = triggered(policies, runs) or UNKNOWN_TRIGGER
        return used_retries(ended.retries, runs, followed, policies=policies)

    async def adopt_newer_attempt(self, seen: ObservedState) -> None:
        """Continue with the attempt that the cluster shows, which is later than the store's."""
        record, job = seen.record, seen.job
        if job is None:
            return
        now, message = self._records.clock(), "found in the cluster, later than in the store"
        past = recovered(job, (), {}, allocated=None)
        values: dict[str, Any] = {
            **_NEW_ATTEMPT,
            "attempt": job.attempt,
            "uid": job.uid,
            "stopping": job.phase in ("Aborting", "Aborted"),
            "state": next_state(record.state, JobEvent.WAITS),
            "reason": "adopted",
            "message": message,
            "retries_used": max(record.retries_used, past.retries_used),
            "evictions": max(record.evictions, past.evictions),
        }
        async with self._records.store.write() as transaction:
            if await self._records.update(transaction, record, **values):
                await self._close_attempt(transaction, seen, "LOST", "lost", message)
                await record_attempt(transaction, record.id, job.attempt, uid=job.uid, now=now)
            await make_due_now(transaction, record.id, now=now)
        log.warning(
            "a newer attempt was adopted",
            extra={"job": record.id, "attempt": job.attempt, "uid": job.uid},
        )

    async def delete_volcano_job(
        self, record: JobRecord, job: ObservedJob | None, uid: str, *, in_use: bool = False
    ) -> None:
        """Delete the VolcanoJob *uid*, and record that the API server accepted the deletion.

        Only after that may a leader delete its pods.

        Args:
            record: The job.
            job: The VolcanoJob if it is known, else None.
            uid: The VolcanoJob's uid.
            in_use: Whether its programs still run.

        Raises:
            RequeueAfter: If it is in use and belongs to another instance by now. Then Volcano would
                create deleted pods again, and the pods count until they have ended.
        """
        name = volcano_job_name(record.id)
        unrecorded = record.uid is None and job is not None and job.attempt == record.attempt
        if unrecorded and job is not None:
            await self._record_late(record, job)
        shown = job is not None
        removed = await self._cluster.remove_volcano_job(record.namespace, name, uid, shown=shown)
        if in_use and not removed:
            raise RequeueAfter(FORBIDDEN_SECONDS)
        async with self._records.store.write() as transaction:
            await self._records.record_deletion(transaction, record.id, uid, own=unrecorded)

    async def delete_revived_job(self, record: JobRecord, uid: str) -> None:
        """Delete the VolcanoJob *uid* of an ended job or attempt, if it goes on or was deleted.

        Raises:
            RequeueAfter: If it has ended, or is gone or being deleted: the cache lags.
        """
        name = volcano_job_name(record.id)
        found = await self._cluster.find_volcano_job(record.namespace, name, record.id)
        if found is None or found.uid != uid or found.deleting:
            raise RequeueAfter(LOOK_AGAIN_SECONDS)
        under_way = progress_of(found.phase) in (Progress.WAITING, Progress.RUNNING)
        if not under_way and uid != record.removed_uid:
            raise RequeueAfter(LOOK_AGAIN_SECONDS)
        log.warning(
            "a VolcanoJob that had ended, or was deleted, is there again, and is deleted: was etcd"
            " restored, or the VolcanoJob resumed?",
            extra={"job": record.id, "uid": uid, "phase": found.phase},
        )
        await self.delete_volcano_job(record, found, uid)

    async def _record_late(self, record: JobRecord, job: ObservedJob) -> None:
        """Record a VolcanoJob that is about to be deleted: its leader died before recording it.

        The job's record names it only once its deletion is accepted. Until then every leader has to
        find it in the cluster. The cleanup hooks may have run before it was found. They run once
        more, so that they see its pods.
        """
        over: dict[str, Any] = {
            "outcome": record.outcome,
            "reason": record.end_reason,
            "message": record.end_message,
            "details": record.end_details,
        }
        now = self._records.clock()
        async with self._records.store.write() as transaction:
            await record_attempt(transaction, record.id, record.attempt, uid=job.uid, now=now)
            await drop_hooks(transaction, record.id, record.attempt, hook="cleanup")
            if record.outcome is not None:
                await update_attempt(transaction, record.id, record.attempt, ended_at=now, **over)

    async def delete_pods(self, record: JobRecord, pods: Sequence[ObservedPod]) -> None:
        """Delete pods of a deleted VolcanoJob, each with its own grace period.

        Raises:
            RequeueAfter: Always: a later observation shows that they are gone.
        """
        try:
            await self._cluster.remove_pods(record.namespace, pods)
        except Forbidden as error:
            # The ServiceAccount has the permissions of an older version: the garbage collector
            # deletes the pods later.
            log.warning(
                "no permission to delete pods of a deleted VolcanoJob",
                extra={"job": record.id, "pods": len(pods), "why": str(error)},
            )
            raise RequeueAfter(FORBIDDEN_SECONDS) from error
        # The watch shows when the pods are gone; the requeue is for an interrupted watch.
        raise RequeueAfter(LOOK_AGAIN_SECONDS)

    async def set_outcome(self, step: SetOutcome, seen: ObservedState) -> JobRecord | None:
        """Decide how the job ends; return its record then, or None if it has changed meanwhile."""
        decided = decided_as(step.outcome, step.reason, step.message, step.details)
        first = _first_start(seen.runs.values())
        if seen.record.started_at is None and first is not None:
            decided["started_at"] = first  # it ran between two observations
        async with self._records.store.write() as transaction:
            after = await self._records.update(transaction, seen.record, **decided)
            # An attempt that another one was to follow is closed already.
            if after is not None and seen.record.renewal is None:
                outcome = step.outcome.value
                await self._close_attempt(
                    transaction, seen, outcome, step.reason, step.message, step.details
                )
        return after

    async def _close_attempt(
        self,
        transaction: Transaction,
        seen: ObservedState,
        outcome: str,
        reason: str,
        message: str | None,
        details: Details = None,
    ) -> None:
        of_it = seen.record.id, seen.record.attempt
        values: dict[str, Any] = {"outcome": outcome, "reason": reason, "message": message}
        job = seen.job if seen.job is not None else seen.last
        if job is not None and job.uid == seen.record.uid:
            # Otherwise the last recorded counts stay.
            values |= {"retries": job.retries, "restarts": job.restarts}
        ended_at = self._records.clock()
        await update_attempt(transaction, *of_it, ended_at=ended_at, details=details, **values)
        if (first := _first_start(seen.runs.values())) is not None:
            await start_attempt(transaction, *of_it, at=first)

    async def confirm_gone(self, record: JobRecord) -> None:
        """Return if the API server says that the VolcanoJob is gone.

        Raises:
            RequeueAfter: If it exists: the cache lags.
        """
        name = volcano_job_name(record.id)
        found = await self._cluster.find_volcano_job(record.namespace, name, record.id)
        if found is not None and found.uid == record.uid:
            raise RequeueAfter(1.0)

    async def record_refused_pods(self, seen: ObservedState, *, since: float) -> bool:
        """Record why the API server refused the VolcanoJob's pods; return whether it did."""
        record, job = seen.record, seen.job
        if job is None:
            return False
        found = explain_refused(await self._events_of(seen, job), since=since)
        if found is None:
            return False
        explained = {"uid": job.uid, "since": job.phase_since, **asdict(found)}
        await self._records.update_if_changed(record, explained=explained)
        return True

    async def was_commanded(self, seen: ObservedState, action: str) -> bool:
        """Return whether an event says that Volcano has executed this command for the VolcanoJob.

        The event may be missing: client-go drops events of an object that has had many.
        """
        if seen.job is None:
            return False
        return has_command(await self._events_of(seen, seen.job), action)

    async def _events_of(self, seen: ObservedState, job: ObservedJob) -> Objects:
        """Return the events about the VolcanoJob; none if only they cannot be read for long.

        Raises:
            KubeError: If they cannot be read, soon after the VolcanoJob's phase was observed, or
                if the VolcanoJob cannot be read either.
        """
        record = seen.record
        try:
            return await self._cluster.find_events(job)
        except KubeError as error:
            if seen.now < seen.phase_seen_at + EVENTS_SECONDS:
                raise
            # In an outage of the whole API server, they are only late.
            await self._cluster.find_volcano_job(record.namespace, job.name, record.id)
            extra = {"job": record.id, "why": str(error)}
            log.warning("a job ends without its events, which cannot be read", extra=extra)
            return []

    async def finish(self, record: JobRecord) -> None:
        """Make the outcome the final state, and remove the data that was kept for the job."""
        if record.uid is None and await self._remove_unseen(record):
            raise RequeueAfter(1.0)
        # The garbage collector deletes those that the VolcanoJob owns.
        known = await self._known(record)
        await self._remove_companions(record, [one for one in known if one.owner_uid is None])
        if record.stopping or record.ordered:
            await self._cluster.withdraw_command(record.id, record.namespace)
        outcome = record.outcome or State.FAILURE.value
        state = next_state(record.state, EVENT_OF_OUTCOME[outcome])
        over: dict[str, Any] = {
            # From a state that a newer version added, the final state is the outcome as well.
            "state": state if state in FINAL_STATES else outcome,
            "reason": record.end_reason,
            "message": record.end_message,
            "details": record.end_details,
            "finished_at": self._records.clock(),
        }
        async with self._records.store.write() as transaction:
            runs = await pod_records_of(transaction, record.id)
            if record.started_at is None:
                # Some pods ran, but never as many as Volcano needs to call the job running.
                over["started_at"] = _first_start(runs)
            last = [run for run in runs if run.attempt == record.attempt]
            if (first := _first_start(last)) is not None:
                await start_attempt(transaction, record.id, record.attempt, at=first)
            exits = exits_of(last)
            # Lock order: the job before its due times, as in the monitoring task.
            followers: Sequence[str] = ()
            if await self._records.update(transaction, record, **over, sealed=None, exits=exits):
                followers = await settle_followers(
                    transaction, record.id, state=over["state"], reason=over["reason"]
                )
            if _may_hold_folder(record):
                await release_mount_points(transaction, record.id, at=over["finished_at"])
            await drop_due(transaction, record.id)
            await replace_timers(transaction, record.id, timers=())
            await drop_companions(transaction, record.id, known)
        if followers:
            # A transaction of its own: jobs are locked in the order of their ids. If this process
            # stops here, the next leader reconciles all jobs anyway.
            async with self._records.store.write() as transaction:
                await touch_jobs(transaction, followers)
        log.info(
            "a job has ended",
            extra={"job": record.id, "outcome": record.outcome, "reason": record.end_reason},
        )
        now = self._records.clock()
        reason = record.end_reason
        write_audit(AuditRecord(event="ended", time=now, job=record.id, reason=reason))

    async def request_end_of(self, record: JobRecord, how: RequestedEnd) -> None:
        """Request the job's end, as its owner or a plugin could."""
        async with self._records.store.write() as transaction:
            now = await lock_job(transaction, record.id)
            if now is not None and not now.is_final:
                await request_end(transaction, now, now=self._records.clock(), how=how)

    async def _known(self, record: JobRecord) -> list[CompanionRecord]:
        async with self._records.store.read() as transaction:
            return await companions_of(transaction, record.id)

    async def _remove_companions(
        self, record: JobRecord, companions: Sequence[CompanionRecord]
    ) -> None:
        for companion in companions:
            await self._cluster.companions.remove(record.id, companion)
        if companions:
            async with self._records.store.write() as transaction:
                await drop_companions(transaction, record.id, companions)

    async def _has_unseen_pods(self, record: JobRecord) -> bool:
        """Return whether a pod of the attempt exists that the cache does not show."""
        pods = await self._cluster.find_pods(record.namespace, record.id)
        return any(pod.owner_uid == record.uid for pod in pods)

    async def _remove_unseen(self, record: JobRecord) -> bool:
        """Delete a VolcanoJob that the cache does not show; say whether there was one."""
        name = volcano_job_name(record.id)
        found = await self._cluster.find_volcano_job(record.namespace, name, record.id)
        if found is None:
            return False
        await self.delete_volcano_job(record, found, found.uid)
        return True


def _first_start(runs: Iterable[PodRecord]) -> float | None:
    """Return when the first program of these pods started; None if none did."""
    return min((run.started_at for run in runs if run.started_at is not None), default=None)


def _may_hold_folder(record: JobRecord) -> bool:
    """Return whether the job may hold its output folder against a cleaning: only with an output.

    A newer version may store the output of a job, which is then parked, in another form.
    """
    return record.parked is not None or "output" in (record.spec or ())
