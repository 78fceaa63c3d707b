from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.plugins import parameter
from controller.volcano.manifest import escape
from tests.controller.plugins.plans import container_of, plan_of, problems_of
from tests.controller.volcano.test_manifest import expand

ALL: dict[str, Any] = {
    "text": {"type": "text", "value": "a b"},
    "whole": {"type": "integer", "value": -3},
    "real": {"type": "floating", "value": 0.1},
    "round": {"type": "floating", "value": 1},
    "yes": {"type": "boolean", "value": True},
    "one": {"type": "enumeration", "value": "x", "options": ["x", "y"]},
}


async def test_each_word_is_one_argument() -> None:
    command = ["run", "it; rm -rf /", "", {"parameter": "text", "prefix": "--text="}]
    container = await container_of(parameters=ALL, invocation={"command": command})
    assert container["command"] == ["run", "it; rm -rf /", "", "--text=a b"]
    assert "args" not in container


@pytest.mark.parametrize(
    ("name", "written"),
    [("text", "a b"), ("whole", "-3"), ("real", "0.1"), ("round", "1.0"), ("yes", "true"),
     ("one", "x")],
)  # fmt: skip
async def test_values_are_formatted_as_arguments(name: str, written: str) -> None:
    invocation = {"command": ["x"], "environment": {"V": {"parameter": name}}}
    container = await container_of(parameters=ALL, invocation=invocation)
    assert container["env"] == [{"name": "V", "value": written}]


async def test_without_a_command_the_images_own_program_runs() -> None:
    assert "command" not in await container_of()


SPECIAL = st.text(st.sampled_from("$()A{}'\"\\ \n"), min_size=1, max_size=12)


@given(SPECIAL, SPECIAL, SPECIAL)
async def test_values_reach_the_program_unchanged(word: str, value: str, prefix: str) -> None:
    secret = "s3cret $(A) $$"
    container = await container_of(
        parameters={
            "t": {"type": "text", "value": value},
            "s": {"type": "secret", "value": secret},
        },
        invocation={
            "command": [
                "x",
                word,
                {"parameter": "t", "prefix": prefix},
                {"parameter": "s", "prefix": prefix},
            ],
            "environment": {
                "A": word,
                "B": {"parameter": "t"},
                "C": {"parameter": "s"},
                "D": {"parameter": "s", "prefix": prefix},
            },
        },
    )
    environment: dict[str, str] = {}
    for variable in container["env"]:
        given_value = variable.get("value")
        # As the kubelet does: in order, earlier variables are expanded, secrets are taken
        # literally.
        environment[variable["name"]] = (
            secret if given_value is None else expand(given_value, environment)
        )
    argv = [expand(one, environment) for one in container["command"]]
    assert argv == ["x", word, prefix + value, prefix + secret]
    assert [environment[name] for name in "ABCD"] == [word, value, secret, prefix + secret]


async def test_a_secret_is_in_its_companion_and_nowhere_else() -> None:
    plan = await plan_of(
        parameters={"to-ken": {"type": "secret", "value": "canary"}},
        invocation={
            "command": ["x", {"parameter": "to-ken"}],
            "environment": {"T": {"parameter": "to-ken"}},
        },
    )
    (companion,) = [one for one in plan.companions if one.kind == "Secret"]
    assert companion.when == "before"
    assert base64.b64decode(companion.manifest["data"]["to-ken"]) == b"canary"
    assert "canary" not in json.dumps(plan.volcano_job.manifest())
    assert "." in companion.name, "no job's id makes this name"


async def test_secrets_that_no_secret_can_hold_are_refused_at_once() -> None:
    # A real API server reports this for the Secret alone, long after the job was accepted: "data:
    # Too long: may not be more than 1048576 bytes". It counts the values, not their base64.
    def secrets(count: int, **last: Any) -> dict[str, Any]:
        full = {"type": "secret", "value": "é" * 16384}
        return {f"s{number}": full for number in range(count)} | last

    assert (await plan_of(parameters=secrets(32))).companions
    one = {"type": "secret", "value": "x"}
    assert list(await problems_of(parameters=secrets(32, more=one))) == ["parameters"]
    licence = {"type": "licence", "address": "10.0.0.5", "port": 1, "key": "k"}
    assert list(await problems_of(parameters=secrets(32, more=licence))) == ["parameters"]


async def test_without_a_secret_there_is_no_companion_for_one() -> None:
    plan = await plan_of(parameters=ALL)
    assert "Secret" not in [one.kind for one in plan.companions]


async def test_parameters_with_similar_names_do_not_share_a_variable() -> None:
    names = ["a-b", "a_b", "a_Hb", "a__b", "a-_b"]
    container = await container_of(
        parameters={name: {"type": "secret", "value": name} for name in names},
        invocation={"command": ["x", *({"parameter": name} for name in names)]},
    )
    keys = {one["name"]: one["valueFrom"]["secretKeyRef"]["key"] for one in container["env"]}
    assert len(keys) == len(names)
    assert [keys[word[2:-1]] for word in container["command"][1:]] == names


async def test_a_referenced_parameter_must_exist() -> None:
    found = await problems_of(
        invocation={
            "command": ["x", {"parameter": "missing"}],
            "environment": {"A": {"parameter": "missing"}},
        }
    )
    assert set(found) == {
        "invocation.command[1].parameter",
        "invocation.environment.A.parameter",
    }


async def test_reserved_environment_variables_cannot_be_set() -> None:
    environment = {"VC_TASK_INDEX": "1", "VK_TASK_INDEX": "1", "FUMAROLE_X": "1", "VCX": "1"}
    found = await problems_of(invocation={"environment": environment})
    assert set(found) == {f"invocation.environment.{name}" for name in environment if name != "VCX"}


