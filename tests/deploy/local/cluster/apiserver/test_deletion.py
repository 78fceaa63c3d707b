"""Tests how a DELETE of a pod proceeds, and how the pod's metadata shows it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from deploy.local.cluster.apiserver.deletion import Deletion, decide_deletion
from deploy.local.cluster.apiserver.kinds import Kind

PODS = Kind("", "v1", "Pod", "pods")
NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


def delete(pod: dict[str, Any], seconds: int | None, *, after: float = 0.0) -> Deletion:
    wish = {} if seconds is None else {"gracePeriodSeconds": seconds}
    return decide_deletion(PODS, pod, wish, NOW + timedelta(seconds=after))


def make_pod() -> dict[str, Any]:
    return {
        "metadata": {"name": "a", "uid": "u", "resourceVersion": "1"},
        "spec": {"nodeName": "n1", "terminationGracePeriodSeconds": 30},
        "status": {"phase": "Running"},
    }


def test_a_grace_period_starts_with_the_deletion_request() -> None:
    deletion = delete(make_pod(), None)
    assert not deletion.gone
    assert deletion.value["metadata"]["deletionTimestamp"] == "2026-01-01T12:00:30Z"
    assert deletion.value["metadata"]["deletionGracePeriodSeconds"] == 30


def test_a_deleted_pod_keeps_its_first_deletion_timestamp() -> None:
    by_force = delete(make_pod(), 0, after=5)
    ended = delete(delete(make_pod(), None).value, 0, after=20)
    for deletion, at in ((by_force, "12:00:05"), (ended, "12:00:00")):
        assert deletion.gone
        assert deletion.value["metadata"]["deletionTimestamp"] == f"2026-01-01T{at}Z"
        assert deletion.value["metadata"]["deletionGracePeriodSeconds"] == 0


def test_a_grace_period_can_only_be_shortened() -> None:
    asked = delete(make_pod(), 10).value
    assert delete(asked, 20, after=1).value["metadata"]["deletionGracePeriodSeconds"] == 10
    cut = delete(asked, 2, after=1).value["metadata"]
    assert (cut["deletionTimestamp"], cut["deletionGracePeriodSeconds"]) == (
        "2026-01-01T12:00:02Z", 2,
    )  # fmt: skip
