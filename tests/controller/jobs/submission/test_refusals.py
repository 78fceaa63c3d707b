"""Tests what a refusal says about a job: one row per refusal of an API server or webhook."""

from __future__ import annotations

from typing import Any

import pytest

from controller.jobs.submission.dry_run import lacks_dry_run, problems_in
from controller.kube.errors import error_from
from tests.controller.samples import make_job

VOLCANO = 'admission webhook "validatejob.volcano.sh" denied the request: '
SITE = 'admission webhook "policy.example.com" denied the request: '
MINE = 'jobs.batch.volcano.sh "j-j1" is forbidden: '
CLOSED = "can only submit job to queue with state `Open`, queue `q` status is `Closed`;"
NO_QUEUE = 'unable to find job queue: queues.scheduling.volcano.sh "q" not found;'
CAUSES = {"causes": [{"field": "spec.minSuccess", "message": "too many"}]}


def paths_of(status: int, message: str, details: Any = None, **fields: Any) -> list[str]:
    error = error_from(status, {"message": message, "details": details or {}})
    return [one.path for one in problems_in(error, make_job(**fields))]


@pytest.mark.parametrize(
    ("status", "message", "paths"),
    [
        # The schema, and Kubernetes' checks of any object
        (422, "is invalid", ["min_success"]),
        (400, 'strict decoding error: unknown field "spec.networkTopology"', ["topology.network"]),
        (413, "Request entity too large: limit is 3145728", [""]),
        # Webhooks return any status code.
        (400, VOLCANO + "unable to find job plugin: ray", ["framework"]),
        (403, SITE + "no images from there", [""]),
        (422, SITE + "spec.tasks[0].template.spec.containers[0].image: no", ["image"]),
        # Kubernetes' own policies
        (422, MINE + "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no", [""]),
        (403, MINE + "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no", [""]),
        (403, MINE + "exceeded quota: q, requested: count/jobs.batch.volcano.sh=1", ["owner"]),
    ],
)
def test_a_refusal_about_the_job_refuses_it(status: int, message: str, paths: list[str]) -> None:
    assert paths_of(status, message, CAUSES if message == "is invalid" else None) == paths


@pytest.mark.parametrize(
    ("status", "message"),
    [
        # The namespace or the rights in it do not exist yet. RBAC responds before any lookup.
        (404, 'namespaces "fumarole-u-ada-x" not found'),
        (404, "404 page not found"),
        (403, 'jobs.batch.volcano.sh is forbidden: User "system:serviceaccount:a:b" cannot create '
              'resource "jobs" in API group "batch.volcano.sh" in the namespace "x"'),
        (403, MINE + "unable to create new content in namespace x because it is being terminated"),
        (401, "Unauthorized"),
        # The object exists already; it may be an earlier one that is about to go.
        (409, 'jobs.batch.volcano.sh "j-j1" already exists'),
        # Faults of the API server
        (429, "too many requests"),
        (429, SITE + "later"),
        (500, 'Internal error occurred: failed calling webhook "x": failed to call webhook'),
        (503, SITE + "not now"),
        (504, "Timeout: request did not complete"),
        # A webhook that does not support dry runs
        (400, 'admission webhook "old.example.com" does not support dry run'),
    ],
)  # fmt: skip
def test_an_unrelated_error_does_not_refuse_the_job(status: int, message: str) -> None:
    assert paths_of(status, message) == []


def test_a_missing_default_queue_is_not_a_refusal() -> None:
    assert paths_of(400, VOLCANO + NO_QUEUE) == []
    assert paths_of(400, VOLCANO + NO_QUEUE, queue="q") == ["queue"]


@pytest.mark.parametrize("queue", [None, "q"])
def test_a_closed_queue_is_not_a_final_refusal(queue: str | None) -> None:
    assert paths_of(400, VOLCANO + CLOSED, queue=queue) == []


def test_a_queue_that_is_not_there_yet_hides_no_other_problem() -> None:
    said = f"duplicated task name a; {NO_QUEUE}"
    tasks = [{"name": "a"}]
    assert paths_of(400, VOLCANO + said, tasks=tasks) == ["tasks[0].name"]


def test_a_long_webhook_message_is_truncated() -> None:
    assert len(paths_of(400, VOLCANO + "no; " * 5000)) == 1
    many = "; ".join(f"no {number}" for number in range(5000))
    assert len(paths_of(400, VOLCANO + many)) == 100
    error = error_from(400, {"message": SITE + "x" * 10**6})
    ((problem),) = problems_in(error, make_job())
    assert len(problem.message) == 2000


def test_a_webhook_without_dry_run_support_is_recognised() -> None:
    said = 'admission webhook "old.example.com" does not support dry run'
    assert lacks_dry_run(error_from(400, {"message": said}))
    assert not lacks_dry_run(error_from(400, {"message": VOLCANO + "no"}))
