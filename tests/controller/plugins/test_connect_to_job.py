from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any

import pytest

from controller.jobs.pipeline.pipeline import Pipeline, Plan
from controller.jobs.pipeline.plugin import JobFromServer
from controller.jobs.spec.problems import JobRejected
from controller.plugins import PLUGINS
from controller.plugins.connect_to_job import ConnectToJobPlugin
from controller.site.licences import parse_licence_servers
from controller.store.jobs.relations import NOBODY, Caller, Peer
from tests.controller.plugins.plans import problems_of
from tests.controller.samples import NoPeers, make_context, make_defaults, make_job, make_plugins

PEER: dict[str, Any] = {"lab": {"type": "peer", "job": "j2", "hostname": "lab"}}
THERE = Peer("j2", "other", ended=False, address="10.96.0.7")


async def plan_of(
    *, peers: Sequence[Peer] = (), callers: Sequence[Caller] = (), submitted: bool = False,
    settings: dict[str, str] | None = None, **fields: Any,
) -> Plan:  # fmt: skip
    book = NoPeers(peers, callers)
    context = make_context(defaults=make_defaults(**settings or {}), peers=book)
    pipeline = Pipeline(make_plugins(PLUGINS, context), instance="test", namespace="jobs")
    return await pipeline.plan(make_job(**fields), accepted_in="jobs", submitted=submitted)


def policy_of(plan: Plan) -> dict[str, Any]:
    (one,) = [one for one in plan.companions if one.name == "j-j1.network"]
    assert one.when == "before"
    spec: dict[str, Any] = one.manifest["spec"]
    return spec


def service_of(plan: Plan) -> dict[str, Any]:
    (one,) = [one for one in plan.companions if one.kind == "Service"]
    assert one.lasting
    spec: dict[str, Any] = one.manifest["spec"]
    return spec


def pods(namespace: str, job: str) -> dict[str, Any]:
    """Return one entry with both selectors: as two entries, either alone would admit a pod."""
    return {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "podSelector": {"matchLabels": {"fumarole.dev/instance": "test", "fumarole.dev/job": job}},
    }


async def test_a_job_reaches_its_own_pods_dns_and_the_internet() -> None:
    spec = policy_of(await plan_of())
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert spec["ingress"] == [{"from": [pods("jobs", "j1")]}]
    own, dns, world = spec["egress"]
    assert own == {"to": [pods("jobs", "j1")]}
    assert [one["port"] for one in dns["ports"]] == [53, 53]
    blocks = {one["ipBlock"]["cidr"]: one["ipBlock"]["except"] for one in world["to"]}
    assert set(blocks) == {"0.0.0.0/0", "::/0"}
    assert "169.254.0.0/16" in blocks["0.0.0.0/0"]
    for network, excepted in blocks.items():
        for one in excepted:
            assert ipaddress.ip_network(one).version == ipaddress.ip_network(network).version


async def test_a_named_job_is_connected_in_both_directions() -> None:
    spec = policy_of(await plan_of(parameters=PEER, peers=[THERE]))
    assert spec["ingress"] == [{"from": [pods("jobs", "j1"), pods("other", "j2")]}]
    assert spec["egress"][0] == {"to": [pods("jobs", "j1"), pods("other", "j2")]}


async def test_the_named_job_gets_the_matching_rule_and_a_service() -> None:
    plan = await plan_of(
        callers=[Caller("j7", "elsewhere", (9000,))],
        interactive={"lab": {"kind": "web", "port": 8888}},
    )
    spec = policy_of(plan)
    assert spec["ingress"][0]["from"][1:] == [pods("elsewhere", "j7")]
    service = service_of(plan)
    assert service["selector"] == {
        "fumarole.dev/instance": "test", "fumarole.dev/job": "j1",
        "volcano.sh/task-spec": "job", "volcano.sh/task-index": "0",
    }  # fmt: skip
    assert [one["port"] for one in service["ports"]] == [8888, 9000]
    assert service["publishNotReadyAddresses"] is True


async def test_a_service_selects_rank_0_for_any_task_name() -> None:
    tasks = [{"name": "master"}, {"name": "worker"}]
    callers = [Caller("j7", "jobs", (80,))]
    service = service_of(await plan_of(tasks=tasks, callers=callers))
    assert service["selector"]["volcano.sh/task-spec"] == "master"


