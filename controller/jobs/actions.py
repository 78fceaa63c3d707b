"""Does the steps that ``lifecycle`` decides on; each may be done twice."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, assert_never

from controller.jobs.accepted import lacks_secrets, read_spec
from controller.jobs.builder import Companion
from controller.jobs.cluster import JobsInCluster, NameTaken
from controller.jobs.ground import Ground
from controller.jobs.lifecycle import (
    Conclude,
    Confirm,
    Expose,
    Finish,
    Happening,
    Note,
    Remove,
    Rest,
    RunHooks,
    Seen,
    State,
    Step,
    Submit,
    explain_waiting,
    next_state,
)
from controller.jobs.model import Job
from controller.jobs.pipeline import HookRecorder, Pipeline, Plan
from controller.jobs.plugin import JobFromServer
from controller.jobs.problems import JobRejected
from controller.kube.errors import Forbidden, Invalid
from controller.store.database import Store, Transaction
from controller.store.jobs import JobRecord, hold_job, move_job
from controller.store.progress import (
    CompanionRecord,
    companions_of,
    drop_companion,
    drop_due,
    hooks_done,
    intend_companions,
    move_attempt,
    record_attempt,
    record_companions,
)
from controller.store.vault import Vault, VaultClosed
from controller.volcano.names import volcano_job_name
from controller.volcano.observed import ObservedJob, ObservedPod
from shared.errors import FumaroleError

log = logging.getLogger(__name__)


class Later(FumaroleError):
    """The step cannot be done yet, and that is no failure: look again after ``seconds``."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"look again in {seconds} s")
        self.seconds = seconds


