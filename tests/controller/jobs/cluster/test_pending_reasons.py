"""Tests how many API server calls it costs to find out why a job waits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import web

from controller.jobs.cluster.pending_reasons import PendingReasons
from controller.store.jobs.job_rows import JobRecord
from controller.volcano.reasons.waiting import NOT_TAKEN_UP, QUEUED
from tests.controller.kube.api_server import Script, serving
from tests.controller.samples import UID, make_observed, make_record

GROUP = {"metadata": {"name": f"j-j1-{UID}", "uid": "group-1"}, "status": {"phase": "Pending"}}
REFUSED = {
    "metadata": {"name": "j-j1.1"},
    "reason": "PVCError",
    "message": "Failed to create PVC, err: exceeded quota",
    "lastTimestamp": "2026-11-22T10:00:00Z",
}


class Cluster:
    """Serves reads by the last part of their path, and records all but those of nodes."""

    def __init__(self, objects: Mapping[str, Any]) -> None:
        self._objects = objects
        self.reads: list[str] = []
        self.script = Script(self._answer)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        what = request.path.split("/")[-1]
        if what == "events":
            what = "of " + request.query["fieldSelector"].partition("=")[2]
        if what != "nodes":
            self.reads.append(what)
        if (found := self._objects.get(what)) is not None:
            return web.json_response(found)
        if what.startswith("of ") or what == "nodes":
            return web.json_response({"items": [], "metadata": {"resourceVersion": "1"}})
        gone = {"kind": "Status", "code": 404, "reason": "NotFound", "details": {"name": "x"}}
        return web.json_response(gone, status=404)


async def asked(cluster: Cluster, tmp_path: Path, *, record: JobRecord, looks: int) -> Any:
    """Return the explanation of a VolcanoJob without a phase, after *looks* rounds."""
    job, now = make_observed(""), 0.0

    class Informer:
        jobs = (job,)

    async with serving(cluster.script, tmp_path) as kube:
        reasons = PendingReasons(
            cast("Any", None),
            kube=kube,
            informer=cast("Any", Informer()),
            changed=lambda _: None,
            clock=lambda: now,
            failed=lambda _: None,
        )
        for _ in range(looks):
            reasons._due()
            now += 1000
        return await reasons.read_reason(job, record, [], ranks=1)


async def test_a_pending_reason_costs_at_most_five_calls(tmp_path: Path) -> None:
    cluster = Cluster(
        {
            f"of {UID}": {"items": [REFUSED], "metadata": {"resourceVersion": "1"}},
            f"j-j1-{UID}": GROUP,
            "q": {"metadata": {"name": "q"}, "status": {"state": "Open"}},
            "j-j1": {"metadata": {"name": "j-j1"}, "spec": {}},
        }
    )
    record = make_record(uid=UID, queue="q")
    assert await asked(cluster, tmp_path, record=record, looks=5) == QUEUED
    assert cluster.reads == [f"of {UID}", f"j-j1-{UID}", "q", "j-j1", "of group-1"]


async def test_a_job_without_status_and_pod_group_was_not_picked_up(tmp_path: Path) -> None:
    cluster = Cluster({})
    record = make_record(uid=UID)
    assert await asked(cluster, tmp_path, record=record, looks=1) is None
    assert await asked(cluster, tmp_path, record=record, looks=5) == NOT_TAKEN_UP


@pytest.mark.parametrize(("has_pods", "due"), [(False, 1), (True, 0)])
def test_a_running_job_is_asked_about_only_without_pods(has_pods: bool, due: int) -> None:
    now = 0.0

    class Pods:
        def has_job(self, _job_id: str) -> bool:
            return has_pods

    class Informer:
        jobs = (make_observed("Running"), make_observed("Completed"))
        pods = Pods()

    reasons = PendingReasons(
        cast("Any", None),
        kube=cast("Any", None),
        informer=cast("Any", Informer()),
        changed=lambda _: None,
        clock=lambda: now,
        failed=lambda _: None,
    )
    assert reasons._due() == []
    now += 1000
    assert len(reasons._due()) == due
