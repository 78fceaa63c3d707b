"""Tests consecutive attempts on the embedded cluster: refused, suspended and deleted jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from controller.jobs.cluster import prerequisites
from controller.jobs.cluster.informer import Indexer
from controller.jobs.reconcile.lifecycle import next_step, removal
from controller.kube.client import Objects
from controller.kube.errors import Forbidden, Unavailable, error_from
from controller.kube.kinds import (
    COMMANDS,
    EVENTS,
    NETWORK_POLICIES,
    PODS,
    QUEUES,
    RESOURCE_QUOTAS,
    VCJOBS,
    Kind,
)
from controller.store.database import Store
from controller.store.instance import raise_term, set_maintenance
from controller.store.jobs.job_rows import JobRecord
from controller.store.jobs.progress import (
    attempts_of,
    companions_of,
    pod_records_of,
    record_companions,
)
from controller.store.outbox.update_rows import updates_of
from controller.volcano.observed import ObservedPod
from tests.controller.jobs.reconcile.attempts_world import World, open_world
from tests.controller.running import eventually

FAILS = {"command": ["sh", "-c", "trap 'exit 3' TERM; sleep 60 & wait"]}

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with open_world(tmp_path_factory.mktemp("attempts"), instance="attempts") as one:
        yield one


async def test_refused_pods_that_nobody_asked_about_lead_to_another_attempt(world: World) -> None:
    # With hundreds of waiting jobs, Volcano gives a job up before its events are read.
    quota = {"metadata": {"name": "full"}, "spec": {"hard": {"pods": "0"}}}
    await world.submit("first-of-jobs")
    await world.until("first-of-jobs", "RUNNING")  # the namespace exists by then
    await world.end("first-of-jobs")
    await world.admin.create(RESOURCE_QUOTAS, quota, "jobs")
    await world.submit("unasked")
    record = await world.parts.drive("unasked", lambda record: record.uid is not None)

    async def is_refused() -> bool:
        found = await world.admin.list(EVENTS, "jobs", fields=f"involvedObject.uid={record.uid}")
        return any(one["reason"] == "FailedCreate" for one in found)

    await eventually(is_refused, what="its pods are not refused")
    # As after fifteen tries, which take three minutes.
    await world.cluster.kill_program("volcano")
    status = {"state": {"phase": "Terminated"}}
    await world.admin.merge(VCJOBS, "j-unasked", {"status": status}, "jobs", subresource="status")
    record = await world.parts.drive("unasked", lambda one: bool(one.renewal or one.outcome))
    assert (record.renewal, record.outcome) == ("forbidden", None)
    await world.admin.delete(RESOURCE_QUOTAS, "full", "jobs")
    await world.cluster.start_program("volcano")
    await world.until("unasked", "RUNNING", attempt=2)
    attempts, _ = await world.history("unasked")
    assert (attempts[0].outcome, attempts[0].details) == ("REFUSED", {"cause": "quota"})
    assert "exceeded quota: full" in (attempts[0].message or "")
    await world.end("unasked")


async def test_a_job_that_an_administrator_terminates_though_its_pods_are_refused_ends(
    world: World,
) -> None:
    await world.submit("before-it")
    await world.until("before-it", "RUNNING")  # the namespace exists by then
    await world.end("before-it")
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    await world.admin.create(RESOURCE_QUOTAS, quota, "jobs")
    await world.submit("given-up")
    record = await world.parts.drive("given-up", lambda record: record.uid is not None)
    target = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j-given-up",
              "uid": record.uid}  # fmt: skip
    command = {"metadata": {"name": "by-hand"}, "action": "TerminateJob", "target": target}

    async def reasons() -> set[str]:
        found = await world.admin.list(EVENTS, "jobs", fields=f"involvedObject.uid={record.uid}")
        return {one["reason"] for one in found}

    async def is_refused() -> bool:
        return "FailedCreate" in await reasons()

    await eventually(is_refused, what="its pods are not refused")
    await world.admin.create(COMMANDS, command, "jobs")

    async def is_commanded() -> bool:
        return "CommandIssued" in await reasons()

    await eventually(is_commanded, what="Volcano does not take the command")
    await world.cluster.kill_program("volcano")
    status = {"state": {"phase": "Terminated"}}
    await world.admin.merge(VCJOBS, "j-given-up", {"status": status}, "jobs", subresource="status")
    over = await world.parts.drive_to_the_end("given-up")
    assert (over.state, over.reason, over.attempt) == ("FAILURE", "stopped", 1)
    await world.admin.delete(RESOURCE_QUOTAS, "none", "jobs")
    await world.cluster.start_program("volcano")


async def test_the_volcano_job_of_an_ended_job_does_not_run_again_after_a_restore_of_etcd(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removal, "REVIVED_SECONDS", 0.0)
    await world.submit("revived", invocation={"command": ["true"]})
    await world.parts.drive("revived", lambda one: one.outcome is not None)
    await world.cluster.kill_program("volcano")  # which would delete it soon
    over = await world.parts.drive_to_the_end("revived")
    assert (over.state, over.reason) == ("SUCCESS", "completed")
    assert await world.parts.reconciler.reconcile("revived") is None
    # As in a backup from before its end.
    status = {"state": {"phase": "Running"}}
    await world.admin.merge(VCJOBS, "j-revived", {"status": status}, "jobs", subresource="status")

    async def is_gone() -> bool:
        await world.parts.reconciler.reconcile("revived")
        return await world.nothing_is_left("revived")

    await eventually(is_gone, seconds=20, what="the VolcanoJob runs again")
    await world.cluster.start_program("volcano")


async def test_a_running_job_says_that_its_pods_are_gone_until_others_run(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(next_step, "ABSENT_SECONDS", 1.0)
    await world.submit("absent", stop_grace_seconds=1)
    await world.until("absent", "RUNNING")
    # As if its PodGroup waited in the queue again, after a preemption.
    await world.cluster.kill_program("volcano")
    await world.admin.delete(PODS, "j-absent-job-0", "jobs")
    record = await world.parts.drive("absent", lambda one: one.reason == "queued")
    assert (record.state, record.attempt, (record.details or {})["cause"]) == (
        "RUNNING",
        1,
        "queued",
    )
    await world.cluster.start_program("volcano")
    again = await world.parts.drive("absent", lambda one: one.reason is None)
    assert (again.state, again.attempt) == ("RUNNING", 1)
    await world.end("absent")


async def test_a_job_without_rights_to_suspend_or_remove_states_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(method: str, kind: Kind, verb: str) -> None:
        real = getattr(world.kube, method)

        async def called(asked: Kind, *args: Any, **named: Any) -> Any:
            if asked is kind:
                said = f'{kind.plural} is forbidden: User "c" cannot {verb} them'
                raise error_from(403, {"reason": "Forbidden", "message": said})
            return await real(asked, *args, **named)

        monkeypatch.setattr(world.kube, method, called)

    async def refused() -> JobRecord:
        for _ in range(3):
            with pytest.raises(Forbidden):
                await drive()
        return await world.parts.record("denied")

    async def drive() -> None:
        for _ in range(20):
            requeue = await world.parts.reconciler.reconcile("denied")
            assert requeue is not None, "nothing was refused"

    await world.submit("denied")
    await world.until("denied", "RUNNING")
    async with world.parts.store.write() as transaction:
        # As after another job was connected to this one: the companions that expose it are made
        # anew.
        companions = await companions_of(transaction, "denied")
        unowned = [replace(one, owner_uid=None) for one in companions]
        await record_companions(transaction, "denied", unowned)
    for one in await world.admin.list(NETWORK_POLICIES, labels="fumarole.dev/job=denied"):
        await world.admin.delete(NETWORK_POLICIES, one["metadata"]["name"], "jobs")
    refuse("create", NETWORK_POLICIES, "create")
    record = await refused()
    text = "the objects by which it is reached cannot be created: networkpolicies is forbidden"
    assert (record.state, record.reason) == ("RUNNING", "forbidden")
    assert record.details == {"cause": "refused"}
    assert str(record.message).startswith(text)
    monkeypatch.undo()
    record = await world.parts.drive("denied", lambda one: one.message is None)
    assert (record.state, record.reason) == ("RUNNING", None)
    refuse("create", COMMANDS, "create")
    await world.parts.commands.suspend("denied")
    record = await refused()
    text = 'it cannot be suspended: commands is forbidden: User "c" cannot create them'
    assert (record.state, record.reason) == ("RUNNING", "suspending")
    assert str(record.message).startswith(text)
    monkeypatch.undo()
    await world.until("denied", "SUSPENDED")
    refuse("delete", VCJOBS, "delete")
    await world.parts.commands.end("denied")
    record = await refused()
    assert (record.state, record.reason) == ("CANCELING", "asked")
    assert str(record.message).startswith("its VolcanoJob cannot be deleted: jobs is forbidden")
    monkeypatch.undo()
    record = await world.parts.drive_to_the_end("denied")
    assert (record.state, record.reason) == ("SUCCESS", "asked")
    assert "forbidden" not in str(record.message)
    async with world.parts.store.read() as transaction:
        updates = [str(one.message) for one in await updates_of(transaction, "denied")]
    # However often the controller tried.
    assert len([text for text in updates if "forbidden" in text]) == 3


async def test_a_job_with_a_refused_companion_runs_once_and_is_shown_as_running(
    world: World,
) -> None:
    await world.submit("reached")
    await world.until("reached", "RUNNING")  # the namespace exists by then
    await world.end("reached")
    kind = "count/networkpolicies.networking.k8s.io"
    there = len(await world.admin.list(NETWORK_POLICIES, "jobs"))
    # The policy that restricts the job is made, and not the one by which gateways reach it.
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {kind: str(there + 1)}}}
    await world.admin.create(RESOURCE_QUOTAS, quota, "jobs")
    web = {"web": {"kind": "web", "port": 8080}}
    await world.submit("unreached", interactive=web, invocation={"command": ["sleep", "5"]})

    async def becomes(*wanted: str | None) -> JobRecord | None:
        with suppress(Forbidden):
            await world.parts.reconciler.reconcile("unreached")
        record = await world.parts.record("unreached")
        return record if (record.state, record.reason) == wanted else None

    record = await eventually(lambda: becomes("RUNNING", "forbidden"), what="it does not run")
    text = "the objects by which it is reached cannot be created: networkpolicies"
    assert str(record.message).startswith(text)
    assert record.started_at is not None
    over = await eventually(lambda: becomes("SUCCESS", "completed"), what="it does not end")
    assert over.attempt == 1
    async with world.parts.store.read() as transaction:
        told = [(one.state, one.reason) for one in await updates_of(transaction, "unreached")]
    assert told.count(("RUNNING", "forbidden")) == 1
    await world.admin.delete(RESOURCE_QUOTAS, "few", "jobs")


async def test_a_volcano_job_made_without_a_response_is_recorded_though_its_queue_closes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, queue = world.kube.create, {"metadata": {"name": "closes"}, "spec": {"weight": 1}}

    async def unanswered(kind: Kind, *args: Any) -> Any:
        made = await real(kind, *args)
        if kind is VCJOBS:
            raise Unavailable("no response")
        return made

    async def is_open() -> bool:
        found = await world.admin.get(QUEUES, "closes")
        return (found.get("status") or {}).get("state") == "Open"

    async def runs() -> bool:
        found = await world.volcano_job("unanswered")
        return ((found.get("status") or {}).get("state") or {}).get("phase") == "Running"

    monkeypatch.setattr(prerequisites, "GOOD_FOR_SECONDS", 0.0)
    monkeypatch.setattr(world.kube, "create", unanswered)
    await world.admin.create(QUEUES, queue)
    await eventually(is_open)
    await world.submit("unanswered", queue="closes")
    with pytest.raises(Unavailable):
        await world.until("unanswered", "RUNNING")
    await eventually(runs)
    state = {"status": {"state": "Closing"}}
    await world.admin.merge(QUEUES, "closes", state, subresource="status")
    record = await world.parts.drive("unanswered", lambda one: one.uid is not None)
    assert record.reason != "preparing"
    await world.until("unanswered", "RUNNING")
    await world.end("unanswered")


async def test_the_end_is_reported_once_its_pods_are_observed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_pods(method: Callable[..., Any]) -> Callable[..., Any]:
        def found(self: Any, *of: Any) -> Any:
            return tuple(one for one in method(self, *of) if not isinstance(one, ObservedPod))

        return found

    # Pod events and VolcanoJob events arrive separately.
    for name in ("of_job", "departed_of"):
        monkeypatch.setattr(Indexer, name, without_pods(getattr(Indexer, name)))
    await world.submit("late-pods", invocation={"command": ["true"]})
    await world.parts.drive("late-pods", lambda record: record.outcome is not None)
    for _ in range(20):
        await world.parts.reconciler.reconcile("late-pods")
    assert not (await world.parts.record("late-pods")).is_final
    monkeypatch.undo()
    record = await world.parts.drive_to_the_end("late-pods")
    assert record.state == "SUCCESS"
    _, (run,) = await world.history("late-pods")
    assert None not in (run.started_at, run.ended_at)


async def test_a_store_restored_from_before_an_attempt_adopts_it(
    world: World,
) -> None:
    await world.submit("restored")
    before = await world.until("restored", "RUNNING")
    backup = world.back_up()
    await world.evict("restored")
    await world.until("restored", "RUNNING", attempt=2)
    (runs,) = await world.admin.list(VCJOBS, labels="fumarole.dev/job=restored")
    store = Store(backup)
    await store.open()
    async with store.write() as transaction:
        parts = world.assemble(store, await raise_term(transaction))
    assert (await parts.record("restored")).attempt == 1
    record = await parts.drive("restored", lambda r: (r.attempt, r.state) == (2, "RUNNING"))
    assert record.uid == runs["metadata"]["uid"]
    assert record.started_at == before.started_at
    async with store.read() as transaction:
        attempts = await attempts_of(transaction, "restored")
        assert all(one.ended_at for one in await pod_records_of(transaction, "restored", 1))
    assert [(one.attempt, one.outcome) for one in attempts] == [(1, "LOST"), (2, None)]
    (kept,) = await world.admin.list(VCJOBS, labels="fumarole.dev/job=restored")
    assert kept["metadata"]["uid"] == runs["metadata"]["uid"]
    assert "deletionTimestamp" not in kept["metadata"]
    await parts.commands.end("restored")
    assert (await parts.drive_to_the_end("restored")).state == "SUCCESS"
    await store.close()
    await eventually(lambda: world.nothing_is_left("restored"), what="something is left")


async def test_a_suspended_job_has_no_pods_and_resumes_as_another_attempt(
    world: World,
) -> None:
    await world.submit("paused", max_retry=2,
                       policies=[{"event": "PodFailed", "action": "RestartJob"}])  # fmt: skip
    await world.until("paused", "RUNNING")
    (before,) = await world.admin.list(VCJOBS, labels="fumarole.dev/job=paused")
    await world.parts.commands.suspend("paused")
    await world.until("paused", "SUSPENDED")
    assert await world.admin.list(PODS, labels="fumarole.dev/job=paused") == []
    (kept,) = await world.admin.list(VCJOBS, labels="fumarole.dev/job=paused")
    assert kept["status"]["state"]["phase"] == "Aborted"
    await world.parts.commands.resume("paused")
    record = await world.until("paused", "RUNNING", attempt=2)
    assert (record.retries_used, record.evictions) == (0, 0)
    (after,) = await world.admin.list(VCJOBS, labels="fumarole.dev/job=paused")
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    # No retry was used.
    assert after["spec"]["maxRetry"] == before["spec"]["maxRetry"] == 3
    await world.end("paused")
    await eventually(lambda: world.nothing_is_left("paused"), what="something is left")


async def test_an_unsubmitted_job_can_be_suspended_and_ended(
    world: World,
) -> None:
    await world.submit("early")
    await world.parts.commands.suspend("early")
    await world.until("early", "SUSPENDED")
    assert await world.admin.list(VCJOBS, labels="fumarole.dev/job=early") == []
    await world.parts.commands.resume("early")
    await world.until("early", "RUNNING")
    await world.parts.commands.suspend("early")
    await world.until("early", "SUSPENDED")
    record = await world.end("early")
    assert (record.state, record.attempt) == ("SUCCESS", 1)
    # Volcano never removes an aborted VolcanoJob, so the controller does.
    await eventually(lambda: world.nothing_is_left("early"), what="something is left")


async def test_a_job_aborted_by_hand_has_failed_and_is_removed(world: World) -> None:
    await world.submit("aborted")
    await world.until("aborted", "RUNNING")
    (job,) = await world.admin.list(VCJOBS, labels="fumarole.dev/job=aborted")
    metadata = job["metadata"]
    target = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": metadata["name"],
              "uid": metadata["uid"]}  # fmt: skip
    command = {"metadata": {"name": "by-hand"}, "action": "AbortJob", "target": target}
    await world.admin.create(COMMANDS, command, "jobs")
    record = await world.parts.drive_to_the_end("aborted")
    assert (record.state, record.reason) == ("FAILURE", "stopped")
    await eventually(lambda: world.nothing_is_left("aborted"), what="something is left")


async def test_a_job_deleted_by_hand_has_failed_and_leaves_nothing(world: World) -> None:
    await world.submit("deleted")
    await world.until("deleted", "RUNNING")
    await world.admin.delete(VCJOBS, "j-deleted", "jobs")
    record = await world.parts.drive_to_the_end("deleted")
    assert (record.state, record.reason) in {("FAILURE", "deleted"), ("FAILURE", "lost")}
    async with world.parts.store.read() as transaction:
        runs = await pod_records_of(transaction, "deleted")
    assert all(run.ended_at is not None for run in runs)
    await eventually(lambda: world.nothing_is_left("deleted"), what="something is left")


async def test_while_submission_is_paused_jobs_wait_with_that_reason(world: World) -> None:
    async with world.parts.store.write() as transaction:
        await set_maintenance(transaction, "paused", "the disks are being changed", now=1.0)
    await world.submit("held")
    record = await world.parts.drive("held", lambda r: r.reason == "paused")
    assert record.message == "the disks are being changed"
    assert await world.admin.list(VCJOBS, labels="fumarole.dev/job=held") == []
    async with world.parts.store.write() as transaction:
        await set_maintenance(transaction, "running", None, now=2.0)
    await world.until("held", "RUNNING")
    await world.end("held")


async def test_an_ended_job_leaves_nothing_after_its_retention(world: World) -> None:
    for job in ("short", "unseen"):
        await world.submit(job, invocation={"command": ["true"]})
    await world.parts.drive("unseen", lambda r: r.uid is not None)
    record = await world.parts.drive_to_the_end("short")
    assert record.state == "SUCCESS"
    await eventually(lambda: world.nothing_is_left("short"), seconds=40, what="something is left")
    # The first observation comes only now. It sees that the job had ended before Volcano removed
    # it.
    labels = "fumarole.dev/job=unseen"
    await eventually(lambda: gone(world.admin.list(VCJOBS, labels=labels)), seconds=40)
    record = await world.parts.drive_to_the_end("unseen")
    assert (record.state, record.reason) == ("SUCCESS", "completed")


async def gone(found: Awaitable[Objects]) -> bool:
    return not await found
