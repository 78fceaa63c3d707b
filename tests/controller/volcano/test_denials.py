from __future__ import annotations

from typing import Any

import pytest

from controller.jobs.origins import problems_with
from controller.volcano.denials import findings_of
from tests.controller.samples import make_job

WEBHOOK = 'admission webhook "validatejob.volcano.sh" denied the request: '
TASKS: dict[str, Any] = {"tasks": [{"name": "master"}, {"name": "worker", "resources": {"cpu": 1}}]}


@pytest.mark.parametrize(
    ("message", "path"),
    [
        ("unable to find job plugin: ray", "framework"),
        ("unable to find job queue: queues.scheduling.volcano.sh \"q\" not found", "queue"),
        ("can only submit job to queue with state `Open`, queue `q` status is `Closed`", "queue"),
        ("job 'minAvailable' should not be greater than total replicas in tasks;", "replicas"),
        ("'minAvailable' is greater than 'replicas' in task: worker, job: j1", "tasks[1]"),
        ("duplicated task name worker;", "tasks[1].name"),
        ("spec.task[1].template.spec.containers[0].image: Required value", "image"),
        ("spec.task[1].template.spec.containers[0].resources.limits.cpu: Invalid value",
         "tasks[1].resources.cpu"),
        ("duplicate event PodFailed across different policy", "policies"),
        ("something else altogether", ""),
        ("spec.task[²].template: Required value", ""),
        ("spec.task[9].template: Required value", ""),
    ],
)  # fmt: skip
def test_a_webhooks_words_lead_to_what_of_the_job_is_wrong(message: str, path: str) -> None:
    (problem,) = problems_with(make_job(**TASKS), findings_of(WEBHOOK + message, {}))
    assert problem.path == path
    assert "webhook" not in problem.message
    assert problem.message


def test_each_problem_of_volcanos_webhook_is_told_by_itself() -> None:
    # As it puts them together: each ends in a semicolon, some begin with a space.
    said = (
        "duplicated task name worker; job 'minAvailable' should not be greater than total replicas "
        'in tasks; unable to find job queue: queues.scheduling.volcano.sh "q" not found;'
    )
    found = problems_with(make_job(**TASKS), findings_of(WEBHOOK + said, {}))
    assert [one.path for one in found] == ["tasks[1].name", "replicas", "queue"]
    (whole,) = findings_of('admission webhook "a.example.com" denied the request: one; two', {})
    assert whole[1] == "one; two"


@pytest.mark.parametrize(
    ("message", "path", "text"),
    [
        ('jobs.batch.volcano.sh "j-event" is forbidden: exceeded quota: q, requested: '
         "count/jobs.batch.volcano.sh=1, used: count/jobs.batch.volcano.sh=2, limited: "
         "count/jobs.batch.volcano.sh=2", "owner", "exceeded quota: q, requested"),
        ("jobs.batch.volcano.sh \"j-event\" is forbidden: ValidatingAdmissionPolicy 'p' with "
         "binding 'b' denied request: spec.queue must be ours", "queue", "must be ours"),
        ('Job in version "v1alpha1" cannot be handled as a Job: strict decoding error: unknown '
         'field "spec.networkTopology"', "topology.network", "does not know"),
    ],
)  # fmt: skip
def test_who_says_it_is_left_out(message: str, path: str, text: str) -> None:
    (problem,) = problems_with(make_job(id="event", **TASKS), findings_of(message, {}))
    assert problem.path == path
    assert text in problem.message
    assert "j-event" not in problem.message


def test_every_field_that_a_server_names_is_told() -> None:
    details = {
        "causes": [
            {"field": "spec.tasks[1].replicas", "message": "must be greater", "reason": "X"},
            {"field": "spec.networkTopology.highestTierAllowed", "reason": "FieldValueInvalid"},
            {"field": "spec.policies[2].event", "message": "unsupported"},
            {"field": "spec.tasks[0].template.spec.runtimeClassName", "message": "not found"},
            {"message": "without a field"},
        ]
    }
    found = problems_with(make_job(**TASKS), findings_of("is invalid", details))
    assert [(one.path, one.message) for one in found] == [
        ("replicas", "must be greater"),
        ("topology.network.tier", "FieldValueInvalid"),
        ("policies[2]", "unsupported"),
        ("runtime", "not found"),
    ]


@pytest.mark.parametrize(
    ("path", "origin"),
    [
        ("metadata.name", "id"),
        ("spec.tasks[worker].name", "tasks[1].name"),
        ("spec.tasks[worker].template.spec.containers[job].resources.cpu",
         "tasks[1].resources.cpu"),
        ("spec.tasks[worker].template.spec.containers[job].resources.memory", "resources.memory"),
        ("spec.tasks[master].topologyPolicy", "topology.numa"),
        ("spec.tasks[master].template.spec.containers[job].ports[lab]", "interactive.lab"),
        ("spec.priorityClassName", "priority"),
        ("spec.minSuccess", "min_success"),
        ("spec.plugins.mpi", "framework"),
        ("spec.tasks", "tasks"),
    ],
)  # fmt: skip
def test_a_path_of_the_volcano_job_leads_to_the_jobs(path: str, origin: str) -> None:
    (problem,) = problems_with(make_job(**TASKS), [(path, "is wrong")])
    assert problem.path == origin


def test_what_nothing_of_the_job_is_behind_says_where_it_is() -> None:
    (problem,) = problems_with(make_job(), [("metadata.annotations", "too large")])
    assert (problem.path, problem.message) == ("", "too large")
    (problem,) = problems_with(make_job(), [("spec.other", "is wrong")])
    assert (problem.path, problem.message) == ("", "spec.other: is wrong")
