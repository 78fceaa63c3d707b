"""Tests jobs on the embedded cluster that lose pods: evicted, rejected, drained, preempted ones."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
import pytest_asyncio

from controller.jobs.history.retries import used_retries
from controller.jobs.reconcile.lifecycle import failure, missed_policies
from controller.kube.client import path_of
from controller.kube.kinds import (
    PODS,
)
from controller.store.jobs.job_rows import JobRecord
from controller.store.jobs.progress import (
    attempts_of,
    pod_records_of,
)
from controller.store.outbox.update_rows import updates_of
from tests.controller.jobs.reconcile.attempts_world import World, open_world
from tests.controller.running import eventually

DONE = {"command": ["true"]}
FAILS = {"command": ["sh", "-c", "trap 'exit 3' TERM; sleep 60 & wait"]}

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with open_world(tmp_path_factory.mktemp("lost-pods"), instance="lost-pods") as one:
        yield one


async def test_an_evicted_job_is_resubmitted_without_using_a_retry(world: World) -> None:
    await world.submit("evicted", policies=[{"event": "PodPending", "action": "AbortJob",
                                             "timeout_seconds": 600}])  # fmt: skip
    first = await world.until("evicted", "RUNNING")
    await world.evict("evicted")
    again = await world.until("evicted", "RUNNING", attempt=2)
    assert (again.evictions, again.retries_used) == (1, 0)
    assert again.started_at == first.started_at
    # Beyond the allowed number of evictions, the job is not submitted again.
    await world.evict("evicted")
    record = await world.parts.drive_to_the_end("evicted")
    assert (record.state, record.reason) == ("FAILURE", "evicted")
    async with world.parts.store.read() as transaction:
        attempts = await attempts_of(transaction, "evicted")
        runs = await pod_records_of(transaction, "evicted")
        updates = [(one.state, one.reason) for one in await updates_of(transaction, "evicted")]
    assert all(one != other for one, other in pairwise(updates)), "nothing is told twice"
    assert updates.count(("IN_QUEUE", "evicted")) == 1
    assert [(one.outcome, one.reason) for one in attempts] == [
        ("EVICTED", "evicted"), ("FAILURE", "evicted"),
    ]  # fmt: skip
    assert [(run.attempt, run.reason) for run in runs] == [(1, "Evicted"), (2, "Evicted")]
    assert all(run.ended_at is not None for run in runs)


async def test_a_job_whose_pod_a_kubelet_rejects_is_resubmitted_after_a_while(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failure, "REFUSED_SECONDS", 1.0)
    await world.cluster.kill_program("kubelet")
    await world.submit("refused")

    async def bound() -> bool:
        await world.parts.reconciler.reconcile("refused")
        return any(pod["spec"].get("nodeName") for pod in await world.pods("refused"))

    await eventually(bound, what="no node is given to it")
    # Another scheduler was faster (Kubernetes, pkg/kubelet/lifecycle/predicate.go).
    said = "Pod was rejected: Node didn't have enough resource: cpu"
    status = {"phase": "Failed", "reason": "OutOfcpu", "message": said}
    await world.admin.merge(PODS, "j-refused-job-0", {"status": status}, "jobs",
                            subresource="status")  # fmt: skip
    await world.cluster.start_program("kubelet")
    again = await world.until("refused", "RUNNING", attempt=2)
    assert (again.evictions, again.retries_used) == (1, 0)
    attempts, runs = await world.history("refused")
    assert attempts[0].message == f"job 0 failed on its node: OutOfcpu: {said}; submitted again"
    assert (runs[0].reason, runs[0].started_at) == ("OutOfcpu", None)
    assert attempts[0].ended_at is not None
    assert attempts[1].submitted_at >= attempts[0].ended_at + 1.0
    assert again.details is None, "those of the refusal ended with its reason"
    await world.end("refused")


async def test_ranks_do_not_wait_for_an_evicted_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(missed_policies, "LOST_SECONDS", 1.0)
    await world.submit("gang", replicas=2)
    await world.until("gang", "RUNNING")
    known = {pod["metadata"]["uid"] for pod in await world.pods("gang")}
    await world.evict("gang")
    again = await world.until("gang", "RUNNING", attempt=2)
    assert (again.evictions, again.retries_used) == (1, 0)
    attempts, _ = await world.history("gang")
    assert (attempts[0].outcome, (attempts[0].details or {}).get("rank")) == ("EVICTED", 0)
    assert not known & {pod["metadata"]["uid"] for pod in await world.pods("gang")}
    await world.end("gang")


async def test_a_pod_that_its_kubelet_refuses_after_a_restart_has_succeeded(world: World) -> None:
    await world.submit("twice", tasks=[{"name": "job", "invocation": DONE}, {"name": "last"}])

    async def is_recorded() -> bool:
        await world.parts.reconciler.reconcile("twice")
        _, runs = await world.history("twice")
        began = [run for run in runs if run.started_at is not None]
        return len(began) == 2 and any(run.phase == "Succeeded" for run in began)

    await eventually(is_recorded, what="no pod has succeeded")
    await world.cluster.kill_program("kubelet")
    # Before Kubernetes 1.31.1, a kubelet that starts admits pods again that have ended.
    said = "Pod was rejected: Allocate failed due to requested number of devices unavailable"
    refused = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": said,
               "containerStatuses": None}  # fmt: skip
    (last,) = [one for one in await world.pods("twice") if "-last-" in one["metadata"]["name"]]
    (container,) = last["status"]["containerStatuses"]
    began = container["state"]["running"]["startedAt"]
    state = {"running": None, "terminated": {"exitCode": 0, "reason": "Completed",
                                             "startedAt": began, "finishedAt": began}}  # fmt: skip
    done = {"phase": "Succeeded", "containerStatuses": [container | {"state": state}]}
    for name, status in (("j-twice-job-0", refused), ("j-twice-last-0", done)):
        await world.admin.merge(PODS, name, {"status": status}, "jobs", subresource="status")
    await world.cluster.start_program("kubelet")
    record = await world.parts.drive_to_the_end("twice")
    assert (await world.volcano_job("twice"))["status"]["state"]["phase"] == "Failed"
    assert (record.state, record.reason, record.attempt) == ("SUCCESS", "completed", 1)
    _, runs = await world.history("twice")
    assert [(run.phase, run.exit_code) for run in runs] == [("Succeeded", 0)] * 2


async def test_an_evicted_program_that_ends_well_has_not_completed_its_job(world: World) -> None:
    await world.submit("tidy")
    await world.until("tidy", "RUNNING")
    await world.cluster.kill_program("kubelet")
    # Kubernetes since 1.27 (issue 118310): the phase is that of the exit code.
    (pod,) = await world.pods("tidy")
    (container,) = pod["status"]["containerStatuses"]
    began = container["state"]["running"]["startedAt"]
    state = {"running": None, "terminated": {"exitCode": 0, "reason": "Completed",
                                             "startedAt": began, "finishedAt": began}}  # fmt: skip
    taken = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet",
             "message": "The node was low on resource: memory."}  # fmt: skip
    status = {"phase": "Succeeded", "containerStatuses": [container | {"state": state}],
              "conditions": [*pod["status"].get("conditions", ()), taken]}  # fmt: skip
    await world.admin.merge(PODS, "j-tidy-job-0", {"status": status}, "jobs", subresource="status")
    await world.cluster.start_program("kubelet")
    again = await world.until("tidy", "RUNNING", attempt=2)
    assert (again.evictions, again.retries_used) == (1, 0)
    attempts, runs = await world.history("tidy")
    assert "The node was low on resource: memory." in (attempts[0].message or "")
    assert (runs[0].phase, runs[0].reason) == ("Succeeded", "TerminationByKubelet")
    await world.end("tidy")


async def test_a_restart_that_volcano_missed_while_it_was_away_is_another_attempt(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(missed_policies, "MISSED_SECONDS", 3.0)
    fails = {"command": ["sh", "-c", "sleep 4; exit 7"]}
    waits = {"command": ["sh", "-c", "trap 'exit 0' TERM; sleep 600 & wait"]}
    policies = [{"event": "PodFailed", "action": "RestartJob"}]
    tasks = [{"name": "a", "invocation": fails}, {"name": "b", "invocation": waits}]
    await world.submit("away", tasks=tasks, policies=policies, max_retry=1)
    await world.until("away", "RUNNING")
    await world.cluster.kill_program("volcano")

    async def has_failed() -> bool:
        return any(pod["status"].get("phase") == "Failed" for pod in await world.pods("away"))

    await eventually(has_failed, what="no pod has failed")
    await world.cluster.start_program("volcano")
    again = await world.until("away", "RUNNING", attempt=2)
    assert again.retries_used == 1
    attempts, _ = await world.history("away")
    assert "Volcano has not carried out its policy RestartJob" in (attempts[0].message or "")
    await world.end("away")


async def test_a_restart_after_an_eviction_that_volcano_missed_is_another_attempt(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(missed_policies, "MISSED_SECONDS", 3.0)
    policies = [{"event": "PodEvicted", "action": "RestartJob"}]
    await world.submit("emptied", replicas=2, policies=policies, max_retry=1, stop_grace_seconds=1)
    await world.until("emptied", "RUNNING")
    await world.cluster.kill_program("volcano")
    name, known = "j-emptied-job-0", {pod["metadata"]["uid"] for pod in await world.pods("emptied")}
    # As the API for evictions does before it deletes the pod.
    why = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    await world.admin.merge(PODS, name, {"status": {"conditions": [why]}}, "jobs",
                            subresource="status")  # fmt: skip

    def is_disrupted(_: JobRecord) -> bool:
        return any(pod.disrupted for pod in world.informer.pods.of_job("emptied"))

    await world.parts.drive("emptied", is_disrupted)
    await world.admin.delete(PODS, name, "jobs")

    async def is_gone() -> bool:
        return len(await world.pods("emptied")) == 1

    await eventually(is_gone, what="the pod stays")
    await world.cluster.start_program("volcano")
    again = await world.until("emptied", "RUNNING", attempt=2)
    assert (again.evictions, again.retries_used) == (1, 0)
    attempts, _ = await world.history("emptied")
    assert "Volcano has not carried out its policy RestartJob" in (attempts[0].message or "")
    # Both ranks have begun anew.
    assert not known & {pod["metadata"]["uid"] for pod in await world.pods("emptied")}
    await world.end("emptied")


async def test_a_job_whose_node_restarts_is_resubmitted(world: World) -> None:
    await world.submit("rebooted")
    await world.until("rebooted", "RUNNING")
    await world.cluster.kill_program("kubelet")
    (pod,) = await world.pods("rebooted")
    # containerd knows the container, but not how it ended.
    (container,) = pod["status"]["containerStatuses"]
    began = container["state"]["running"]["startedAt"]
    state = {"running": None, "terminated": {"exitCode": 255, "reason": "Unknown",
                                             "startedAt": began, "finishedAt": began}}  # fmt: skip
    status = {"phase": "Failed", "containerStatuses": [container | {"state": state}]}
    await world.admin.merge(PODS, "j-rebooted-job-0", {"status": status}, "jobs",
                            subresource="status")  # fmt: skip
    await world.cluster.start_program("kubelet")
    again = await world.until("rebooted", "RUNNING", attempt=2)
    assert (again.evictions, again.retries_used) == (1, 0)
    attempts, _ = await world.history("rebooted")
    assert (attempts[0].outcome, (attempts[0].details or {}).get("cause")) == (
        "EVICTED", "node_lost",
    )  # fmt: skip
    await world.end("rebooted")


async def test_a_job_whose_pod_is_drained_continues_with_another_pod(world: World) -> None:
    await world.submit("drained")
    record = await world.until("drained", "RUNNING")
    path = path_of(PODS, "jobs", "j-drained-job-0", "eviction")
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "j-drained-job-0"}}
    await world.admin._transport.call("POST", path, body=body)

    async def told() -> bool:
        await world.parts.reconciler.reconcile("drained")
        async with world.parts.store.read() as transaction:
            runs = await pod_records_of(transaction, "drained")
        ended = [run.reason for run in runs if run.ended_at is not None]
        return len(runs) == 2 and ended == ["EvictionByEvictionAPI"]

    await eventually(told, seconds=60, what="the pod was not made again")
    after = await world.until("drained", "RUNNING")
    # Volcano recreates the pod by itself, and counts no retry.
    assert (after.uid, after.attempt, after.retries_used) == (record.uid, 1, 0)
    await world.end("drained")


async def test_a_drained_pod_uses_no_retry_though_volcano_counts_it_several_times(
    world: World,
) -> None:
    job_id = "counted"
    policies = [{"event": "PodEvicted", "action": "RestartTask"}]
    slowly = {"command": ["sh", "-c", "trap 'sleep 1; exit 143' TERM; sleep 600 & wait"]}
    await world.submit(job_id, replicas=2, policies=policies, max_retry=8, invocation=slowly)
    await world.until(job_id, "RUNNING")
    name = f"j-{job_id}-job-0"
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    await world.admin._transport.call("POST", path_of(PODS, "jobs", name, "eviction"), body=body)

    async def runs_again() -> bool:
        await world.parts.reconciler.reconcile(job_id)
        _, runs = await world.history(job_id)
        first = [run for run in runs if run.index == 0 and run.started_at is not None]
        return len(first) > 1 and first[-1].ended_at is None

    await eventually(runs_again, seconds=60, what="the pod does not run again")
    counted = (await world.volcano_job(job_id))["status"]["retryCount"]
    _, runs = await world.history(job_id)
    assert counted > 1
    assert used_retries(counted, runs) == 0
    await world.end(job_id)


async def test_a_job_that_volcano_preempts_keeps_its_retries(world: World) -> None:
    """Preempts as Volcano's scheduler does: a condition, later overwritten, then the deletion."""
    policies = [{"event": "PodEvicted", "action": "RestartJob"}]
    await world.submit("taken", policies=policies, max_retry=3, invocation=FAILS)
    await world.until("taken", "RUNNING")
    (pod,) = await world.pods("taken")
    name, at = pod["metadata"]["name"], pod["status"]["startTime"]
    said = {"type": "Ready", "status": "False", "reason": "Evict", "lastTransitionTime": at}
    others = [one for one in pod["status"]["conditions"] if one["type"] != "Ready"]
    status = {"conditions": [*others, said | {"message": "Pod is evicted, because of preempt"}]}
    await world.admin.merge(PODS, name, {"status": status}, "jobs", subresource="status")
    await world.admin.delete(PODS, name, "jobs")

    async def is_back() -> bool:
        await world.parts.reconciler.reconcile("taken")
        _, runs = await world.history("taken")
        # If Volcano recreates its pods in two steps, an intermediate pod never starts.
        return len(runs) > 1 and runs[-1].started_at is not None

    await eventually(is_back, seconds=60, what="no pod in its place")
    _, (first, *_) = await world.history("taken")
    assert (first.reason, first.exit_code) == ("Evict", 3)
    record = await world.end("taken")
    assert record.state == "SUCCESS"