class Actions:
    """Changes store and cluster, as the leader of *term*."""

    def __init__(
        self,
        *,
        store: Store,
        term: int,
        vault: Vault,
        pipeline: Pipeline,
        cluster: JobsInCluster,
        ground: Ground,
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._term = term
        self._vault = vault
        self._pipeline = pipeline
        self._cluster = cluster
        self._ground = ground
        self._clock = clock
        self._recorder = HookRecorder(store, term=term, clock=clock)

    async def do(self, step: Step, seen: Seen) -> None:  # noqa: C901 - one case a step
        """Do *step*.

        Raises:
            Later: If it must wait for something that is not there yet.
            LeadershipLost: If another one leads.
            KubeError, StoreUnavailable, PluginFailed: If it failed, and is to be tried again.
        """
        match step:
            case Submit():
                await self._submit(seen.record)
            case Expose():
                await self._expose(seen)
            case Note():
                await self._note(step, seen)
            case RunHooks():
                await self._run_hooks(step, seen)
            case Conclude():
                await self._conclude(step, seen)
            case Confirm():
                await self._confirm(seen)
            case Remove(uid):
                if seen.job is not None:
                    await self._cluster.remove_volcano_job(seen.job, uid)
                # The watch tells when it is gone; looking again is for when it does not.
                raise Later(5.0)
            case Finish():
                await self._finish(seen)
            case Rest():
                return
            case _:
                assert_never(step)

    # Submitting

    async def _submit(self, record: JobRecord) -> None:
        try:
            plan = await self._plan(record)
        except (JobRejected, VaultClosed) as error:
            await self._fail(record, "rejected", str(error))
            return
        try:
            await self._wait_for_ground(record, plan)
            before = await self._prepare(record, plan)
            made = await self._cluster.ensure_volcano_job(plan)
            companions = await self._apply(plan, record, owner=made, already=before)
        except (NameTaken, Invalid) as error:
            # An admission webhook refuses with 400; asking again would change nothing.
            await self._fail(record, "refused", str(error))
            return
        except Forbidden as error:
            # A quota that is used up, or rights that are being given.
            await self._tell_waiting(record, "forbidden", str(error))
            raise
        await self._record_submission(record, made, companions)

    async def _plan(self, record: JobRecord) -> Plan:
        secrets = self._secrets(record)
        if lacks_secrets(record.spec, secrets):
            raise VaultClosed("its secrets are not known: it was adopted from the cluster")
        job = read_spec(record.spec, secrets)
        return await self._pipeline.plan(
            job,
            attempt=record.attempt,
            created_at=record.created_at,
            accepted_in=record.namespace,
        )

    def _secrets(self, record: JobRecord) -> dict[str, str]:
        return {} if record.sealed is None else self._vault.open(record.id, record.sealed)

    async def _wait_for_ground(self, record: JobRecord, plan: Plan) -> None:
        place = record.namespace, plan.volcano_job.queue
        problem = await self._ground.why_not_ready(*place, plan.shared)
        if problem is not None:
            await self._tell_waiting(record, "preparing", problem)
            raise Later(0.5)

    async def _prepare(self, record: JobRecord, plan: Plan) -> list[CompanionRecord]:
        """Make what the pods cannot start without, after writing down what will be made.

        No VolcanoJob owns it yet: should there never be one, the store knows what to remove.
        """
        wanted = [one for one in plan.companions if one.when == "before"]
        if not wanted:
            return []
        names = [(one.kind, record.namespace, one.name) for one in wanted]
        async with self._store.lead(self._term) as transaction:
            await intend_companions(transaction, record.id, names)
        return [await self._ensure(record, one, owner=None) for one in wanted]

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
                made = await self._cluster.give_to(record.id, made, owner)
            applied.append(made)
        return applied

    async def _ensure(
        self, record: JobRecord, companion: Companion, *, owner: ObservedJob | None
    ) -> CompanionRecord:
        return await self._cluster.ensure_companion(
            record.id, record.namespace, companion, owner=owner
        )

    async def _record_submission(
        self, record: JobRecord, made: ObservedJob, companions: Sequence[CompanionRecord]
    ) -> None:
        now = self._clock()
        reason, message = explain_waiting(made, ())
        values = {"uid": made.uid, "reason": reason, "message": message}
        async with self._store.lead(self._term) as transaction:
            await record_attempt(transaction, record.id, record.attempt, uid=made.uid, now=now)
            await record_companions(transaction, record.id, companions)
            if not await self._move(transaction, record, **values):
                # It is to end meanwhile; then at least it is known what there is to remove.
                await self._set_uid(transaction, record, made.uid)
        log.info("submitted", extra={"job": record.id, "uid": made.uid})

    async def _set_uid(self, transaction: Transaction, record: JobRecord, uid: str) -> None:
        now = await hold_job(transaction, record.id)
        if now is not None:
            await move_job(transaction, now, now=self._clock(), uid=uid)

    async def _expose(self, seen: Seen) -> None:
        record, owner = seen.record, seen.job
        if owner is None:
            return
        try:
            plan = await self._plan(record)
        except (JobRejected, VaultClosed) as error:
            log.error("companions cannot be made", extra={"job": record.id, "why": str(error)})
            raise Later(60.0) from error
        applied = await self._apply(plan, record, owner=owner)
        async with self._store.lead(self._term) as transaction:
            await record_companions(transaction, record.id, applied)

    # Noting

    async def _note(self, note: Note, seen: Seen) -> None:
        record, now = seen.record, self._clock()
        values: dict[str, Any] = {
            "state": next_state(record.state, note.happening),
            "reason": note.reason,
            "message": note.message,
        }
        if note.happening is Happening.STARTED and record.started_at is None:
            values["started_at"] = now
        async with self._store.lead(self._term) as transaction:
            if await self._move(transaction, record, **values) and "started_at" in values:
                await move_attempt(transaction, record.id, record.attempt, started_at=now)

    async def _tell_waiting(self, record: JobRecord, reason: str, message: str) -> None:
        if (record.reason, record.message) != (reason, message):
            async with self._store.lead(self._term) as transaction:
                await self._move(transaction, record, reason=reason, message=message)

    async def _fail(self, record: JobRecord, reason: str, message: str) -> None:
        outcome = State.FAILURE.value
        async with self._store.lead(self._term) as transaction:
            await self._move(transaction, record, outcome=outcome, reason=reason, message=message)

    async def _move(self, transaction: Transaction, record: JobRecord, **values: Any) -> bool:
        """Set *values*, unless somebody has asked for something else since *record* was read.

        Then nothing is done, since it was decided for a job that is no longer so; the next look
        decides anew.
        """
        now = await hold_job(transaction, record.id)
        if now is None or (now.desired, now.outcome) != (record.desired, record.outcome):
            return False
        await move_job(transaction, now, now=self._clock(), **values)
        return True

    # Hooks

    async def _run_hooks(self, step: RunHooks, seen: Seen) -> None:
        record = seen.record
        if step.hook == "start" and seen.job is not None:
            await self._cluster.note_first_start(seen.job, record.started_at or self._clock())
        async with self._store.read() as transaction:
            done = await hooks_done(transaction, record.id, record.attempt)
        await self._pipeline.run(
            step.hook,
            self.picture_of(seen),
            done=done.get(step.hook, frozenset()),
            recorder=self._recorder,
        )

    def picture_of(self, seen: Seen) -> JobFromServer:
        """Return what plugins are shown of the job."""
        record = seen.record
        return JobFromServer(
            job=self._readable_job(record),
            namespace=record.namespace,
            uid=record.uid or "",
            attempt=record.attempt,
            phase=seen.job.phase if seen.job is not None else "",
            started_at=record.started_at,
            pods=seen.pods,
        )

    def _readable_job(self, record: JobRecord) -> Job:
        try:
            secrets = self._secrets(record)
        except VaultClosed:
            secrets = {}
        return read_spec(record.spec, secrets)

    # Ending

    async def _conclude(self, step: Conclude, seen: Seen) -> None:
        record, now = seen.record, self._clock()
        async with self._store.lead(self._term) as transaction:
            decided = {"outcome": step.outcome.value, "reason": step.reason}
            if not await self._move(transaction, record, **decided, message=step.message):
                return
            # Pods go with their VolcanoJob: how they ended is written down while it can be seen.
            await move_attempt(
                transaction,
                record.id,
                record.attempt,
                ended_at=now,
                outcome=step.outcome.value,
                pods=[_pod_history(pod) for pod in seen.pods if pod.owner_uid == record.uid],
            )

    async def _confirm(self, seen: Seen) -> None:
        record = seen.record
        name = volcano_job_name(record.id)
        found = await self._cluster.find_volcano_job(record.namespace, name, record.id)
        if found is not None and found.uid == record.uid:
            raise Later(1.0)  # the picture is behind, and will come
        lost = Conclude(State.FAILURE, "lost", "its VolcanoJob is no longer in the cluster")
        await self._conclude(lost, seen)

    async def _finish(self, seen: Seen) -> None:
        record = seen.record
        if record.uid is None and await self._remove_unseen(record):
            raise Later(1.0)
        async with self._store.read() as transaction:
            companions = await companions_of(transaction, record.id)
        for companion in companions:
            # Those that the VolcanoJob owns go with it.
            if companion.owner_uid is None:
                await self._cluster.remove_companion(record.id, companion)
        happening = (
            Happening.ENDED_WELL if record.outcome == State.SUCCESS else Happening.ENDED_BADLY
        )
        async with self._store.lead(self._term) as transaction:
            for companion in companions:
                await drop_companion(transaction, record.id, companion)
            await drop_due(transaction, record.id)
            over = {"state": next_state(record.state, happening), "finished_at": self._clock()}
            await self._move(transaction, record, **over, sealed=None)
        log.info(
            "finished",
            extra={"job": record.id, "outcome": record.outcome, "reason": record.reason},
        )

    async def _remove_unseen(self, record: JobRecord) -> bool:
        """Remove a VolcanoJob whose making was never answered; say whether there was one."""
        name = volcano_job_name(record.id)
        found = await self._cluster.find_volcano_job(record.namespace, name, record.id)
        if found is None:
            return False
        await self._cluster.remove_volcano_job(found, found.uid)
        return True


def _pod_history(pod: ObservedPod) -> dict[str, Any]:
    ended = pod.ended
    return {
        "task": pod.task,
        "index": pod.index,
        "uid": pod.uid,
        "node": pod.node,
        "phase": pod.phase,
        "reason": pod.reason or (ended.reason if ended else ""),
        "exit_code": ended.exit_code if ended else None,
        "finished_at": ended.finished_at if ended else None,
    }
