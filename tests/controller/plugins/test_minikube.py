from __future__ import annotations

from typing import Any

import pytest

from controller.settings import read_settings
from shared.settings import Environment
from tests.controller.plugins.plans import plan_of

ON = {"FUMAROLE_CONTROLLER_MINIKUBE": "on"}
DESK: dict[str, Any] = {"desk": {"kind": "vnc", "port": 5900}}
LAB: dict[str, Any] = {"lab": {"kind": "web", "port": 8888, "task": "b"}}
TASKS: dict[str, Any] = {"tasks": [{"name": "a"}, {"name": "b", "replicas": 2}]}


async def kinds_of(**fields: Any) -> list[str]:
    return [one.kind for one in (await plan_of(**fields)).companions if one.when == "after"]


async def test_the_plugin_is_off_by_default() -> None:
    assert await kinds_of(interactive=DESK) == ["NetworkPolicy"]


async def test_a_job_without_endpoints_gets_no_node_port() -> None:
    assert await kinds_of(settings=ON) == ["NetworkPolicy"]


async def test_the_first_web_else_vnc_port_gets_an_address_and_the_policy_that_it_needs() -> None:
    plan = await plan_of(settings=ON, interactive={**DESK, **LAB}, **TASKS)
    (service,) = [one for one in plan.companions if one.kind == "Service"]
    (policy,) = [one for one in plan.companions if one.name == "j-j1.minikube"]
    spec = service.manifest["spec"]
    assert service.name == "mk-j1"
    assert spec["type"] == "LoadBalancer"
    (port,) = spec["ports"]
    assert (port["port"], port["targetPort"]) == (80, 8888)
    # Selects the first rank of the endpoint's task, not any pod.
    assert spec["selector"] == {
        "fumarole.dev/instance": "test",
        "fumarole.dev/job": "j1",
        "volcano.sh/task-spec": "b",
        "volcano.sh/task-index": "0",
    }
    assert policy.manifest["spec"]["podSelector"]["matchLabels"] == spec["selector"]
    assert policy.manifest["spec"]["ingress"] == [{"ports": [{"port": 8888, "protocol": "TCP"}]}]


async def test_a_desktop_is_reached_where_there_is_no_web_endpoint() -> None:
    plan = await plan_of(settings=ON, interactive=DESK)
    (service,) = [one for one in plan.companions if one.name == "mk-j1"]
    assert service.manifest["spec"]["ports"][0]["targetPort"] == 5900


@pytest.mark.parametrize(
    ("url", "refused"),
    [("http://localhost:8080", False), ("http://apps.localhost", False),
     ("https://apps.example.com", True)],
)  # fmt: skip
def test_a_public_deployment_cannot_switch_it_on(url: str, refused: bool) -> None:
    environment = Environment({**ON, "FUMAROLE_CONTROLLER_PUBLIC_URL": url})
    read_settings(environment)
    problems = [one for one in environment.problems if "MINIKUBE" in one]
    assert bool(problems) is refused
