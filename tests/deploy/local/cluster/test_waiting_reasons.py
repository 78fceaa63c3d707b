"""Tests how PodGroups, Pods and Events explain a waiting job, as recorded on a real cluster."""

from __future__ import annotations

import asyncio
from typing import Any

from deploy.local.cluster.client import EVENTS, PODS, Client, Object, Resource
from deploy.local.cluster.volcano.definitions import JOBS, POD_GROUPS
from tests.deploy.local.cluster.test_unusual_conditions import make_job

QUOTAS = Resource("v1", "resourcequotas")


async def _events(client: Client, namespace: str, kind: str) -> dict[str, Object]:
    """Return the last Event of each reason about objects of *kind* in the namespace."""
    query = {"fieldSelector": f"involvedObject.kind={kind},involvedObject.namespace={namespace}"}
    items, _ = await client.list_objects(EVENTS, query)
    return {event["reason"]: event for event in items}


async def _until_event(client: Client, namespace: str, kind: str, reason: str) -> Object:
    async with asyncio.timeout(20):
        while reason not in (events := await _events(client, namespace, kind)):
            await asyncio.sleep(0.05)
    return events[reason]


async def _group(client: Client, namespace: str) -> Object:
    items, _ = await client.list_objects(POD_GROUPS, {})
    own = [item for item in items if item["metadata"]["namespace"] == namespace]
    return own[0] if own else {}


def _asking(name: str, **resources: Any) -> Object:
    job = make_job(name, "sleep 60")
    job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"] = resources
    return job


async def test_a_pod_group_that_is_not_admitted_has_an_event_and_no_condition(
    client: Client, namespace: str
) -> None:
    await client.create(JOBS, namespace, _asking("a", requests={"cpu": "9999"}))
    event = await _until_event(client, namespace, "PodGroup", "Unschedulable")
    assert event["message"] == "resource in cluster is overused: overused cpu"
    status = (await _group(client, namespace))["status"]
    assert (status["phase"], status.get("conditions") or []) == ("Pending", [])


async def test_an_unschedulable_pod_and_its_job_state_the_reason(
    client: Client, namespace: str
) -> None:
    job = make_job("a", "sleep 60")
    job["spec"]["tasks"][0]["template"]["spec"]["nodeSelector"] = {"no": "such"}
    await client.create(JOBS, namespace, job)
    why = "0/1 nodes are unavailable: 1 node(s) didn't match Pod's node affinity/selector."
    assert (await _until_event(client, namespace, "Pod", "FailedScheduling"))["message"] == why
    pod = await client.get(PODS, namespace, "a-job-0") or {}
    (said,) = [c for c in pod["status"]["conditions"] if c["type"] == "PodScheduled"]
    assert (said["status"], said["reason"], said["message"]) == ("False", "Unschedulable", why)
    event = await _until_event(client, namespace, "Job", "PodGroupPending")
    assert "tasks in gang unschedulable: pod group is not ready" in event["message"]
    (condition,) = (await _group(client, namespace))["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("Unschedulable", "NotEnoughResources")


async def test_a_quota_refusal_is_an_event_and_the_job_waits(
    client: Client, namespace: str
) -> None:
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}}
    await client.create(QUOTAS, namespace, quota)
    job = make_job("a", "sleep 60")
    job["spec"]["tasks"][0]["replicas"] = 2
    await client.create(JOBS, namespace, job)
    event = await _until_event(client, namespace, "Job", "FailedCreate")
    assert event["type"] == "Warning"
    assert "exceeded quota: q, requested: pods=1, used: pods=1" in event["message"]
    assert "Error creating pods: [failed to create pod a-job-" in event["message"]
    await asyncio.sleep(2)  # a few more tries, none of which ends the job
    found = await client.get(JOBS, namespace, "a") or {}
    assert found["status"]["state"]["phase"] == "Pending"
    assert (await _events(client, namespace, "Job"))["FailedCreate"]["count"] > 1


async def test_an_unreadable_job_does_not_stop_volcano(client: Client, namespace: str) -> None:
    odd: Object = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "odd"}}
    odd["metadata"]["labels"] = {"volcano.sh/job-name": "none"}
    odd["metadata"]["annotations"] = {"volcano.sh/job-version": "x"}
    odd["spec"] = {"containers": [{"name": "main", "image": "busybox"}]}
    await client.create(PODS, namespace, odd)
    await client.create(JOBS, namespace, make_job("a", "exit 0"))
    async with asyncio.timeout(30):
        while True:
            status = (await client.get(JOBS, namespace, "a") or {}).get("status") or {}
            if status.get("state", {}).get("phase") == "Completed":
                return
            await asyncio.sleep(0.05)
