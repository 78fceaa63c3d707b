from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from controller.jobs.spec.accepted import lacks_secrets, public_spec, read_spec
from controller.jobs.spec.model import Job
from controller.jobs.spec.problems import JobRejected, Problem, make_path, problems_of
from tests.controller.samples import make_job

CANARY = "canary-8f31"


def problems(**fields: Any) -> dict[str, str]:
    least = {"id": "j1", "owner": {"user": "ada"}, "image": "busybox"}
    with pytest.raises(ValidationError) as caught:
        Job.model_validate(least | fields)
    return {one.path: one.message for one in problems_of(caught.value)}


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"bogus": 1}, "bogus"),
        ({"id": "J1"}, "id"),
        ({"id": "a" * 41}, "id"),
        ({"id": "-a"}, "id"),
        ({"id": "a\n"}, "id"),
        ({"id": 1}, "id"),
        ({"owner": "ada"}, "owner"),
        ({"owner": {"user": ""}}, "owner.user"),
        ({"owner": {"user": "a\x00"}}, "owner.user"),
        ({"owner": {"user": "ada", "x": 1}}, "owner.x"),
        ({"owner": {"user": "\ud800"}}, "owner.user"),
        ({"image": ""}, "image"),
        ({"image": "a b"}, "image"),
        ({"image": "-v"}, "image"),
        ({"labels": {"a b": "c"}}, 'labels["a b"]'),
        ({"labels": {"a": "c d"}}, "labels.a"),
        ({"labels": {"a": 1}}, "labels.a"),
        ({"replicas": 0}, "replicas"),
        ({"replicas": -1}, "replicas"),
        ({"replicas": True}, "replicas"),
        ({"replicas": 1.0}, "replicas"),
        ({"replicas": "1"}, "replicas"),
        ({"replicas": 10**9}, "replicas"),
        ({"resources": {"cpu": 0}}, "resources.cpu"),
        ({"resources": {"cpu": -1}}, "resources.cpu"),
        ({"resources": {"cpu": True}}, "resources.cpu"),
        ({"resources": {"cpu": 1e300}}, "resources.cpu"),
        ({"resources": {"cpu": [1]}}, "resources.cpu"),
        ({"resources": {"memory": 1024}}, "resources.memory"),
        ({"resources": {"memory": "2 Gi"}}, "resources.memory"),
        ({"resources": {"gpu": -1}}, "resources.gpu"),
        ({"resources": {"disk": "1Gi"}}, "resources.disk"),
        ({"invocation": {"command": "ls"}}, "invocation.command"),
        ({"invocation": {"command": ["a", 1]}}, "invocation.command[1]"),
        ({"invocation": {"command": ["a\x00"]}}, "invocation.command[0]"),
        ({"invocation": {"command": [{"parameter": "a", "x": 1}]}}, "invocation.command[0].x"),
        ({"invocation": {"environment": {"A B": "x"}}}, 'invocation.environment["A B"]'),
        ({"invocation": {"environment": {"A=B": "x"}}}, 'invocation.environment["A=B"]'),
        ({"parameters": {"a": 1}}, "parameters.a"),
        ({"parameters": {"a": {"type": "nope", "value": 1}}}, "parameters.a"),
        ({"parameters": {"a": {"type": "integer", "value": "1"}}}, "parameters.a.value"),
        ({"parameters": {"a": {"type": "integer", "value": True}}}, "parameters.a.value"),
        ({"parameters": {"a": {"type": "integer", "value": 2**63}}}, "parameters.a.value"),
        ({"parameters": {"a": {"type": "floating", "value": "1"}}}, "parameters.a.value"),
        ({"parameters": {"a": {"type": "boolean", "value": 1}}}, "parameters.a.value"),
        ({"parameters": {"a": {"type": "text", "value": "x", "y": 1}}}, "parameters.a.y"),
        ({"parameters": {"a": {"type": "text"}}}, "parameters.a.value"),
        ({"parameters": {"a": {"type": "secret", "value": ""}}}, "parameters.a.value"),
        ({"parameters": {"a": {"type": "enumeration", "value": "x", "options": ["y"]}}},
         "parameters.a"),
        ({"image": None}, "image"),
        ({"image": None, "tasks": [{"name": "a", "image": "x"}, {"name": "b"}]}, "image"),
        ({"tasks": [{"name": "a" * 13}]}, "tasks[0].name"),
        ({"tasks": [{"name": "1"}]}, "tasks[0].name"),
        ({"tasks": [{"name": "a", "replicas": 0}]}, "tasks[0].replicas"),
        ({"tasks": [{"name": "a", "resources": {"cpu": 0}}]}, "tasks[0].resources.cpu"),
        ({"framework": "horovod"}, "framework"),
        ({"tools": ["TensorBoard"]}, "tools[0]"),
        ({"policies": [{"action": "RestartJob"}]}, "policies[0]"),
        ({"policies": [{"action": "SyncJob", "event": "*"}]}, "policies[0].action"),
        ({"policies": [{"action": "RestartJob", "event": "JobUpdated"}]}, "policies[0].event"),
        ({"policies": [{"action": "RestartJob", "event": "*", "exit_code": 1}]}, "policies[0]"),
        ({"policies": [{"action": "RestartJob", "exit_code": 0}]}, "policies[0].exit_code"),
        ({"max_retry": -1}, "max_retry"),
        ({"min_success": 0}, "min_success"),
        ({"topology": {"numa": "all"}}, "topology.numa"),
        ({"topology": {"network": {"mode": "hard", "tier": 0}}}, "topology.network.tier"),
        ({"network": {"ingress": 100}}, "network.ingress"),
        ({"network": {"egress": "1"}}, "network.egress"),
        ({"output": "work"}, "output"),
        ({"output": "/home/../etc"}, "output"),
        ({"parameters": {"a": {"type": "file", "path": "/home//x"}}}, "parameters.a.path"),
        ({"parameters": {"a": {"type": "file", "path": ["/h/x", "/h/."]}}},
         "parameters.a.path[1]"),
        ({"parameters": {"a": {"type": "text", "value": ["x", 1]}}}, "parameters.a.value[1]"),
        ({"parameters": {"a": {"type": "peer", "job": "J", "hostname": "x"}}}, "parameters.a.job"),
        ({"parameters": {"a": {"type": "licence", "address": "a b", "port": 1}}},
         "parameters.a.address"),
        ({"parameters": {"a": {"type": "licence", "address": ":::", "port": 1}}},
         "parameters.a.address"),
        ({"interactive": {"A": {"kind": "web", "port": 1}}}, "interactive.A"),
        ({"interactive": {"a": {"kind": "tcp", "port": 1}}}, "interactive.a.kind"),
        ({"interactive": {"a": {"kind": "web", "port": 0}}}, "interactive.a.port"),
        ({"interactive": {"a": {"kind": "web", "port": 65536}}}, "interactive.a.port"),
        ({"interactive": {"a": {"kind": "web", "port": 1, "base_path": "x"}}},
         "interactive.a.base_path"),
        ({"interactive": {"a": {"kind": "web", "port": 1, "base_path": "/a?b"}}},
         "interactive.a.base_path"),
        ({"interactive": {"a": {"kind": "vnc", "port": 1, "base_path": "/a"}}}, "interactive.a"),
        ({"interactive": {"a": {"kind": "web", "port": 1, "password": {"parameter": "p"}}}},
         "interactive.a"),
    ],
)  # fmt: skip
def test_an_error_is_named_by_its_path(fields: dict[str, Any], path: str) -> None:
    assert list(problems(**fields)) == [path]


