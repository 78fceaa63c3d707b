"""Tests the reported reasons of waiting, with a controller on the embedded cluster with lags.

The embedded scheduler emits no events. An administrator creates those that a real cluster has.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio

from controller.kube.client import Kube
from controller.kube.errors import NotFound
from controller.kube.kinds import EVENTS, POD_GROUPS, QUEUES, RESOURCE_QUOTAS, VCJOBS, Kind
from controller.volcano.names import volcano_job_name
from deploy.local.cluster import EmbeddedCluster
from deploy.local.cluster.lags import chosen_lags
from deploy.local.cluster.volcano.pods import make_group
from tests.controller.lag_seeds import LAG_SEEDS
from tests.controller.running import Controller, eventually
from tests.controller.volcano.reasons.test_waiting import QUOTA, created

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

HUGE = {"cpu": 900, "memory": "64Mi"}
QUEUE = "waits"
WEBHOOKS = tuple(
    Kind("admissionregistration.k8s.io/v1", f"{name.lower()}s", name, namespaced=False)
    for name in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=LAG_SEEDS)
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(seed=request.param, lags=chosen_lags(request.param)) as one:
        yield one


async def volcano_job(admin: Kube, job: str) -> dict[str, Any]:
    found: dict[str, Any] = {}

    async def is_there() -> bool:
        try:
            found.update(await admin.get(VCJOBS, volcano_job_name(job), "jobs"))
        except NotFound:
            return False
        return True

    await eventually(is_there, what=f"no VolcanoJob of {job}")
    return found


def time_in(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


async def tell(admin: Kube, job: dict[str, Any], reason: str, message: str) -> str:
    """Create an event about the VolcanoJob, as Volcano's controller does."""
    metadata = job["metadata"]
    about = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }
    name = f"{metadata['name']}.{reason.lower()}"
    body = {"metadata": {"name": name}, "involvedObject": about, "reason": reason}
    at = time_in(0.0)
    times = {"firstTimestamp": at, "lastTimestamp": at}
    more = {"message": message, "type": "Warning", "count": 1, "eventTime": None, **times}
    await admin.create(EVENTS, body | more, metadata["namespace"])
    return name


async def says(controller: Controller, job: str, reason: str, text: str) -> None:
    async def does() -> bool:
        shown = await controller.call("GET", f"/v1/jobs/{job}")
        return shown["reason"] == reason and text in (shown["message"] or "")

    await eventually(does, seconds=60, what=f"{job} does not say {reason}: {text}")


async def test_a_missing_queue_is_reported_at_submit_also_for_an_owners_first_job(
    controller: Controller,
) -> None:
    job = {"id": "noqueue", "owner": {"user": "ada"}, "image": "busybox", "queue": "nobodys"}
    said = await controller.call("POST", "/v1/jobs", {"items": [job]}, expect=422)
    (problem,) = said["details"]["problems"]
    assert problem["path"] == "items[0].queue"
    assert "nobodys" in problem["message"]


async def test_refused_pods_are_the_waiting_reason_after_their_events_expired(
    controller: Controller, admin: Kube
) -> None:
    await controller.submit("quota", resources=HUGE)
    job = await volcano_job(admin, "quota")
    event = await tell(admin, job, "FailedCreate", created(QUOTA))
    text = "exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1"
    await says(controller, "quota", "forbidden", text)
    await admin.delete(EVENTS, event, "jobs")
    await controller.kill()
    await controller.start()
    await says(controller, "quota", "forbidden", text)
    history = await controller.call("GET", "/v1/jobs/quota/history")
    updates = [one["message"] for one in history["updates"]]
    assert sum(text in (message or "") for message in updates) == 1, updates


async def test_a_refusal_from_before_a_restart_is_not_the_waiting_reason(
    controller: Controller, admin: Kube
) -> None:
    await controller.submit("over", resources=HUGE)
    job = await volcano_job(admin, "over")
    await tell(admin, job, "FailedCreate", created(QUOTA))
    await says(controller, "over", "forbidden", "exceeded quota: q")
    status = {"state": {"lastTransitionTime": time_in(60.0)}}
    name = job["metadata"]["name"]
    await admin.merge(VCJOBS, name, {"status": status}, "jobs", subresource="status")
    await says(controller, "over", "unschedulable", "no node could take it now")


async def test_a_missing_pod_group_is_the_waiting_reason_until_created(
    controller: Controller, admin: Kube, cluster: EmbeddedCluster
) -> None:
    await controller.submit("early")
    await controller.until("early", "RUNNING")  # its namespace exists by then
    spec = {"hard": {"count/podgroups.scheduling.volcano.sh": "0"}}
    await admin.create(RESOURCE_QUOTAS, {"metadata": {"name": "q"}, "spec": spec}, "jobs")
    await controller.submit("late")
    job = await volcano_job(admin, "late")
    await cluster.kill_program("volcano")
    try:
        await admin.delete(RESOURCE_QUOTAS, "q", "jobs")
        refused = 'podgroups.scheduling.volcano.sh "j-late" is forbidden: exceeded quota: q'
        await tell(admin, job, "PodGroupError", f"Failed to create PodGroup, err: {refused}")
        await says(controller, "late", "forbidden", "exceeded quota: q")
        # As Volcano's next try does. The event stays for an hour.
        await admin.create(POD_GROUPS, make_group(job), "jobs")
        await says(controller, "late", "queued", "waiting in the queue")
    finally:
        await cluster.start_program("volcano")
    await controller.until("late", "RUNNING")


async def test_an_unscheduled_pod_group_states_the_reason(controller: Controller) -> None:
    await controller.submit("group", resources=HUGE)

    async def is_reported() -> bool:
        shown = await controller.call("GET", "/v1/jobs/group")
        return shown["reason"] in ("queued", "unschedulable") and shown["message"] not in (
            None,
            "waiting in the queue",
        )

    await eventually(is_reported, seconds=60, what="it only waits in the queue")


async def test_a_removed_queue_is_the_waiting_reason(controller: Controller, admin: Kube) -> None:
    await admin.create(QUEUES, {"metadata": {"name": QUEUE}, "spec": {"weight": 1}})

    async def is_open() -> bool:
        found = await admin.get(QUEUES, QUEUE)
        return (found.get("status") or {}).get("state") == "Open"

    await eventually(is_open, what="the queue does not open")
    await controller.submit("lone", resources=HUGE, queue=QUEUE)
    await volcano_job(admin, "lone")
    await admin.delete(QUEUES, QUEUE)
    await says(controller, "lone", "queued", f"there is no queue {QUEUE}")


async def test_a_stopped_volcano_is_the_waiting_reason(
    controller: Controller, admin: Kube, cluster: EmbeddedCluster
) -> None:
    await cluster.kill_program("volcano")
    try:
        # Otherwise Volcano's webhooks, which are away, would block the creation of the VolcanoJob.
        for kind in WEBHOOKS:
            for one in await admin.list(kind):
                await admin.delete(kind, one["metadata"]["name"])
        await controller.submit("untaken")
        await says(controller, "untaken", "queued", "Volcano has not taken it up yet")
    finally:
        await cluster.start_program("volcano")
    await controller.until("untaken", "RUNNING")
