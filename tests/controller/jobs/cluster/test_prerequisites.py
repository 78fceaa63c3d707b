"""Tests which missing prerequisites the controller reads from the API server's errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.jobs.cluster.prerequisites import Prerequisites
from tests.controller.jobs.cluster.test_job_objects import NO_KIND, no_group
from tests.controller.kube.api_server import Answer, Script, says, serving

NO_QUEUE = says({"kind": "Status", "reason": "NotFound", "code": 404, "details": {"name": "q"},
                 "message": 'queues.scheduling.volcano.sh "q" not found'}, 404)  # fmt: skip


@pytest.mark.parametrize(
    ("response", "problem"),
    [
        (NO_QUEUE, "there is no queue q"),
        (NO_KIND, "the cluster does not serve Volcano's queues now"),
        (no_group, "the cluster does not serve Volcano's queues now"),
        (says({"metadata": {"name": "q"}, "status": {"state": "Closed"}}),
         "the queue q is not open"),
        (says({"metadata": {"name": "q"}, "status": None}), "the queue q is not open"),
        (says({"metadata": {"name": "q"}, "status": {"state": "Open"}}), None),
    ],
)  # fmt: skip
async def test_an_unusable_queue_is_distinguished(
    response: Answer, problem: str | None, tmp_path: Path
) -> None:
    place = says({"metadata": {"name": "jobs"}})
    async with serving(Script(place, place, response), tmp_path) as kube:
        prerequisites = Prerequisites(kube, instance="test", clock=lambda: 0.0)
        assert await prerequisites.why_not_ready("jobs", "q") == problem
