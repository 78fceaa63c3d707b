from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.jobs.spec.job_paths import problems_with
from controller.volcano.reasons.denials import findings_of
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
def test_a_webhook_message_is_mapped_to_a_job_path(message: str, path: str) -> None:
    (problem,) = problems_with(make_job(**TASKS), findings_of(WEBHOOK + message, {}))
    assert problem.path == path
    assert "webhook" not in problem.message
    assert problem.message


EVENTS = (
    "\n\n valid events are [* PodEvicted TaskCompleted PodFailed PodPending Unknown TaskFailed "
    "JobUpdated], valid actions are [AbortJob RestartJob RestartTask RestartPod];"
)
RECORDED: list[tuple[str, list[tuple[str, str]]]] = [
    ("duplicated task name worker;", [("tasks[1].name", "duplicated task name worker")]),
    ("can not submit job to root queue;", [("queue", "can not submit job to root queue")]),
    (
        "'minAvailable' is greater than 'replicas' in task: worker, job: j4; job 'minAvailable' "
        "should not be greater than total replicas in tasks;",
        [
            ("tasks[1]", "'minAvailable' is greater than 'replicas' in task: worker, job: j4"),
            (
                "replicas",
                "job 'minAvailable' should not be greater than total replicas in tasks",
            ),
        ],
    ),
    (
        "1 error occurred:\n\t* must not specify event and exitCode simultaneously" + EVENTS,
        [("policies", "must not specify event and exitCode simultaneously")],
    ),
    (
        "2 errors occurred:\n\t* 0 is not a valid error code\n\t* spec.policies: Invalid value: "
        '"Nope": invalid policy action' + EVENTS,
        [
            ("policies", "0 is not a valid error code"),
            ("policies", 'Invalid value: "Nope": invalid policy action'),
        ],
    ),
    (
        "1 error occurred:\n\t* if there's * here, no other policy should be here" + EVENTS,
        [("policies", "if there's * here, no other policy should be here")],
    ),
    (
        "the cpu request isn't an integer in spec.task[0] container[1].",
        [
            (
                "topology.numa",
                "the cpu request isn't an integer in spec.task[0] container[1]",
            )
        ],
    ),
    (
        "spec.task[1] isn't Guaranteed pod, kind=Burstable;",
        [("topology.numa", "spec.task[1] isn't Guaranteed pod, kind=Burstable")],
    ),
    (
        'spec.task[1].template.spec.containers[0].name: Invalid value: "M_": a lowercase RFC 1123 '
        "label must consist of lower case alphanumeric characters or '-', and must start and end "
        "with an alphanumeric character (e.g. 'my-name',  or '123-abc'). "
        'template.spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always".',
        [
            (
                "",
                'spec.task[1].template.spec.containers[0].name: Invalid value: "M_": a lowercase '
                "RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
                "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc')",
            ),
            (
                "",
                'spec.task[1].template.spec.restartPolicy: Unsupported value: "Sometimes": '
                'supported values: "Always"',
            ),
        ],
    ),
    (
        'spec.task[0].template.spec.containers[0].image: Invalid value: "a;b": no; duplicated task '
        "name worker;",
        [
            ("image", 'Invalid value: "a;b": no'),
            ("tasks[1].name", "duplicated task name worker"),
        ],
    ),
    (
        "json: cannot unmarshal string into Go struct field TaskSpec.spec.tasks.replicas of type "
        "int32",
        [
            (
                "tasks",
                "cannot unmarshal string into Go struct field TaskSpec.spec.tasks.replicas of type "
                "int32",
            )
        ],
    ),
    (
        "json: cannot unmarshal number into Go struct field JobSpec.spec.queue of type string",
        [
            (
                "queue",
                "cannot unmarshal number into Go struct field JobSpec.spec.queue of type string",
            )
        ],
    ),
    (
        "create pod with name a-job-0 validate failed [name part must be no more than 63 bytes];"
        "create job with name a validate failed [name part must be no more than 63 bytes]",
        [
            (
                "id",
                "create pod with name a-job-0 validate failed [name part must be no more than 63 "
                "bytes]",
            ),
            (
                "id",
                "create job with name a validate failed [name part must be no more than 63 bytes]",
            ),
        ],
    ),
    (
        "job has dependencies between tasks, but doesn't form a directed acyclic graph(DAG);",
        [
            (
                "tasks",
                "job has dependencies between tasks, but doesn't form a directed acyclic "
                "graph(DAG)",
            )
        ],
    ),
    (
        "The specified mpi master task was not found",
        [("framework", "The specified mpi master task was not found")],
    ),
    (
        'time: invalid duration "x"',
        [("", 'time: invalid duration "x"')],
    ),
]
"""What Volcano 1.15.1 said, or puts together in the same way."""


@pytest.mark.parametrize(("said", "problems"), RECORDED)
def test_a_denial_keeps_its_message(said: str, problems: list[tuple[str, str]]) -> None:
    found = problems_with(make_job(**TASKS), findings_of(WEBHOOK + said, {}))
    assert [(one.path, one.message) for one in found] == problems