async def test_the_network_policy_is_labelled_with_its_job() -> None:
    def basis(plan: Plan) -> str | None:
        return next(one.basis for one in plan.companions if one.name == "j-j1.network")

    one = basis(await plan_of(callers=[Caller("a", "x", ())]))
    other = basis(await plan_of(callers=[Caller("a", "x", (80,))]))
    nobody = basis(await plan_of())
    assert nobody == NOBODY
    assert len({one, other, nobody}) == 3


async def test_every_pod_knows_the_peer_by_the_address_of_its_service() -> None:
    two = {**PEER, "again": {"type": "peer", "job": "j2", "hostname": "notebook"}}
    plan = await plan_of(
        parameters=two, peers=[THERE], tasks=[{"name": "master"}, {"name": "worker"}]
    )
    wanted = [{"ip": "10.96.0.7", "hostnames": ["lab", "notebook"]}]
    for task in plan.volcano_job.manifest()["spec"]["tasks"]:
        assert task["template"]["spec"]["hostAliases"] == wanted


async def test_a_job_waits_for_its_peers_address_only() -> None:
    plan = await plan_of(
        parameters=PEER,
        peers=[Peer("j2", "jobs", ended=False, address=None)],
        callers=[Caller("j2", "jobs", (80,))],
    )
    assert plan.waiting == ("the address of the job j2",)
    assert service_of(plan)


@pytest.mark.parametrize("peers", [(), (Peer("j2", "jobs", ended=True, address="10.0.0.1"),)])
async def test_a_peer_that_ended_meanwhile_is_reported_with_its_path(peers: Any) -> None:
    with pytest.raises(JobRejected) as caught:
        await plan_of(parameters=PEER, peers=peers)
    assert [one.path for one in caught.value.problems] == ["parameters.lab.job"]
    running = await plan_of(parameters=PEER, peers=peers, submitted=True)
    assert policy_of(running)


LISTED = {"FUMAROLE_CONTROLLER_LICENCE_SERVERS": "10.0.0.5:27000,10.7.0.0/16,[fd00::5]:1"}


async def test_a_licence_server_of_the_operators_list_can_be_reached() -> None:
    licence = {"type": "licence", "address": "10.0.0.5", "port": 27000}
    named = {"type": "licence", "address": "licences.example.com", "port": 27000}
    egress = policy_of(await plan_of(settings=LISTED, parameters={"a": licence, "b": named}))[
        "egress"
    ]
    assert egress[-1] == {
        "to": [{"ipBlock": {"cidr": "10.0.0.5/32"}}],
        "ports": [{"protocol": "TCP", "port": 27000}],
    }
    assert len(egress) == 4


def licence_at(address: str, port: int = 27000) -> dict[str, Any]:
    return {"lic": {"type": "licence", "address": address, "port": port}}


@pytest.mark.parametrize(
    ("address", "port"),
    [
        ("10.0.0.5", 443), ("10.0.0.6", 27000), ("169.254.169.254", 80), ("10.96.0.1", 443),
        ("168.63.129.16", 80), ("127.0.0.1", 1), ("fd00::5", 2), ("::ffff:10.0.0.6", 27000),
        ("::ffff:a9fe:a9fe", 80), ("64:ff9b::a9fe:a9fe", 80),
    ],
)  # fmt: skip
async def test_no_other_address_is_a_licence_server(address: str, port: int) -> None:
    with pytest.raises(JobRejected) as caught:
        await plan_of(settings=LISTED, parameters=licence_at(address, port))
    assert [one.path for one in caught.value.problems] == ["parameters.lic.address"]


@pytest.mark.parametrize(
    ("address", "port"), [("10.7.1.2", 1), ("fd00::5", 1), ("10.0.0.5", 27000)]
)
async def test_a_listed_network_or_port_is_allowed(address: str, port: int) -> None:
    egress = policy_of(await plan_of(settings=LISTED, parameters=licence_at(address, port)))
    assert egress["egress"][-1]["ports"] == [{"protocol": "TCP", "port": port}]


