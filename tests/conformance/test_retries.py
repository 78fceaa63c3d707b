"""Tests Volcano's retry arithmetic: how often a job starts before it fails for good.

- A job whose ``maxRetry`` is N starts N times. Each restart raises ``retryCount``, whatever caused
  it and whatever it restarts, and the N-th ends the job as Failed.
- An explicit 0 becomes 3.
- An eviction counts only if a policy answers it. Without a policy, the pod is made again, or stays
  failed, and nothing is counted.

All jobs of a table run at once, so that a table takes as long as its longest row.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest
from kubernetes_asyncio.client.exceptions import ApiException

from tests.conformance.calls import Kube, Object, eventually, make_job

pytestmark = pytest.mark.usefixtures("kubelet")

_RESTARTS: Final = ("RestartJob", "RestartTask", "RestartPod")
_SECONDS: Final = 90.0
_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class Row:
    """A job's spec, and its expected end."""

    name: str
    max_retry: int
    policies: Sequence[Object]
    script: str
    phase: str
    retries: int
    """The job's ``retryCount`` at its end."""

    starts: int
    """How often its pod was started."""


def _failing(policy: Object, max_retry: int, starts: int) -> Row:
    action = policy["action"].lower()
    word = "code" if "exitCode" in policy else "event"
    name = f"{action}-{word}-{max_retry}"
    return Row(name, max_retry, [policy], "exit 7", "Failed", starts, starts)


FAILURES: Final = [
    _failing({**answered, "action": action}, max_retry, starts)
    for action in _RESTARTS
    for answered in ({"event": "PodFailed"}, {"exitCode": 7})
    for max_retry, starts in ((0, 3), (1, 1), (2, 2), (3, 3))
]
_ABORT_ON_7: Final[list[Object]] = [
    {"exitCode": 7, "action": "AbortJob"},
    {"event": "PodFailed", "action": "RestartJob"},
]


def _policy(action: str, **answered: Any) -> list[Object]:
    return [{**answered, "action": action}]


OTHERS: Final = [
    Row("no-policy", 3, [], "exit 7", "Failed", 0, 1),
    Row("other-code", 3, _policy("RestartJob", exitCode=8), "exit 7", "Failed", 0, 1),
    Row("other-event", 3, _policy("RestartJob", event="PodEvicted"), "exit 7", "Failed", 0, 1),
    Row("first-match", 3, _ABORT_ON_7, "exit 7", "Aborted", 0, 1),
    Row("second-match", 2, _ABORT_ON_7, "exit 9", "Failed", 2, 2),
    Row("any", 2, _policy("RestartJob", event="*"), "exit 7", "Failed", 2, 2),
    Row("complete", 3, _policy("CompleteJob", event="PodFailed"), "exit 7", "Completed", 0, 1),
    Row("terminate", 3, _policy("TerminateJob", event="PodFailed"), "exit 7", "Terminated", 0, 1),
]


async def _submit(kube: Kube, namespace: str, row: Row, *, at_task: bool = False) -> None:
    job = make_job(row.name, script=row.script, maxRetry=row.max_retry)
    (job["spec"]["tasks"][0] if at_task else job["spec"])["policies"] = list(row.policies)
    await kube.create_job(namespace, job)


async def _end(kube: Kube, namespace: str, row: Row) -> tuple[str, int]:
    """Return the job's last phase and its retries."""
    ends = ("Failed", "Completed", "Aborted", "Terminated")

    async def ended() -> Any:
        status = (await kube.job(namespace, row.name)).get("status") or {}
        return status if status.get("state", {}).get("phase") in ends else None

    status = await eventually(ended, seconds=_SECONDS, every=0.5)
    return status["state"]["phase"], status.get("retryCount", 0)


async def _starts(kube: Kube, namespace: str, wanted: Mapping[str, int]) -> dict[str, int]:
    """Return how often each job's pod was started, by the kubelet's Events.

    The kubelet writes Events in the background, so the function waits for *wanted*.
    """
    path, query = f"/api/v1/namespaces/{namespace}/events", {"fieldSelector": "reason=Started"}
    found: dict[str, set[str]] = {}

    async def enough() -> bool:
        _, events = await kube.call("GET", path, query=query)
        for event in events["items"]:
            job = event["involvedObject"]["name"].removesuffix("-job-0")
            found.setdefault(job, set()).add(event["involvedObject"]["uid"])
        return all(len(found.get(name, ())) >= number for name, number in wanted.items())

    with contextlib.suppress(TimeoutError):
        await eventually(enough, seconds=30, every=0.5)
    return {name: len(found.get(name, ())) for name in wanted}


