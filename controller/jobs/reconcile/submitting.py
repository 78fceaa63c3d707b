"""Creates a job's VolcanoJob and companions. Every call may be a repetition."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final

from controller.jobs.cluster.companion_objects import AppliedCompanions
from controller.jobs.cluster.job_objects import JobObjects
from controller.jobs.cluster.mount_points import mount_points_of
from controller.jobs.cluster.prerequisites import Prerequisites
from controller.jobs.cluster.priorities import PriorityValues
from controller.jobs.cluster.verdicts import NameTaken, row_of, verdict_on
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
from controller.jobs.spec.accepted import VaultClosed, has_a_task
from controller.jobs.spec.job_paths import problems_with
from controller.jobs.spec.problems import JobRejected
from controller.jobs.tools.plans import shape_tool
from controller.kube.errors import Forbidden, Invalid, KubeError
from controller.store.database import Transaction
from controller.store.errors import StoreUnavailable
from controller.store.jobs.folders import hold_mount_points
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
from controller.volcano.names import same_pod_names
from controller.volcano.observed import ObservedJob
from controller.volcano.reasons.causes import cause_of_refusal
from controller.volcano.reasons.denials import findings_of
from shared.text import plain_text

LOOK_AGAIN_SECONDS: Final = 0.5
LONGEST_WAIT_SECONDS: Final = 10.0
NOT_KEPT_SECONDS: Final = 60.0
LONGEST_MESSAGE: Final = 2000
NOT_EXPOSED: Final = "the objects by which it is reached cannot be created"

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False, repr=False)
class SubmitActions:
    """Creates the objects that the plugins plan for a job."""

    records: JobRecords
    _: KW_ONLY
    pipeline: Pipeline
    cluster: JobObjects
    prerequisites: Prerequisites
    priorities: PriorityValues
    calls: PluginCalls
    _plans: PlanCache = field(default_factory=lambda: PlanCache(clock=time.monotonic), init=False)
    _applied: AppliedCompanions = field(
        default_factory=lambda: AppliedCompanions(clock=time.monotonic), init=False
    )

    async def submit(self, record: JobRecord, made: ObservedJob | None = None) -> None:
        """Create the VolcanoJob of the current attempt, or find that it was created.

        It runs at once. So it is recorded even if a companion that follows is refused for now: the
        next step applies what is missing. One that an earlier try has *made* is recorded whatever
        has become of the prerequisites, such as its queue.
        """
        try:
            plan = await self._plan_once(record)
        except (JobRejected, VaultClosed) as error:
            await self._fail(record, "rejected", str(error))
            return
        except PluginFailed as error:
            # Nothing is created before all plugins have planned.
            if error.for_good:
                await self._fail(record, "plugin", f"{error}: {error.why}")
                return
            await self.records.update_if_changed(record, reason="plugin", message=str(error))
            raise
        try:
            before: list[CompanionRecord] = []
            if made is None:
                await self._wait_for_prerequisites(record, plan)
                before = await self._apply_before(record, plan)
                await self._wait_for_other_jobs(record, plan)
                await self._hold_mount_points(record, plan)
                made = await self._create_volcano_job(plan)
            companions = await self._apply_after(plan, record, owner=made, already=before)
        except (NameTaken, JobRejected) as error:
            # The API server would refuse it again.
            await self._fail(record, "refused", str(error))
            return
        except KubeError as error:
            await self._refused(record, plan, error)
            return
        self._forget(record.id)
        await self._record(record, plan, made, companions)

    async def _refused(self, record: JobRecord, plan: Plan, error: KubeError) -> None:
        """End the job, or make it wait with a reason, according to the table of verdicts.

        Raises:
            RequeueAfter: If the job waits for an operator, or for something that is being prepared.
            KubeError: If the submission is tried again.
        """
        row = row_of(error)
        if row.means["submission"] == "final":
            await self._fail(record, "refused", str(error))
            return
        # A passing error is reported only if it lasts.
        waits_long = self._waited(record) > LONGEST_WAIT_SECONDS
        if reason := row.reason or ("preparing" if waits_long else ""):
            text = plain_text(error, LONGEST_MESSAGE)
            cause = {"cause": cause_of_refusal(text)} if reason == "forbidden" else None
            values = {"reason": reason, "message": text, "details": cause}
            await self.records.update_if_changed(record, **values)
        if row.name == "not allowed":
            self.prerequisites.expire(plan.shared)  # the right to create it is a prerequisite
        if row.reason == "preparing" and row.means["submission"] == "waits":
            # The prerequisites that were found before no longer hold.
            self.prerequisites.forget()
            self._applied.forget_namespace(record.namespace)
            raise RequeueAfter(self._pause(record))
        raise error

    def _pause(self, record: JobRecord) -> float:
        # The wait may take hours: the longer the job has waited, the longer the pause.
        return min(max(LOOK_AGAIN_SECONDS, self._waited(record) / 10), LONGEST_WAIT_SECONDS)

    def _waited(self, record: JobRecord) -> float:
        return self.records.clock() - record.created_at

    async def _create_volcano_job(self, plan: Plan) -> ObservedJob:
        """Create the VolcanoJob.

        Raises:
            JobRejected: If the API server refuses it, with the problems of the job.
        """
        try:
            return await self.cluster.ensure_volcano_job(plan)
        except KubeError as error:
            if verdict_on(error, "submission") != "final":
                raise
            found = findings_of(error.message, error.details)
            raise JobRejected(problems_with(plan.job, found)) from error

    async def apply_companions(self, seen: ObservedState) -> None:
        """Apply all companions of the present plan, and delete those no longer planned."""
        record, owner = seen.record, seen.job
        if owner is None:
            return
        try:
            plan = await self._plan(record, submitted=True)
            applied = [await self._ensure(record, one, owner=owner) for one in plan.companions]
        except (JobRejected, VaultClosed, NameTaken) as error:
            log.error("companions cannot be made", extra={"job": record.id, "why": str(error)})
            text = plain_text(f"{NOT_EXPOSED}: {error}", LONGEST_MESSAGE)
            await self.records.update_if_changed(record, reason="refused", message=text)
            raise RequeueAfter(60.0) from error
        wanted = {(one.kind, one.name) for one in applied}
        async with self.records.store.write() as transaction:
            recorded = await companions_of(transaction, record.id)
            await record_companions(transaction, record.id, applied)
        for one in recorded:
            # The recovery data is not planned by a plugin; that of an earlier attempt is deleted.
            kept = one.name == recovery_name(record.id) and one.owner_uid == owner.uid
            if not kept and (one.kind, one.name) not in wanted:
                await self.cluster.companions.remove(record.id, one)
                async with self.records.store.write() as transaction:
                    await drop_companions(transaction, record.id, [one])

    async def save_recovery_data(self, seen: ObservedState, what: str) -> JobRecord | None:
        """Save *what* (JSON) in a ConfigMap beside the VolcanoJob."""
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
            # A quota, perhaps. The data is needed only if the store is lost.
            log.warning(
                "recovery data of a job cannot be saved",
                extra={"job": record.id, "why": str(error)},
            )
            raise RequeueAfter(NOT_KEPT_SECONDS) from error
        async with self.records.store.write() as transaction:
            await record_companions(transaction, record.id, [made])
            return await self.records.update(transaction, record, kept=what)

    async def _plan_once(self, record: JobRecord) -> Plan:
        """Return the plan of the attempt, from the cache where the plan cannot have changed."""
        made_of = record.attempt, record.created_at, self.pipeline.capabilities.digest
        plan = self._plans.find(record.id, *made_of)
        if plan is None:
            plan = await self._plan(record)
            self._plans.keep(record.id, plan, *made_of)
        return plan

    async def _plan(self, record: JobRecord, *, submitted: bool = False) -> Plan:
        job = self.records.job_of(record)
        sids: dict[str, str] = {}
        if job.endpoints_with_url():
            async with self.records.store.read() as transaction:
                sids = await sids_made_with(transaction, record.id, at=record.created_at)

        async def make() -> Plan:
            return await self.pipeline.plan(
                job,
                attempt=record.attempt,
                created_at=record.created_at,
                accepted_in=record.namespace,
                submitted=submitted,
                sids=sids,
            )

        plan = await self.calls.result(record.id, "plan", (record.attempt, submitted), make)
        plan.volcano_job.annotations |= annotations_of(record)
        if record.tool is not None:
            shape_tool(plan, record.tool)
        # Earlier attempts have used some of the retries of its policies.
        plan.volcano_job.max_retry = max(1, plan.volcano_job.max_retry - record.retries_used)
        return plan

    async def _wait_for_prerequisites(self, record: JobRecord, plan: Plan) -> None:
        place = record.namespace, plan.volcano_job.queue
        problem = await self.prerequisites.why_not_ready(*place, plan.shared)
        if problem is not None:
            self._applied.forget_namespace(record.namespace)
            await self.records.update_if_changed(record, reason="preparing", message=problem)
            raise RequeueAfter(max(LOOK_AGAIN_SECONDS, self.prerequisites.retry_in(*place)))

    async def _apply_before(self, record: JobRecord, plan: Plan) -> list[CompanionRecord]:
        """Apply the companions that the pods cannot start without, after recording the intent.

        No VolcanoJob owns them yet. If none is ever created, the store knows what to delete.
        """
        wanted = [one for one in plan.companions if one.when == "before"]
        new = [one for one in wanted if self._applied.find(record, one) is None]
        if new:
            names = [(one.kind, record.namespace, one.name) for one in new]
            async with self.records.store.write() as transaction:
                await intend_companions(transaction, record.id, names)
        made = [await self._ensure_once(record, one) for one in wanted]
        if new and any(one.address for one in made):
            await self._record_addresses(record, made)
        return made

    async def _record_addresses(self, record: JobRecord, made: Sequence[CompanionRecord]) -> None:
        """Record the companions: another job may wait for an address, and this job for another."""
        try:
            async with self.records.store.write() as transaction:
                await record_companions(transaction, record.id, made)
        except StoreUnavailable:
            self._applied.forget(record.id)  # so that the next try records them
            raise

    async def _wait_for_other_jobs(self, record: JobRecord, plan: Plan) -> None:
        awaited = (
            plan.waiting[0] if plan.waiting else await self._job_with_same_pod_names(record, plan)
        )
        if awaited:
            text = plain_text(f"waiting for {awaited}", LONGEST_MESSAGE)
            await self.records.update_if_changed(record, reason="preparing", message=text)
            raise RequeueAfter(self._pause(record))

    async def _job_with_same_pod_names(self, record: JobRecord, plan: Plan) -> str | None:
        """Return a job to wait for that has, or will have, pods of the same names.

        Of two jobs that are not submitted yet, the one that was accepted first is submitted first.
        """
        if record.tool is not None:
            return None
        wanted = same_pod_names(plan.job.id, [task.name for task in plan.job.effective_tasks])
        if not wanted:
            return None
        async with self.records.store.read() as transaction:
            found = await find_jobs(transaction, wanted)
        for other in found.values():
            tasks = wanted[other.id]
            if other.namespace != record.namespace or not has_a_task(other.spec, tasks):
                continue
            if not other.is_final:
                first = (other.created_at, other.id) < (record.created_at, record.id)
                taken = other.uid is not None or first
            else:
                taken = bool(await self.cluster.find_pods(other.namespace, other.id))
            if taken:
                return f"the job {other.id} and its pods, which have the same names, to be gone"
        return None

    async def _hold_mount_points(self, record: JobRecord, plan: Plan) -> None:
        """Keep the output folder from being cleaned until the job is over."""
        if plan.nested_mounts is None:
            return
        wanted = mount_points_of(plan.nested_mounts, plan.volcano_job)
        async with self.records.store.write() as transaction:
            held = await hold_mount_points(transaction, record.id, wanted)
        if not held:
            text = "waiting until the mount points of jobs before it are removed from its output"
            await self.records.update_if_changed(record, reason="preparing", message=text)
            raise RequeueAfter(LOOK_AGAIN_SECONDS)

    async def _apply_after(
        self,
        plan: Plan,
        record: JobRecord,
        *,
        owner: ObservedJob,
        already: Sequence[CompanionRecord],
    ) -> list[CompanionRecord]:
        """Apply the companions that follow the VolcanoJob, and make it the owner of all of them.

        If one is refused for now, those that were applied are returned.

        Raises:
            KubeError: If the refusal is final.
        """
        made = {(one.kind, one.name): one for one in already}
        try:
            for companion in plan.companions:
                key = companion.kind, companion.name
                if key not in made:
                    made[key] = await self._ensure(record, companion, owner=owner)
                else:
                    ours = self.cluster.companions
                    made[key] = await ours.set_owner_reference(record.id, made[key], owner)
        except KubeError as error:
            if verdict_on(error, "submission") == "final":
                raise
            log.warning("companions are missing", extra={"job": record.id, "why": str(error)})
        return list(made.values())

    async def _ensure_once(self, record: JobRecord, companion: Companion) -> CompanionRecord:
        """Apply the companion, unless an earlier try of this submission has done so."""
        made = self._applied.find(record, companion)
        if made is None:
            made = await self._ensure(record, companion, owner=None)
            self._applied.keep(record, companion, made)
        return made

    async def _ensure(
        self, record: JobRecord, companion: Companion, *, owner: ObservedJob | None
    ) -> CompanionRecord:
        return await self.cluster.companions.ensure(
            record.id, record.namespace, companion, owner=owner
        )

    async def _record(
        self,
        record: JobRecord,
        plan: Plan,
        made: ObservedJob,
        companions: Sequence[CompanionRecord],
    ) -> None:
        now = self.records.clock()
        found = explain_waiting(made, ())
        values: dict[str, Any] = {"uid": made.uid, "queue": made.queue or plan.volcano_job.queue}
        values |= {"reason": found.reason, "message": found.message, "details": found.details}
        named = plan.volcano_job.priority_class
        values["priority_value"] = await self.priorities.value_of(named) if named else None
        async with self.records.store.write() as transaction:
            await record_attempt(transaction, record.id, record.attempt, uid=made.uid, now=now)
            await record_companions(transaction, record.id, companions)
            if len(companions) < len(plan.companions):
                names = [(one.kind, record.namespace, one.name) for one in plan.companions]
                await intend_companions(transaction, record.id, names)
            if not await self.records.update(transaction, record, **values):
                # The job changed meanwhile. Its VolcanoJob is recorded all the same, so that it is
                # deleted.
                await self._set_uid(transaction, record, made.uid)
        log.info(
            "a VolcanoJob was created",
            extra={"job": record.id, "attempt": record.attempt, "uid": made.uid},
        )

    async def _set_uid(self, transaction: Transaction, record: JobRecord, uid: str) -> None:
        now = await lock_job(transaction, record.id)
        if now is not None and now.attempt == record.attempt:
            await update_job(transaction, now, now=self.records.clock(), uid=uid)

    def _forget(self, job_id: str) -> None:
        self._plans.forget(job_id)
        self._applied.forget(job_id)

    async def _fail(self, record: JobRecord, reason: str, message: str) -> None:
        self._forget(record.id)
        # The text may come from a plugin or a webhook. One that the store cannot hold must not keep
        # the job waiting for ever.
        decided = decided_as(State.FAILURE, reason, plain_text(message, LONGEST_MESSAGE))
        async with self.records.store.write() as transaction:
            await self.records.update(transaction, record, **decided)