async def test_an_empty_command_is_refused() -> None:
    assert set(await problems_of(invocation={"command": [""]})) == {"invocation.command[0]"}


LISTS: dict[str, Any] = {
    "many": {"type": "text", "value": ["a", "b c", ""]},
    "none": {"type": "integer", "value": []},
    "v6": {"type": "licence", "address": "2001:db8::0001", "port": 27000},
    "keyed": {"type": "licence", "address": "10.0.0.5", "port": 27000, "key": "k$(A)"},
}


async def test_a_repeated_parameter_becomes_one_argument_per_value() -> None:
    command = ["x", {"parameter": "many", "prefix": "-"}, {"parameter": "none"}, "end"]
    container = await container_of(parameters=LISTS, invocation={"command": command})
    assert container["command"] == ["x", "-a", "-b c", "-", "end"]


async def test_a_separator_joins_a_repeated_parameter() -> None:
    joined = {"parameter": "many", "prefix": "-", "separator": ","}
    invocation = {"command": ["x", joined], "environment": {"A": joined}}
    container = await container_of(parameters=LISTS, invocation=invocation)
    assert container["command"] == ["x", "-a,b c,"]
    assert container["env"] == [{"name": "A", "value": "-a,b c,"}]


async def test_a_variable_has_one_value() -> None:
    environment = {"A": {"parameter": "many"}, "B": {"parameter": "none"}}
    found = await problems_of(parameters=LISTS, invocation={"environment": environment})
    assert set(found) == {
        "invocation.environment.A.separator",
        "invocation.environment.B.separator",
    }


async def test_an_absent_optional_parameter_is_omitted() -> None:
    word = {"parameter": "missing", "prefix": "--x=", "optional": True}
    invocation = {"command": ["x", word], "environment": {"A": word, "B": "b"}}
    container = await container_of(invocation=invocation)
    assert container["command"] == ["x"]
    assert container["env"] == [{"name": "B", "value": "b"}]


async def test_a_command_of_absent_parameters_only_is_refused() -> None:
    command = [{"parameter": "missing", "optional": True}, "x"]
    assert set(await problems_of(invocation={"command": command})) == {"invocation.command[0]"}


async def test_a_licence_key_is_in_the_secret() -> None:
    invocation = {"command": ["x", {"parameter": "v6"}, {"parameter": "keyed"}]}
    plan = await plan_of(parameters=LISTS, invocation=invocation)
    (task,) = plan.volcano_job.tasks
    assert task.template.containers[0].command[1:] == [
        "[2001:db8::1]:27000",
        "$(FUMAROLE_SECRET_keyed)",
    ]
    (secret,) = [one for one in plan.companions if one.kind == "Secret"]
    assert base64.b64decode(secret.manifest["data"]["keyed"]) == b"10.0.0.5:27000/k$(A)"


async def test_a_task_inherits_the_invocation_of_the_job() -> None:
    plan = await plan_of(
        invocation={"command": ["all"], "environment": {"A": "1"}},
        tasks=[{"name": "a"}, {"name": "b", "invocation": {"command": ["own"]}}],
    )
    a, b = (task.template.containers[0] for task in plan.volcano_job.tasks)
    assert (a.command, [one.name for one in a.environment]) == (["all"], ["A"])
    assert (b.command, b.environment) == (["own"], [])


async def test_an_error_of_a_task_has_the_tasks_path() -> None:
    missing = {"command": ["x", {"parameter": "missing"}]}
    found = await problems_of(
        invocation=missing, tasks=[{"name": "a"}, {"name": "b", "invocation": missing}]
    )
    assert set(found) == {
        "invocation.command[1].parameter",
        "tasks[1].invocation.command[1].parameter",
    }


async def test_an_argument_with_nul_is_refused() -> None:
    many = {"many": {"type": "text", "value": ["x" * 30_000] * 5}}
    word = {"parameter": "many", "separator": ","}
    found = await problems_of(parameters=many, invocation={"command": ["x", word]})
    assert set(found) == {"invocation.command[1]"}
    dollars = {"many": {"type": "text", "value": ["$" * 30_000] * 4}}
    assert await problems_of(parameters=dollars, invocation={"command": ["x", word]}) == {}


@pytest.mark.parametrize("separator", [None, ","])
@pytest.mark.parametrize("where", ["command", "environment"])
async def test_an_oversize_invocation_is_refused_before_it_is_rendered(
    where: str, separator: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []

    def noted(text: str) -> str:
        written.append(text)
        return escape(text)

    monkeypatch.setattr(parameter, "escape", noted)
    many = {"many": {"type": "text", "value": ["x" * 15] * 1000}}
    word = {"parameter": "many", "separator": separator, "prefix": "y"}
    words: dict[str, Any] = {"command": ["x", *[word] * 100]}
    if where == "environment":
        words = {"command": ["x"], "environment": {f"A{n}": word for n in range(100)}}
    found = await problems_of(parameters=many, invocation=words)
    assert found == {"invocation": "becomes more than the 1400000 characters that a cluster keeps"}
    assert written == []


async def test_the_size_of_all_invocations_is_limited_together() -> None:
    many = {"many": {"type": "text", "value": ["x" * 7] * 1000}}
    invocation = {"command": ["x", *[{"parameter": "many"}] * 100]}
    tasks = [{"name": name, "invocation": invocation} for name in ("a", "b")]
    assert list(await problems_of(parameters=many, tasks=tasks)) == ["tasks[1].invocation"]
