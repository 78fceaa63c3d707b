"""Makes a job's VolcanoJob and companions; each call may be the second one."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from typing import Any, Final

from controller.jobs.cluster.job_objects import JobObjects, NameTaken
from controller.jobs.cluster.mount_points import mount_points_of
from controller.jobs.cluster.prerequisites import Prerequisites
from controller.jobs.cluster.verdicts import row_of, verdict_on
from controller.jobs.history.explanations import explain_waiting
from controller.jobs.history.job_record import (
    JobRecords,
    State,
    annotations_of,
    decided_as,
    recovery_name,
)
from controller.jobs.pipeline.border import PluginFailed
from controller.jobs.pipeline.builder import Companion
from controller.jobs.pipeline.pipeline import Pipeline, Plan
from controller.jobs.reconcile.lifecycle.observed_state import ObservedState
from controller.jobs.reconcile.plugin_calls import PlanCache, PluginCalls
from controller.jobs.reconcile.workqueue import RequeueAfter
from controller.jobs.spec.accepted import VaultClosed
from controller.jobs.spec.endpoints import with_url
from controller.jobs.spec.problems import JobRejected
from controller.jobs.spec.validation import has_a_task, problems_with, same_pod_names
from controller.jobs.tools.plans import shape_tool
from controller.kube.errors import Forbidden, Invalid, KubeError
from controller.plain import plain_text
from controller.store.database import Transaction
from controller.store.jobs.between_jobs import hold_mount_points
from controller.store.jobs.job_rows import JobRecord, find_jobs, lock_job, update_job
from controller.store.jobs.progress import (
    CompanionRecord,
    companions_of,
    drop_companions,
    intend_companions,
    record_attempt,
    record_companions,
)
from controller.store.sessions.session_rows import sids_made_with
from controller.volcano.observed import ObservedJob
from controller.volcano.reasons.denials import findings_of

LOOK_AGAIN_SECONDS: Final = 0.5
LONGEST_WAIT_SECONDS: Final = 10.0
NOT_KEPT_SECONDS: Final = 60.0
LONGEST_MESSAGE: Final = 2000
NOT_EXPOSED: Final = "what it is reached by cannot be made"

log = logging.getLogger(__name__)


class SubmitActions:
    """Makes what the plugins make of a job."""

    def __init__(
        self,
        records: JobRecords,
        *,
        pipeline: Pipeline,
        cluster: JobObjects,
        prerequisites: Prerequisites,
        calls: PluginCalls,
    ) -> None:
        self._records = records
        self._calls = calls
        self._pipeline = pipeline
        self._cluster = cluster
        self._prerequisites = prerequisites
        self._plans = PlanCache(clock=time.monotonic)

    async def submit(self, record: JobRecord) -> None:
        """Make the VolcanoJob of the current attempt, or find that it was made."""
        try:
            plan = await self._plan_once(record)
        except (JobRejected, VaultClosed) as error:
            await self._fail(record, "rejected", str(error))
            return
        except PluginFailed as error:
            # Nothing is made before all plugins have said what.
            if error.for_good:
                await self._fail(record, "plugin", f"{error}: {error.why}")
                return
            await self._records.tell(record, reason="plugin", message=str(error))
            raise
        try:
            await self._wait_for_prerequisites(record, plan)
            before = await self._prepare(record, plan)
            await self._wait_for_others(record, plan)
            await self._hold_mount_points(record, plan)
            made = await self._make(plan)
            companions = await self._apply(plan, record, owner=made, already=before)
        except (NameTaken, JobRejected) as error:
            # Asking again would change nothing.
            await self._fail(record, "refused", str(error))
            return
        except KubeError as error:
            await self._refused(record, plan, error)
            return
        self._plans.forget(record.id)
        await self._record(record, plan, made, companions)

    async def _refused(self, record: JobRecord, plan: Plan, error: KubeError) -> None:
        """End the job, or have it wait and say why, as the table says.

        Raises:
            RequeueAfter: If it waits for somebody, or for what is catching up.
            KubeError: If it is tried again.
        """
        row = row_of(error)
        if row.means["submission"] == "final":
            await self._fail(record, "refused", str(error))
            return
        # What passes by itself is told where it does not.
        waits_long = self._waited(record) > LONGEST_WAIT_SECONDS
        if reason := row.reason or ("preparing" if waits_long else ""):
            text = plain_text(error, LONGEST_MESSAGE)
            await self._records.tell(record, reason=reason, message=text)
        if row.name == "not allowed":
            self._prerequisites.expire(plan.shared)  # the right to it is one of them
        if row.reason == "preparing" and row.means["submission"] == "waits":
            # What was good there is so no more.
            self._prerequisites.forget()
            raise RequeueAfter(self._patience(record))
        raise error

    def _patience(self, record: JobRecord) -> float:
        # It may take hours: so the longer it has, the less often it is looked at.
        return min(max(LOOK_AGAIN_SECONDS, self._waited(record) / 10), LONGEST_WAIT_SECONDS)

    def _waited(self, record: JobRecord) -> float:
        return self._records.clock() - record.created_at

    async def _make(self, plan: Plan) -> ObservedJob:
        """Make the VolcanoJob.

        Raises:
            JobRejected: If the cluster refuses it, with what of the job is wrong.
        """
        try:
            return await self._cluster.ensure_volcano_job(plan)
        except KubeError as error:
            if verdict_on(error, "submission") != "final":
                raise
            found = findings_of(error.message, error.details)
            raise JobRejected(problems_with(plan.job, found)) from error

    async def expose(self, seen: ObservedState) -> None:
        """Make all companions as they should be now, and remove those that are no more wanted."""
        record, owner = seen.record, seen.job
        if owner is None:
            return
        try:
            plan = await self._plan(record, submitted=True)
            applied = await self._apply(plan, record, owner=owner)
        except (JobRejected, VaultClosed, NameTaken) as error:
            log.error("companions cannot be made", extra={"job": record.id, "why": str(error)})
            text = plain_text(f"{NOT_EXPOSED}: {error}", LONGEST_MESSAGE)
            await self._records.tell(record, reason="refused", message=text)
            raise RequeueAfter(60.0) from error
        wanted = {(one.kind, one.name) for one in applied}
        async with self._records.lead() as transaction:
            recorded = await companions_of(transaction, record.id)
            await record_companions(transaction, record.id, applied)
        for one in recorded:
            # What is kept for recovery is no plugin's; that of an earlier attempt goes.
            kept = one.name == recovery_name(record.id) and one.owner_uid == owner.uid
            if not kept and (one.kind, one.name) not in wanted:
                await self._cluster.remove_companion(record.id, one)
                async with self._records.lead() as transaction:
                    await drop_companions(transaction, record.id, [one])

    async def keep_for_recovery(self, seen: ObservedState, what: str) -> JobRecord | None:
        """Keep *what* (JSON) beside the VolcanoJob, for a store that knows nothing of the job."""
        record, owner = seen.record, seen.job
        if owner is None:
            return None
        companion = Companion(
            kind="ConfigMap",
            name=recovery_name(record.id),
            manifest={"data": json.loads(what)},
            when="after",
        )
        try:
            made = await self._ensure(record, companion, owner=owner)
        except (Forbidden, Invalid, NameTaken) as error:
            # A quota, perhaps. It is needed only should the store be lost.
            log.warning(
                "what a lost store would need is not kept",
                extra={"job": record.id, "why": str(error)},
            )
            raise RequeueAfter(NOT_KEPT_SECONDS) from error
        async with self._records.lead() as transaction:
            await record_companions(transaction, record.id, [made])
            return await self._records.move(transaction, record, kept=what)

    async def _plan_once(self, record: JobRecord) -> Plan:
        """Return the plan of the attempt, which is made again only where it may be another."""
        made_of = record.attempt, record.created_at, self._pipeline.capabilities.digest
        plan = self._plans.find(record.id, *made_of)
        if plan is None:
            plan = await self._plan(record)
            self._plans.keep(record.id, plan, *made_of)
        return plan

    async def _plan(self, record: JobRecord, *, submitted: bool = False) -> Plan:
        job = self._records.job_of(record)
        sids: dict[str, str] = {}
        if with_url(job):
            async with self._records.read() as transaction:
                sids = await sids_made_with(transaction, record.id, at=record.created_at)

        async def make() -> Plan:
            return await self._pipeline.plan(
                job,
                attempt=record.attempt,
                created_at=record.created_at,
                accepted_in=record.namespace,
                submitted=submitted,
                sids=sids,
            )

        plan = await self._calls.result(record.id, "plan", (record.attempt, submitted), make)
        plan.volcano_job.annotations |= annotations_of(record)
        if record.tool is not None:
            shape_tool(plan, record.tool)
        # Earlier attempts have used some of the retries that its policies allow.
        plan.volcano_job.max_retry = max(1, plan.volcano_job.max_retry - record.retries_used)
        return plan

    async def _wait_for_prerequisites(self, record: JobRecord, plan: Plan) -> None:
        place = record.namespace, plan.volcano_job.queue
        problem = await self._prerequisites.why_not_ready(*place, plan.shared)
        if problem is not None:
            await self._records.tell(record, reason="preparing", message=problem)
            raise RequeueAfter(max(LOOK_AGAIN_SECONDS, self._prerequisites.look_again_in(*place)))

    async def _prepare(self, record: JobRecord, plan: Plan) -> list[CompanionRecord]:
        """Make what the pods cannot start without, after writing down what will be made.

        No VolcanoJob owns it yet: should there never be one, the store knows what to remove.
        """
        wanted = [one for one in plan.companions if one.when == "before"]
        if not wanted:
            return []
        names = [(one.kind, record.namespace, one.name) for one in wanted]
        async with self._records.lead() as transaction:
            await intend_companions(transaction, record.id, names)
        made = [await self._ensure(record, one, owner=None) for one in wanted]
        if any(one.address for one in made):
            # Another job may wait for it, and this one for the other's.
            async with self._records.lead() as transaction:
                await record_companions(transaction, record.id, made)
        return made

    async def _wait_for_others(self, record: JobRecord, plan: Plan) -> None:
        awaited = plan.waiting[0] if plan.waiting else await self._has_pods_so_named(record, plan)
        if awaited:
            text = plain_text(f"waiting for {awaited}", LONGEST_MESSAGE)
            await self._records.tell(record, reason="preparing", message=text)
            raise RequeueAfter(self._patience(record))

    async def _has_pods_so_named(self, record: JobRecord, plan: Plan) -> str | None:
        """Return what to wait for where another job has, or will have, pods of the same names.

        Of two that are not submitted yet, the one that was accepted first goes first.
        """
        wanted = same_pod_names(plan.job) if record.tool is None else {}
        if not wanted:
            return None
        async with self._records.read() as transaction:
            found = await find_jobs(transaction, wanted)
        for other in found.values():
            tasks = wanted[other.id]
            if other.namespace != record.namespace or not has_a_task(other.spec, tasks):
                continue
            if not other.is_final:
                first = (other.created_at, other.id) < (record.created_at, record.id)
                taken = other.uid is not None or first
            else:
                taken = bool(await self._cluster.find_pods(other.namespace, other.id))
            if taken:
                return f"the job {other.id} and its pods, which have the same names, to be gone"
        return None

    async def _hold_mount_points(self, record: JobRecord, plan: Plan) -> None:
        """Keep the output folder from being cleaned until the job is over."""
        if plan.nested_mounts is None:
            return
        wanted = mount_points_of(plan.nested_mounts, plan.volcano_job)
        async with self._records.lead() as transaction:
            held = await hold_mount_points(transaction, record.id, wanted)
        if not held:
            text = "waiting until the mount points of jobs before it are removed from its output"
            await self._records.tell(record, reason="preparing", message=text)
            raise RequeueAfter(LOOK_AGAIN_SECONDS)

    async def _apply(
        self,
        plan: Plan,
        record: JobRecord,
        *,
        owner: ObservedJob,
        already: Sequence[CompanionRecord] = (),
    ) -> list[CompanionRecord]:
        """Make the companions that come after the VolcanoJob, and have it own all of them."""
        known = {(one.kind, one.name): one for one in already}
        applied = []
        for companion in plan.companions:
            made = known.get((companion.kind, companion.name))
            if made is None:
                made = await self._ensure(record, companion, owner=owner)
            else:
                made = await self._cluster.set_owner_reference(record.id, made, owner)
            applied.append(made)
        return applied

    async def _ensure(
        self, record: JobRecord, companion: Companion, *, owner: ObservedJob | None
    ) -> CompanionRecord:
        return await self._cluster.ensure_companion(
            record.id, record.namespace, companion, owner=owner
        )

    async def _record(
        self,
        record: JobRecord,
        plan: Plan,
        made: ObservedJob,
        companions: Sequence[CompanionRecord],
    ) -> None:
        now = self._records.clock()
        found = explain_waiting(made, ())
        values: dict[str, Any] = {"uid": made.uid, "queue": made.queue or plan.volcano_job.queue}
        values |= {"reason": found.reason, "message": found.message, "details": found.details}
        priority = await self._cluster.priority_value(plan.volcano_job.priority_class)
        values["priority_value"] = priority
        async with self._records.lead() as transaction:
            await record_attempt(transaction, record.id, record.attempt, uid=made.uid, now=now)
            await record_companions(transaction, record.id, companions)
            if not await self._records.move(transaction, record, **values):
                # It is to end meanwhile; then at least it is known what there is to remove.
                await self._set_uid(transaction, record, made.uid)
        log.info("submitted", extra={"job": record.id, "attempt": record.attempt, "uid": made.uid})

    async def _set_uid(self, transaction: Transaction, record: JobRecord, uid: str) -> None:
        now = await lock_job(transaction, record.id)
        if now is not None and now.attempt == record.attempt:
            await update_job(transaction, now, now=self._records.clock(), uid=uid)

    async def _fail(self, record: JobRecord, reason: str, message: str) -> None:
        self._plans.forget(record.id)
        # It may be a plugin's, or a webhook's: what no store takes must not keep the job for ever.
        decided = decided_as(State.FAILURE, reason, plain_text(message, LONGEST_MESSAGE))
        async with self._records.lead() as transaction:
            await self._records.move(transaction, record, **decided)