def test_all_problems_are_reported_together() -> None:
    found = problems(replicas=-1, bogus=1, resources={"cpu": "x", "gpu": -1})
    assert set(found) == {"replicas", "bogus", "resources.cpu", "resources.gpu"}
    assert found["bogus"] == "unknown field"


def test_a_wrong_type_is_named_as_json_names_it() -> None:
    found = problems(owner=1, tasks={}, labels=[], interactive={"lab": []})
    assert found == {
        "owner": "should be an object",
        "tasks": "should be an array",
        "labels": "should be an object",
        "interactive.lab": "should be an object",
    }


def test_a_problem_never_quotes_its_input() -> None:
    parameters = {"p": {"type": "secret", "value": [CANARY]}, "q": {"type": CANARY}}
    assert CANARY not in str(problems(parameters=parameters))


@pytest.mark.parametrize("value", [None, [], 1, "job", {}])
def test_a_malformed_job_is_refused(value: Any) -> None:
    with pytest.raises(ValidationError):
        Job.model_validate(value)


def test_a_secret_appears_in_no_repr_and_no_spec() -> None:
    job = make_job(parameters={"p": {"type": "secret", "value": CANARY}})
    assert CANARY not in repr(job)
    assert CANARY not in json.dumps(public_spec(job))
    assert job.secrets() == {"p": CANARY}


def test_equivalent_requests_have_the_same_spec() -> None:
    one = make_job(resources={"cpu": 0.5, "memory": "2Gi"}, replicas=1)
    other = make_job(resources={"memory": "2048Mi", "cpu": "500m"}, labels={}, name=None)
    assert public_spec(one) == public_spec(other)


def test_a_licence_key_is_removed_from_the_spec_and_marked() -> None:
    licence = {"type": "licence", "address": "10.0.0.5", "port": 27000}
    job = make_job(parameters={"with": {**licence, "key": CANARY}, "without": licence})
    spec = public_spec(job)
    assert CANARY not in json.dumps(spec)
    assert CANARY not in repr(job)
    assert lacks_secrets(spec, {})
    assert read_spec(spec, {"with": CANARY}) == job
    assert not lacks_secrets(public_spec(make_job(parameters={"without": licence})), {})


