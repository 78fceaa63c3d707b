from __future__ import annotations

from typing import Any

import pytest

from controller.jobs.pipeline.plugin import JobFromServer
from controller.plugins.proxy import ProxyPlugin
from tests.controller.plugins.plans import container_of, plan_of, problems_of
from tests.controller.samples import NoSessions, make_context, make_job

LAB: dict[str, Any] = {"lab": {"kind": "web", "port": 8888}}
DESK: dict[str, Any] = {"desk": {"kind": "vnc", "port": 5900, "password": {"parameter": "p"}}}


async def test_the_first_endpoint_has_a_tcp_readiness_probe() -> None:
    container = await container_of(interactive={**LAB, "board": {"kind": "web", "port": 6006}})
    probe = container["startupProbe"]
    assert probe["tcpSocket"] == {"port": 8888}
    assert probe["periodSeconds"] == 1
    # The probe never kills a slow app, and stops once the app has responded.
    assert probe["failureThreshold"] >= 10**9
    assert "readinessProbe" not in container
    assert [one["containerPort"] for one in container["ports"]] == [8888, 6006]


async def test_a_desktop_is_probed_only_without_web_endpoint() -> None:
    desk = {"desk": {"kind": "vnc", "port": 5900}}
    assert (await container_of(interactive=desk))["startupProbe"]["tcpSocket"]["port"] == 5900
    both = await container_of(interactive={**desk, **LAB})
    assert both["startupProbe"]["tcpSocket"] == {"port": 8888}
    assert [one["name"] for one in both["ports"]] == ["desk", "lab"]


async def test_each_task_is_probed_at_its_own_endpoint() -> None:
    board = {"board": {"kind": "web", "port": 6006, "task": "master"}}
    tasks = [{"name": "master"}, {"name": "worker"}]
    plan = await plan_of(tasks=tasks, interactive={**board, "log": {"kind": "web", "port": 9}})
    master, worker = (one.template.containers[0] for one in plan.volcano_job.tasks)
    assert master.startup_probe is not None
    assert worker.startup_probe is not None
    assert master.startup_probe["tcpSocket"] == {"port": 6006}
    assert worker.startup_probe["tcpSocket"] == {"port": 9}
    assert [one.port for one in master.ports] == [6006, 9]
    assert [one.port for one in worker.ports] == [9]


async def test_a_job_without_an_endpoint_is_ready_when_it_runs() -> None:
    container = await container_of()
    assert "startupProbe" not in container
    assert "ports" not in container


async def test_only_gateways_are_admitted_after_the_job_exists() -> None:
    plan = await plan_of(interactive=LAB)
    (policy,) = [one for one in plan.companions if one.kind == "NetworkPolicy"]
    assert policy.when == "after"
    assert policy.name == "j-j1.gateway"
    spec = policy.manifest["spec"]
    assert spec["policyTypes"] == ["Ingress"]
    assert spec["podSelector"]["matchLabels"] == plan.volcano_job.labels
    (rule,) = spec["ingress"]
    # One entry with both selectors: two entries would admit every pod in the namespace.
    assert rule == {
        "from": [
            {
                "namespaceSelector": {
                    "matchLabels": {"kubernetes.io/metadata.name": "fumarole-system"}
                },
                "podSelector": {"matchLabels": {"app.kubernetes.io/name": "fumarole-gateway"}},
            }
        ]
    }


async def test_the_deployment_configures_the_labels_of_gateways() -> None:
    settings = {
        "FUMAROLE_CONTROLLER_GATEWAY_NAMESPACE": "edge",
        "FUMAROLE_CONTROLLER_GATEWAY_LABELS": "app=gw,tier=x",
    }
    plan = await plan_of(settings=settings)
    (policy,) = [one for one in plan.companions if one.kind == "NetworkPolicy"]
    (source,) = policy.manifest["spec"]["ingress"][0]["from"]
    assert source["podSelector"]["matchLabels"] == {"app": "gw", "tier": "x"}
    assert list(source["namespaceSelector"]["matchLabels"].values()) == ["edge"]