def test_a_go_field_of_the_only_task_maps_to_the_job() -> None:
    said = "json: cannot unmarshal string into Go struct field TaskSpec.spec.tasks.replicas of type"
    (problem,) = problems_with(make_job(), findings_of(f"{WEBHOOK}{said} int32", {}))
    assert problem.path == "replicas"
    assert problem.message.endswith("of type int32")


@pytest.mark.parametrize(
    ("message", "path", "text"),
    [
        ('Job.batch.volcano.sh "j-1" is invalid: spec.queue: Invalid value: 1: must be text',
         "queue", "Invalid value: 1: must be text"),
        ('Job in version "v1alpha1" cannot be handled as a Job: strict decoding error: duplicate '
         'field "spec.queue"', "queue", "is given twice"),
        ('Job in version "v1alpha1" cannot be handled as a Job: json: cannot unmarshal number into '
         "Go struct field ObjectMeta.metadata.labels of type string", "labels",
         "cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string"),
        ('jobs.batch.volcano.sh "a" is forbidden: ValidatingAdmissionPolicy \'p\' with binding '
         "'b' denied request: another event, please", "", "another event, please"),
        ('admission webhook "policy.example.com" denied the request: the policy of this event',
         "", "the policy of this event"),
        ('admission webhook "policy.example.com" denied the request',
         "", 'admission webhook "policy.example.com" denied the request'),
        ("Request entity too large: limit is 3145728", "",
         "Request entity too large: limit is 3145728"),
    ],
)  # fmt: skip
def test_only_volcano_messages_are_parsed_for_paths(message: str, path: str, text: str) -> None:
    (problem,) = problems_with(make_job(**TASKS), findings_of(message, {}))
    assert (problem.path, problem.message) == (path, text)


@pytest.mark.parametrize("causes", [5, "x", [5], [{}], {"field": "spec"}, None])
def test_details_of_another_shape_are_ignored(causes: Any) -> None:
    assert findings_of("no", {"causes": causes}) == [("", "no")]


@given(st.text(max_size=300), st.sampled_from(["", WEBHOOK, 'admission webhook "x" denied: ']))
def test_every_refusal_has_a_message(text: str, prefix: str) -> None:
    found = findings_of(prefix + text, {})
    assert prefix + text == "" or all(said for _, said in found)
    assert found


def test_a_long_refusal_is_read_quickly() -> None:
    for piece in (
        '"',
        "; ",
        "spec.a",
        "spec.tasks[",
        "* ",
        "1 error occurred:\n",
        ". template.a: ",
    ):
        for prefix in ("", WEBHOOK):
            began = time.process_time()
            findings_of(prefix + piece * 100_000, {})
            assert time.process_time() - began < 5, piece


def test_each_problem_of_volcanos_webhook_is_reported_separately() -> None:
    # Volcano joins its messages like this: each ends in a semicolon, some begin with a space.
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
def test_the_webhook_name_is_omitted(message: str, path: str, text: str) -> None:
    (problem,) = problems_with(make_job(id="event", **TASKS), findings_of(message, {}))
    assert problem.path == path
    assert text in problem.message
    assert "j-event" not in problem.message


def test_every_field_named_by_the_server_is_reported() -> None:
    details = {
        "causes": [
            {"field": "spec.tasks[1].replicas", "message": "must be greater", "reason": "X"},
            {"field": "spec.networkTopology.highestTierAllowed", "reason": "FieldValueInvalid"},
            {"field": "spec.policies[2].event", "message": "unsupported"},
            {"field": "spec.tasks[0].template.spec.runtimeClassName", "message": "not found"},
            {"field": "[]", "message": "Too long: may not be more than 1048576 bytes"},
            {"field": "<nil>", "message": 'Invalid value: "null": is odd'},
            {"field": "<nil>", "message": "some validation rules were not checked because …"},
            {"message": "without a field"},
        ]
    }
    found = problems_with(make_job(**TASKS), findings_of("is invalid", details))
    assert [(one.path, one.message) for one in found] == [
        ("replicas", "must be greater"),
        ("topology.network.tier", "FieldValueInvalid"),
        ("policies[2]", "unsupported"),
        ("runtime", "not found"),
        ("", "Too long: may not be more than 1048576 bytes"),
        ("", 'Invalid value: "null": is odd'),
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
def test_a_path_of_the_volcano_job_maps_to_the_job(path: str, origin: str) -> None:
    (problem,) = problems_with(make_job(**TASKS), [(path, "is wrong")])
    assert problem.path == origin


def test_an_unmapped_path_is_reported_as_is() -> None:
    (problem,) = problems_with(make_job(), [("metadata.annotations", "too large")])
    assert (problem.path, problem.message) == ("", "too large")
    (problem,) = problems_with(make_job(), [("spec.other", "is wrong")])
    assert (problem.path, problem.message) == ("", "spec.other: is wrong")