def test_a_job_without_its_secrets_is_readable_and_marked() -> None:
    job = make_job(parameters={"p": {"type": "secret", "value": CANARY}})
    spec = public_spec(job)
    assert lacks_secrets(spec, {})
    assert not lacks_secrets(spec, {"p": CANARY})
    assert read_spec(spec, {}).parameters.keys() == {"p"}
    assert read_spec(spec, {"p": CANARY}) == job


def test_a_modified_spec_is_refused() -> None:
    with pytest.raises(JobRejected):
        read_spec({"id": "j1", "parameters": {"p": 1}}, {})


names = st.from_regex(r"[A-Za-z_][-A-Za-z0-9_]{0,10}", fullmatch=True)
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
parameters = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "value": texts}),
    st.fixed_dictionaries({"type": st.just("integer"), "value": st.integers(-(2**63), 2**63 - 1)}),
    st.fixed_dictionaries(
        {
            "type": st.just("floating"),
            "value": st.floats(allow_nan=False, allow_infinity=False),
        }
    ),
    st.fixed_dictionaries({"type": st.just("boolean"), "value": st.booleans()}),
    texts.map(lambda text: {"type": "enumeration", "value": text, "options": [text]}),
    st.fixed_dictionaries({"type": st.just("secret"), "value": texts.filter(bool)}),
    st.fixed_dictionaries({"type": st.just("text"), "value": st.lists(texts, max_size=3)}),
    st.fixed_dictionaries({"type": st.just("integer"), "value": st.lists(st.integers(-9, 9))}),
    st.fixed_dictionaries(
        {
            "type": st.just("licence"),
            "address": st.sampled_from(["10.0.0.5", "fe80::1", "licences.example.com"]),
            "port": st.integers(1, 65535),
            "key": st.none() | texts.filter(bool),
        }
    ),
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["file", "directory"]),
            "path": st.lists(st.sampled_from(["/a/b", "/a/b c/", "/x"]), max_size=3),
            "read_only": st.booleans(),
        }
    ),
    st.just({"type": "peer", "job": "j2", "hostname": "lab"}),
)


@given(st.dictionaries(names, parameters, max_size=4), st.lists(texts, max_size=4))
def test_a_job_round_trips_through_its_stored_spec(
    given_parameters: dict[str, Any], command: list[str]
) -> None:
    job = make_job(parameters=given_parameters, invocation={"command": command})
    kept = json.loads(json.dumps(public_spec(job)))
    again = read_spec(kept, job.secrets())
    assert again == job
    assert public_spec(again) == kept


def test_ranks_are_numbered_over_the_replicas_of_a_task() -> None:
    job = make_job(replicas=3)
    assert [job.rank_of("job", index) for index in (-1, 0, 2, 3)] == [None, 0, 2, None]
    assert job.rank_of("other", 0) is None
    assert [job.task_of(rank) for rank in (-1, 0, 2, 3)] == [None, "job", "job", None]


def test_without_tasks_the_job_itself_is_the_only_one() -> None:
    (task,) = make_job(replicas=3, resources={"cpu": 2}).effective_tasks
    assert (task.name, task.first, task.replicas, task.min_available) == ("job", 0, 3, 3)
    assert task.at("image") == "image"


def test_a_task_inherits_omitted_fields_from_the_job() -> None:
    job = make_job(
        image="all",
        resources={"cpu": 2, "memory": "1Gi"},
        replicas=2,
        tasks=[{"name": "a"}, {"name": "b", "image": "own", "replicas": 1,
                               "resources": {"memory": "3Gi"}}],
    )  # fmt: skip
    a, b = job.effective_tasks
    assert (a.image, a.replicas, str(a.resources.cpu), str(a.resources.memory)) == (
        "all", 2, "2", "1Gi",
    )  # fmt: skip
    assert (b.image, b.replicas, str(b.resources.cpu), str(b.resources.memory)) == (
        "own", 1, "2", "3Gi",
    )  # fmt: skip
    assert b.at("image") == "tasks[1].image"


def test_ranks_are_numbered_over_all_tasks_in_order() -> None:
    job = make_job(tasks=[{"name": "master"}, {"name": "worker", "replicas": 2}])
    assert job.ranks == 3
    assert [job.rank_of("worker", index) for index in range(3)] == [1, 2, None]
    assert [job.task_of(rank) for rank in range(4)] == ["master", "worker", "worker", None]


def test_a_job_whose_tasks_all_have_an_image_needs_none() -> None:
    job = make_job(image=None, tasks=[{"name": "a", "image": "x"}])
    assert job.effective_tasks[0].image == "x"


def test_each_path_has_one_canonical_name() -> None:
    one, other = make_job(output="/home/ada/"), make_job(output="/home/ada")
    assert one == other


def test_paths_quote_what_is_no_identifier() -> None:
    assert make_path(["items", 0, "labels", "a.b", "c-d"]) == 'items[0].labels["a.b"].c-d'
    assert Problem("a", "m").under("items[1]").path == "items[1].a"
    assert Problem("", "m").under("items[1]").path == "items[1]"
    assert Problem("[2]", "m").under("items").path == "items[2]"