async def test_external_gateways_are_admitted_only_if_configured() -> None:
    settings = {"FUMAROLE_CONTROLLER_GATEWAY_NETWORKS": "192.0.2.7/32,2001:db8::7/128"}
    plan = await plan_of(settings=settings)
    (policy,) = [one for one in plan.companions if one.kind == "NetworkPolicy"]
    pods, *others = policy.manifest["spec"]["ingress"][0]["from"]
    assert set(pods) == {"namespaceSelector", "podSelector"}
    assert others == [
        {"ipBlock": {"cidr": "192.0.2.7/32"}},
        {"ipBlock": {"cidr": "2001:db8::7/128"}},
    ]


async def test_ranks_have_services_only_if_configured() -> None:
    plan = await plan_of(interactive=LAB, replicas=2)
    assert [one.name for one in plan.companions if one.kind == "Service"] == []
    on = {"FUMAROLE_CONTROLLER_RANK_SERVICES": "yes"}
    plan = await plan_of(settings=on, interactive=LAB, replicas=2)
    services = [one for one in plan.companions if one.kind == "Service"]
    assert [(one.name, one.when, one.lasting) for one in services] == [
        ("rank-j1-0", "before", False),
        ("rank-j1-1", "before", False),
    ]
    spec = services[1].manifest["spec"]
    assert spec["selector"] == {
        **plan.volcano_job.labels,
        "volcano.sh/task-spec": "job",
        "volcano.sh/task-index": "1",
    }
    assert [one["port"] for one in spec["ports"]] == [8888]
    assert spec["publishNotReadyAddresses"] is False


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, "there is no such parameter"),
        ({"p": {"type": "text", "value": "x"}}, "is not a secret parameter"),
    ],
)
async def test_a_password_is_a_secret_parameter(parameters: Any, message: str) -> None:
    found = await problems_of(interactive=DESK, parameters=parameters)
    assert found == {"interactive.desk.password.parameter": message}
    secret = {"p": {"type": "secret", "value": "x"}}
    assert await problems_of(interactive=DESK, parameters=secret) == {}


async def test_an_endpoint_of_an_unknown_task_is_refused() -> None:
    endpoint = {"lab": {"kind": "web", "port": 8888, "task": "master"}}
    assert set(await problems_of(interactive=endpoint)) == {"interactive.lab.task"}


async def test_routes_are_published_at_start_and_sessions_end_with_the_job() -> None:
    sessions = NoSessions()
    plugin = ProxyPlugin(make_context(sessions))
    seen = JobFromServer(
        job=make_job(), namespace="jobs", uid="u", attempt=1, phase="Running", started_at=1.0,
        pods=(),
    )  # fmt: skip
    assert await plugin.on_job_start("j1", seen) is None
    await plugin.on_job_complete("j1", seen)
    await plugin.on_cleanup("j1")
    assert sessions.asked == [("look", "j1"), ("job ended", "j1"), ("job ended", "j1")]


async def test_the_url_leads_to_rank_0_of_a_web_endpoint() -> None:
    web = {"kind": "web", "port": 1, "url": True}
    tasks = [{"name": "a"}, {"name": "b"}]
    assert await problems_of(tasks=tasks, interactive={"lab": web | {"task": "a"}}) == {}
    assert await problems_of(tasks=tasks, interactive={"lab": web | {"task": "b"}}) == {
        "interactive.lab.url": "only rank 0 has one, which is of the task a"
    }


async def test_endpoints_at_one_port_declare_one_container_port() -> None:
    board = {"board": {"kind": "web", "port": 8888, "base_path": "/board"}}
    container = await container_of(interactive={**LAB, **board, "log": {"kind": "web", "port": 9}})
    ports = [(one["name"], one["containerPort"]) for one in container["ports"]]
    assert ports == [("lab", 8888), ("log", 9)]
