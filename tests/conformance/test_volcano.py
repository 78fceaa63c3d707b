"""Tests Volcano: webhooks, phases, gangs, policies, commands, time to live."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from deploy.local.cluster import EmbeddedCluster
from tests.conformance.calls import (
    BATCH,
    BUS,
    MERGE,
    PATIENCE,
    SCHEDULING,
    Kube,
    eventually,
    make_job,
    refused,
    watched,
)


async def _until(kube: Kube, namespace: str, name: str, phase: str, **rest: Any) -> Any:
    async def reached() -> Any:
        job = await kube.job(namespace, name)
        return job if (job.get("status") or {}).get("state", {}).get("phase") == phase else None

    return await eventually(reached, **rest)


async def _pods(kube: Kube, namespace: str) -> list[Any]:
    return list((await kube.core.list_namespaced_pod(namespace)).items)


async def _command(kube: Kube, namespace: str, job: Any, action: str) -> None:
    owner = {
        "apiVersion": "/".join(BATCH),
        "kind": "Job",
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
    }
    command = {
        "apiVersion": "/".join(BUS),
        "kind": "Command",
        "metadata": {"generateName": f"{owner['name']}-", "ownerReferences": [owner]},
        "action": action,
        "target": owner,
    }
    await kube.custom.create_namespaced_custom_object(*BUS, namespace, "commands", command)


async def test_the_admission_webhook_refuses_invalid_jobs(kube: Kube, namespace: str) -> None:
    doubled = make_job("a")
    doubled["spec"]["tasks"] *= 2
    await refused("a job with a doubled task name", kube.create_job(namespace, doubled))
    elsewhere = make_job("a", queue="no-such-queue")
    await refused("a job for an unknown queue", kube.create_job(namespace, elsewhere))
    greedy = make_job("a", minAvailable=2)
    row = "a job with minAvailable above its replicas"
    await refused(row, kube.create_job(namespace, greedy))
    long = make_job("a" * 60)
    await refused("a job whose pod names are too long", kube.create_job(namespace, long))
    empty = make_job("a")
    empty["spec"]["tasks"][0]["template"]["spec"]["containers"] = []
    await refused("a job without containers", kube.create_job(namespace, empty))


@pytest.mark.usefixtures("kubelet")
async def test_a_job_passes_its_phases_and_omits_zero_counts(
    kube: Kube, namespace: str, embedded: EmbeddedCluster | None
) -> None:
    listed = await kube.custom.list_namespaced_custom_object(*BATCH, namespace, "jobs")
    await kube.create_job(namespace, make_job("a", script="sleep 0.5"))
    phases: list[str] = []
    counted = vanished = False
    stream = watched(
        kube.custom.list_namespaced_custom_object,
        *BATCH,
        namespace,
        "jobs",
        resource_version=listed["metadata"]["resourceVersion"],
        timeout_seconds=int(20 * PATIENCE),
    )
    async for _, job in stream:
        status = job.get("status") or {}
        phases.append(status.get("state", {}).get("phase", ""))
        counted = counted or (phases[-1] == "Completed" and status.get("succeeded") == 1)
        vanished = counted and "succeeded" not in status
        if vanished:
            break
    await stream.aclose()
    assert phases[0] == ""
    assert list(dict.fromkeys(phases)) == ["", "Pending", "Running", "Completed"]
    # Volcano 1.11 and later do this. A repair there does not break us: we never read these counts.
    assert vanished or embedded is None


@pytest.mark.usefixtures("kubelet")
async def test_the_pods_of_a_job_have_its_labels_and_owner_reference(
    kube: Kube, namespace: str
) -> None:
    job = await kube.create_job(namespace, make_job("a", script="sleep 30", replicas=2))
    await _until(kube, namespace, "a", "Running")
    pods = await _pods(kube, namespace)
    assert [pod.metadata.name for pod in pods] == ["a-job-0", "a-job-1"]
    for index, pod in enumerate(pods):
        owner = pod.metadata.owner_references[0]
        assert (owner.kind, owner.uid, owner.controller) == ("Job", job["metadata"]["uid"], True)
        assert pod.metadata.labels["volcano.sh/job-name"] == "a"
        assert pod.metadata.labels["volcano.sh/task-spec"] == "job"
        assert pod.metadata.annotations["volcano.sh/task-index"] == str(index)
        group = pod.metadata.annotations["scheduling.k8s.io/group-name"]
        assert group == f"a-{job['metadata']['uid']}"
    await kube.custom.delete_namespaced_custom_object(*BATCH, namespace, "jobs", "a")

    async def all_gone() -> bool:
        return not await _pods(kube, namespace)

    await eventually(all_gone)


async def test_a_gang_that_does_not_fit_has_no_pods(kube: Kube, namespace: str) -> None:
    job = make_job("a", replicas=3)
    container = job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]
    container["resources"] = {"requests": {"cpu": "999"}}
    await kube.create_job(namespace, job)

    async def group_waits() -> bool:
        groups = await kube.custom.list_namespaced_custom_object(
            *SCHEDULING, namespace, "podgroups"
        )
        if any((g.get("status") or {}).get("conditions") for g in groups["items"]):
            return True  # before 1.15
        events = await kube.core.list_namespaced_event(
            namespace, field_selector="involvedObject.kind=PodGroup"
        )
        return any("resource in cluster is overused" in e.message for e in events.items)

    await eventually(group_waits)
    assert await kube.phase(namespace, "a") == "Pending"
    assert await _pods(kube, namespace) == []


@pytest.mark.usefixtures("kubelet")
async def test_the_svc_plugin_creates_service_hosts_and_network_policy(
    kube: Kube, namespace: str
) -> None:
    script = "cat /etc/volcano/job.host; echo; echo $VC_JOB_NUM $VC_TASK_INDEX"
    job = make_job("a", script=script, plugins={"svc": [], "env": []})
    await kube.create_job(namespace, job)
    await _until(kube, namespace, "a", "Completed")
    log = await kube.core.read_namespaced_pod_log("a-job-0", namespace)
    assert log.split() == ["a-job-0.a", "1", "0"]


@pytest.mark.usefixtures("kubelet")
async def test_a_failed_pod_fails_the_job_without_a_policy(kube: Kube, namespace: str) -> None:
    await kube.create_job(namespace, make_job("a", script="exit 7"))
    await _until(kube, namespace, "a", "Failed")
    pod = (await _pods(kube, namespace))[0]
    assert pod.status.container_statuses[0].state.terminated.exit_code == 7


@pytest.mark.usefixtures("kubelet")
@pytest.mark.parametrize(("retries", "runs"), [(1, 1), (2, 2), (3, 3)])
async def test_max_retry_n_restarts_n_minus_one_times(
    kube: Kube, namespace: str, retries: int, runs: int
) -> None:
    policy = {"event": "PodFailed", "action": "RestartJob"}
    job = make_job("a", script="exit 1", maxRetry=retries, policies=[policy])
    await kube.create_job(namespace, job)
    failed = await _until(kube, namespace, "a", "Failed", seconds=40)
    assert failed["status"]["retryCount"] == retries
    pod = (await _pods(kube, namespace))[0]
    assert pod.metadata.annotations["volcano.sh/job-retry-count"] == str(runs - 1)


async def test_an_explicit_max_retry_of_zero_becomes_three(kube: Kube, namespace: str) -> None:
    made = await kube.create_job(namespace, make_job("a", maxRetry=0))
    assert made["spec"]["maxRetry"] == 3


@pytest.mark.usefixtures("kubelet")
async def test_an_exit_code_policy_triggers_its_action(kube: Kube, namespace: str) -> None:
    policies = [
        {"exitCode": 3, "action": "AbortJob"},
        {"event": "PodFailed", "action": "TerminateJob"},
    ]
    await kube.create_job(namespace, make_job("a", script="exit 3", policies=policies))
    await _until(kube, namespace, "a", "Aborted")
    await kube.create_job(namespace, make_job("b", script="exit 4", policies=policies))
    await _until(kube, namespace, "b", "Terminated")


@pytest.mark.usefixtures("kubelet")
async def test_restart_task_does_not_restart_other_tasks(kube: Kube, namespace: str) -> None:
    job = make_job("a", script="sleep 30")
    other = {**job["spec"]["tasks"][0], "name": "flaky"}
    spec = {**other["template"]["spec"]}
    spec["containers"] = [{**spec["containers"][0], "command": ["sh", "-c", "sleep 0.5; exit 1"]}]
    other["template"] = {"spec": spec}
    other["policies"] = [{"event": "PodFailed", "action": "RestartTask"}]
    job["spec"] |= {"tasks": [job["spec"]["tasks"][0], other], "maxRetry": 5}
    await kube.create_job(namespace, job)
    await _until(kube, namespace, "a", "Running")
    before = {pod.metadata.name: pod.metadata.uid for pod in await _pods(kube, namespace)}

    async def restarted() -> bool:
        uids = {pod.metadata.name: pod.metadata.uid for pod in await _pods(kube, namespace)}
        return bool(uids.get("a-flaky-0", before["a-flaky-0"]) != before["a-flaky-0"])

    await eventually(restarted)
    after = {pod.metadata.name: pod.metadata.uid for pod in await _pods(kube, namespace)}
    assert after["a-job-0"] == before["a-job-0"]


@pytest.mark.usefixtures("kubelet")
async def test_a_deleted_pod_is_recreated_without_using_a_retry(kube: Kube, namespace: str) -> None:
    await kube.create_job(namespace, make_job("a", script="sleep 60"))
    await _until(kube, namespace, "a", "Running")
    before = (await _pods(kube, namespace))[0].metadata.uid
    await kube.core.delete_namespaced_pod("a-job-0", namespace, grace_period_seconds=0)

    async def is_back() -> bool:
        pods = await _pods(kube, namespace)
        return any(p.metadata.uid != before and p.status.phase == "Running" for p in pods)

    await eventually(is_back)
    assert not (await kube.job(namespace, "a"))["status"].get("retryCount")


@pytest.mark.usefixtures("kubelet")
async def test_an_aborted_job_keeps_its_object_and_can_be_resumed(
    kube: Kube, namespace: str
) -> None:
    await kube.create_job(namespace, make_job("a", script="sleep 60"))
    job = await _until(kube, namespace, "a", "Running")
    await _command(kube, namespace, job, "AbortJob")

    async def is_told() -> bool:
        events = (await kube.core.list_namespaced_event(namespace)).items
        said = [one.message or "" for one in events if one.reason == "CommandIssued"]
        return any(text.startswith("Start to execute command AbortJob, ") for text in said)

    await eventually(is_told)
    await _until(kube, namespace, "a", "Aborted")

    async def are_gone() -> bool:
        return await _pods(kube, namespace) == []

    # Volcano does not wait for their grace periods.
    await eventually(are_gone)
    await _command(kube, namespace, job, "ResumeJob")
    resumed = await _until(kube, namespace, "a", "Running")
    assert resumed["status"]["retryCount"] == 1
    commands = await kube.custom.list_namespaced_custom_object(*BUS, namespace, "commands")
    assert commands["items"] == []


@pytest.mark.usefixtures("kubelet")
async def test_a_running_job_may_be_scaled_but_not_changed(kube: Kube, namespace: str) -> None:
    await kube.create_job(namespace, make_job("a", script="sleep 60", minAvailable=1))
    job = await _until(kube, namespace, "a", "Running")

    async def patch(tasks: Any) -> Any:
        return await kube.custom.patch_namespaced_custom_object(
            *BATCH, namespace, "jobs", "a", {"spec": {"tasks": tasks}}, _content_type=MERGE
        )

    tasks = job["spec"]["tasks"]
    tasks[0]["replicas"] = 2
    await patch(tasks)

    async def has_two() -> bool:
        return len(await _pods(kube, namespace)) == 2

    await eventually(has_two)
    tasks[0]["template"]["spec"]["containers"][0]["image"] = "other"
    await refused("another image in a running job", patch(tasks))


@pytest.mark.usefixtures("kubelet")
async def test_a_finished_job_is_deleted_after_its_ttl(kube: Kube, namespace: str) -> None:
    await kube.create_job(namespace, make_job("a", ttlSecondsAfterFinished=1))

    async def is_gone() -> bool:
        jobs = await kube.custom.list_namespaced_custom_object(*BATCH, namespace, "jobs")
        return not jobs["items"] and not await _pods(kube, namespace)

    await eventually(is_gone)


async def test_a_new_queue_becomes_open(kube: Kube, queue: str) -> None:
    wanted = {
        "apiVersion": "/".join(SCHEDULING),
        "kind": "Queue",
        "metadata": {"name": queue},
        "spec": {"weight": 1},
    }
    await kube.custom.create_cluster_custom_object(*SCHEDULING, "queues", wanted)

    async def is_open() -> bool:
        found = await kube.custom.get_cluster_custom_object(*SCHEDULING, "queues", queue)
        return bool((found.get("status") or {}).get("state") == "Open")

    await eventually(is_open)


@pytest.mark.usefixtures("kubelet")
async def test_a_task_waits_for_the_tasks_it_depends_on(kube: Kube, namespace: str) -> None:
    # Up to 1.15.0, Volcano waits only for running pods, not for pods that have already ended.
    job = make_job("a", script=f"sleep {PATIENCE}; exit 0", minAvailable=1)
    first = job["spec"]["tasks"][0]
    second = {**first, "name": "late", "dependsOn": {"name": ["job"]}}
    job["spec"]["tasks"] = [first, second]
    await kube.create_job(namespace, job)
    await _until(kube, namespace, "a", "Completed", seconds=30)
    pods = {pod.metadata.name: pod for pod in await _pods(kube, namespace)}
    started: datetime = pods["a-job-0"].status.start_time
    assert pods["a-late-0"].metadata.creation_timestamp >= started