async def _run_table(
    kube: Kube, namespace: str, rows: Sequence[Row], *, at_task: bool = False
) -> None:
    for _ in range(_TRIES):
        seen = await _outcomes(kube, namespace, rows, at_task=at_task)
        wanted = {row.name: (row.phase, row.retries, row.starts) for row in rows}
        # A delayed SyncJob may see the failed pod before the policies are evaluated (on a real
        # Volcano
        # with a backlog, or on a busy machine). Then the job is Failed with fewer retries, which is
        # not
        # what this case tests, so the case is tried again.
        lost = [row for row in rows if _is_lost(seen[row.name], row)]
        assert seen | {row.name: wanted[row.name] for row in lost} == wanted
        if not lost:
            return
        rows = [replace(row, name=f"{row.name}-again") for row in lost]
    pytest.fail(f"in {_TRIES} tries Volcano asked no policy of {[row.name for row in rows]}")


def _is_lost(seen: tuple[str, int, int], row: Row) -> bool:
    phase, retries, _ = seen
    decided = row.retries > 0 or row.phase != "Failed"
    return bool(row.policies) and decided and phase == "Failed" and retries < max(row.retries, 1)


async def _outcomes(
    kube: Kube, namespace: str, rows: Sequence[Row], *, at_task: bool
) -> dict[str, tuple[str, int, int]]:
    for row in rows:
        await _submit(kube, namespace, row, at_task=at_task)
    ends = await asyncio.gather(*(_end(kube, namespace, row) for row in rows))
    starts = await _starts(kube, namespace, {row.name: row.starts for row in rows})
    return {row.name: (*end, starts[row.name]) for row, end in zip(rows, ends, strict=True)}


async def test_a_job_of_max_retry_n_is_started_n_times(kube: Kube, namespace: str) -> None:
    await _run_table(kube, namespace, FAILURES[1::5])


@pytest.mark.long
async def test_max_retry_counts_every_action_and_policy(kube: Kube, namespace: str) -> None:
    await _run_table(kube, namespace, FAILURES)


async def test_a_policy_of_the_task_counts_the_jobs_retries(kube: Kube, namespace: str) -> None:
    await _run_table(kube, namespace, FAILURES[::3], at_task=True)


async def test_the_first_policy_that_matches_decides(kube: Kube, namespace: str) -> None:
    await _run_table(kube, namespace, OTHERS)


async def test_the_tasks_policies_come_before_the_jobs(kube: Kube, namespace: str) -> None:
    job = make_job("a", script="exit 7")
    job["spec"]["policies"] = [{"event": "PodFailed", "action": "RestartJob"}]
    job["spec"]["tasks"][0]["policies"] = [{"event": "PodFailed", "action": "AbortJob"}]
    await kube.create_job(namespace, job)
    row = Row("a", 3, (), "", "Aborted", 0, 1)
    assert await _end(kube, namespace, row) == ("Aborted", 0)


async def _pod_of(kube: Kube, namespace: str, name: str, version: str) -> Any:
    """Return a pod that was made for that version of the job and is not being deleted."""
    pods = await kube.core.list_namespaced_pod(
        namespace, label_selector=f"volcano.sh/job-name={name}"
    )
    for pod in pods.items:
        made_for = (pod.metadata.annotations or {}).get("volcano.sh/job-version")
        if made_for == version and not pod.metadata.deletion_timestamp:
            return pod
    return None


async def _evict_until_it_ends(kube: Kube, namespace: str, name: str) -> tuple[str, int]:
    """Delete the job's pod whenever it runs; return the last phase and the number of deletions.

    One deletion for each version of the job: Volcano may remake the pod before it handles the
    eviction, and it ignores evictions of pods of an older version.
    """
    evicted: set[str] = set()

    async def next_state() -> Any:
        status = (await kube.job(namespace, name)).get("status") or {}
        phase = status.get("state", {}).get("phase")
        if phase == "Failed":
            return phase, None, ""
        version = str(status.get("version", 0))
        if phase != "Running" or version in evicted:
            return None
        pod = await _pod_of(kube, namespace, name, version)
        return None if pod is None else (phase, pod, version)

    while True:
        phase, pod, version = await eventually(next_state, seconds=_SECONDS, every=0.2)
        if pod is None:
            return phase, len(evicted)
        wish = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.metadata.uid}}
        try:
            await kube.core.delete_namespaced_pod(pod.metadata.name, namespace, body=wish)
        except ApiException as error:
            if error.status not in (404, 409):  # the pod is gone, or another one has its name
                raise
        else:
            evicted.add(version)


async def test_an_eviction_handled_by_a_policy_uses_a_retry(kube: Kube, namespace: str) -> None:
    policy = {"event": "PodEvicted", "action": "RestartJob"}
    limits = (1, 2, 3)
    for limit in limits:
        job = make_job(f"evicted-{limit}", script="sleep 300", maxRetry=limit, policies=[policy])
        await kube.create_job(namespace, job)
    ends = await asyncio.gather(
        *(_evict_until_it_ends(kube, namespace, f"evicted-{limit}") for limit in limits)
    )
    assert ends == [("Failed", limit) for limit in limits]