@pytest.mark.parametrize("address", ["10.0.0.5", "9.9.9.9"])
async def test_without_a_list_no_additional_egress_is_allowed(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    alone = policy_of(await plan_of())
    assert policy_of(await plan_of(parameters=licence_at(address))) == alone
    assert ("FUMAROLE_CONTROLLER_LICENCE_SERVERS" in caplog.text) == (address == "10.0.0.5")


async def test_a_wide_network_excludes_special_networks_within_it() -> None:
    wide = {"FUMAROLE_CONTROLLER_LICENCE_SERVERS": "0.0.0.0/0,::/0"}
    with pytest.raises(JobRejected):
        await plan_of(settings=wide, parameters=licence_at("169.254.169.254"))


async def test_a_running_job_is_not_refused_by_a_later_list() -> None:
    plan = await plan_of(settings=LISTED, submitted=True, parameters=licence_at("10.0.0.6"))
    assert len(policy_of(plan)["egress"]) == 3


@pytest.mark.parametrize("raw", ["licences.example.com", "10.0.0.5:0", "10.0.0.5/8", "[fd00::1"])
def test_licence_servers_are_listed_by_address(raw: str) -> None:
    with pytest.raises(ValueError, match=r"not"):
        parse_licence_servers(raw)


async def test_the_deployment_configures_egress() -> None:
    nothing = {"FUMAROLE_CONTROLLER_EGRESS_NETWORKS": "none"}
    assert len(policy_of(await plan_of(settings=nothing))["egress"]) == 2
    some = {
        "FUMAROLE_CONTROLLER_EGRESS_NETWORKS": "10.1.0.0/16",
        "FUMAROLE_CONTROLLER_EGRESS_EXCEPT": "10.1.2.0/24,10.2.0.0/24,10.1.0.0/16,fc00::/7",
    }
    rule = policy_of(await plan_of(settings=some))["egress"][2]
    block = rule["to"]
    assert block == [{"ipBlock": {"cidr": "10.1.0.0/16", "except": ["10.1.2.0/24"]}}]


def ranges(rule: dict[str, Any], protocol: str) -> list[tuple[int, int]]:
    return [(p["port"], p["endPort"]) for p in rule["ports"] if p["protocol"] == protocol]


async def test_smtp_ports_are_blocked() -> None:
    rule = policy_of(await plan_of())["egress"][2]
    assert ranges(rule, "TCP") == [(1, 24), (26, 65535)]
    assert ranges(rule, "UDP") == [(1, 65535)]
    more = {"FUMAROLE_CONTROLLER_EGRESS_BLOCKED_PORTS": "65535,1,465,466,25"}
    rule = policy_of(await plan_of(settings=more))["egress"][2]
    assert ranges(rule, "TCP") == [(2, 24), (26, 464), (467, 65534)]
    none = {"FUMAROLE_CONTROLLER_EGRESS_BLOCKED_PORTS": "none"}
    assert "ports" not in policy_of(await plan_of(settings=none))["egress"][2]


async def test_hostnames_are_unique_and_not_the_jobs_own() -> None:
    given = {
        "a": {"type": "peer", "job": "j2", "hostname": "lab"},
        "b": {"type": "peer", "job": "j3", "hostname": "lab"},
        "c": {"type": "peer", "job": "j3", "hostname": "localhost"},
        "d": {"type": "peer", "job": "j3", "hostname": "j-j1-job-0"},
        "e": {"type": "peer", "job": "j1", "hostname": "me"},
    }
    assert set(await problems_of(parameters=given)) == {
        "parameters.b.hostname",
        "parameters.c.hostname",
        "parameters.d.hostname",
        "parameters.e.job",
    }


async def test_named_peers_are_enqueued_when_the_job_ended() -> None:
    book = NoPeers()
    plugin = ConnectToJobPlugin(make_context(peers=book))
    for parameters in ({}, PEER):
        seen = JobFromServer(
            job=make_job(parameters=parameters), namespace="jobs", uid="u", attempt=1,
            phase="Completed", started_at=1.0, pods=(),
        )  # fmt: skip
        await plugin.on_job_complete("j1", seen)
    assert book.ended == ["j1"]
