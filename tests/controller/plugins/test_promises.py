"""What the systems that this one follows promised or got wrong: one test for each.

First the plugins of UCloud/Compute, then what Leinao Cloud OS asked of Volcano. How each is done is
tested beside its plugin; here stands that it is done. docs/plugins/promises.md lists them.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import ValidationError

from controller.jobs.pipeline.pipeline import Plan
from controller.jobs.pipeline.plugin import JobFromServer
from controller.jobs.submission.accept import Submissions
from controller.jobs.submission.commands import JobCommands
from controller.plugins import PLUGINS
from controller.plugins.accounting import AccountingPlugin
from controller.plugins.connect_to_job import ConnectToJobPlugin
from controller.plugins.expiry import ExpiryPlugin
from controller.plugins.file_mount import CHECK
from controller.plugins.proxy import ProxyPlugin
from controller.store.database import Store
from controller.store.jobs.connections import Peer
from controller.store.jobs.job_rows import find_job, insert_job
from controller.store.vault import Vault
from controller.volcano.capabilities import Capabilities
from controller.volcano.policies import Rule, deciding
from tests.controller.conftest import Clock
from tests.controller.goldens.cases import WHOLE
from tests.controller.goldens.render import plan_of as plan_of_case
from tests.controller.plugins.making import container_of, plan_of, pod_of, problems_of
from tests.controller.samples import (
    NoLedger,
    NoPeers,
    NoSessions,
    make_context,
    make_defaults,
    make_job,
    make_pipeline,
    make_record,
)
from tests.controller.volcano.test_capabilities import VERSIONS, schema_of

VOLUMES = {"FUMAROLE_CONTROLLER_VOLUMES": "home=cephfs/{user}"}
LAB: dict[str, Any] = {"lab": {"kind": "web", "port": 8888}}


def templates(plan: Plan) -> list[dict[str, Any]]:
    return [task["template"] for task in plan.volcano_job.manifest()["spec"]["tasks"]]


def seen_of(expires_at: float | None = None) -> JobFromServer:
    return JobFromServer(
        job=make_job(), namespace="jobs", uid="u", attempt=1, phase="Running", started_at=1.0,
        pods=(), expires_at=expires_at,
    )  # fmt: skip


# UCloud/Compute


async def test_task_runs_the_image_in_as_many_copies_with_requests_as_limits() -> None:
    plan = await plan_of(replicas=3, resources={"cpu": 2, "memory": "4Gi", "gpu": 1})
    spec = plan.volcano_job.manifest()["spec"]
    assert plan.volcano_job.name == "j-j1"
    assert (spec["schedulerName"], spec["minAvailable"]) == ("volcano", 3)
    assert spec["plugins"] == {"env": [], "svc": ["--disable-network-policy=true"]}
    container = spec["tasks"][0]["template"]["spec"]["containers"][0]
    assert container["image"] == "busybox"
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert container["resources"]["requests"] == container["resources"]["limits"]


async def test_parameter_gives_a_new_command_and_the_users_values() -> None:
    container = await container_of(
        settings=VOLUMES,
        parameters={
            "f": {"type": "file", "path": "/home/x/in.txt/"},
            "l": {"type": "licence", "address": "10.0.0.5", "port": 27000},
        },
        invocation={
            "command": ["run", {"parameter": "f"}, {"parameter": "nothing", "optional": True}],
            "environment": {
                "LICENCE": {"parameter": "l"},
                "SKIPPED": {"parameter": "nothing", "optional": True},
            },
        },
    )
    assert container["command"] == ["run", "/work/in.txt"]
    assert container["env"] == [{"name": "LICENCE", "value": "10.0.0.5:27000"}]


async def test_file_mount_mounts_each_path_by_its_name_and_the_output_first() -> None:
    pod = await pod_of(
        settings=VOLUMES,
        parameters={"d": {"type": "directory", "path": "/home/set", "read_only": True}},
        output="/home/out",
    )
    mounts = pod["containers"][0]["volumeMounts"]
    assert mounts[:2] == [
        {"name": "files-0", "mountPath": "/work", "subPath": "ada/out"},
        {"name": "files-0", "mountPath": "/work/set", "subPath": "ada/set", "readOnly": True},
    ]


async def test_file_mount_transfers_no_file_and_makes_no_folder() -> None:
    for word in ("cp ", "mv ", "mkdir", "touch", "rsync", "ln "):
        assert word not in CHECK
    pod = await pod_of(settings=VOLUMES, output="/home/out")
    assert all(one["readOnly"] for one in pod["initContainers"][0]["volumeMounts"])


@pytest.mark.parametrize("replicas", [1, 2, 16])
async def test_multi_node_writes_every_documented_file(replicas: int) -> None:
    plan = await plan_of(replicas=replicas)
    (config,) = [one for one in plan.companions if one.kind == "ConfigMap"]
    data = config.manifest["data"]
    assert data["number_of_nodes.txt"] == f"{replicas}\n"
    assert len(data["nodes.txt"].splitlines()) == replicas
    assert data[f"node-{replicas - 1}.txt"] == data["nodes.txt"].splitlines()[-1] + "\n"
    (volume,) = [v for v in templates(plan)[0]["spec"]["volumes"] if v["name"] == "ranks"]
    written = [i["path"] for i in volume["projected"]["sources"][1]["downwardAPI"]["items"]]
    # The last two were documented and never written.
    assert {"rank.txt", "cores.txt"} <= set(written)
    assert "job_id.txt" in data


async def test_shared_memory_is_limited_by_the_jobs_memory_and_1_gib_without_one() -> None:
    for memory, expected in (({"memory": "3Gi"}, "3Gi"), ({}, "1Gi")):
        pod = await pod_of(resources=memory)
        (volume,) = [one for one in pod["volumes"] if one["name"] == "shm"]
        assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": expected}


async def test_miscellaneous_restarts_nothing_and_keeps_rights_away() -> None:
    pod = await pod_of()
    assert pod["restartPolicy"] == "Never"
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["containers"][0]["workingDir"] == "/work"
    assert pod["containers"][0]["securityContext"]["allowPrivilegeEscalation"] is False


async def test_network_limit_limits_where_it_once_did_nothing() -> None:
    (template,) = templates(await plan_of(network={"ingress": "1M", "egress": "1M"}))
    annotations = template["metadata"]["annotations"]
    assert annotations["kubernetes.io/ingress-bandwidth"] == "1M"
    assert annotations["kubernetes.io/egress-bandwidth"] == "1M"


async def test_fair_share_places_each_owner_where_it_once_only_annotated() -> None:
    settings = {"FUMAROLE_CONTROLLER_FAIR_SHARE": "on"}
    places = {
        (await plan_of(settings=settings, owner=owner)).volcano_job.namespace
        for owner in (
            {"user": "ada"},
            {"user": "bob"},
            {"user": "ada", "project": "sun"},
            {"user": "bob", "project": "sun"},
        )
    }
    assert len(places) == 3, "two users of one project share its namespace"


async def test_minikube_is_a_load_balancer_on_port_80_for_web_else_vnc() -> None:
    settings = {"FUMAROLE_CONTROLLER_MINIKUBE": "on"}
    for endpoints, port in (
        ({"d": {"kind": "vnc", "port": 5900}, **LAB}, 8888),
        ({"d": {"kind": "vnc", "port": 5900}}, 5900),
    ):
        plan = await plan_of(settings=settings, interactive=endpoints)
        (service,) = [one for one in plan.companions if one.name == "mk-j1"]
        assert service.manifest["spec"]["type"] == "LoadBalancer"
        (found,) = service.manifest["spec"]["ports"]
        assert (found["port"], found["targetPort"]) == (80, port)


async def test_kata_takes_its_machine_from_the_request_and_states_a_minimum() -> None:
    container = await container_of(runtime="kata", resources={"cpu": 4, "memory": "8Gi"})
    assert container["resources"]["requests"] == {"cpu": "3", "memory": "7Gi"}
    assert set(await problems_of(runtime="kata")) == {"resources.cpu", "resources.memory"}


async def test_expiry_counts_from_the_first_start_and_extensions_add_up(
    store: Store, clock: Clock
) -> None:
    commands = JobCommands(store, clock=clock, random=os.urandom, wake=lambda _: None)
    plugin = ExpiryPlugin(make_context(control=commands))
    start = clock.now
    async with store.write() as transaction:
        record = make_record(started_at=start, allocated_seconds=100.0, state="RUNNING")
        await insert_job(transaction, record, labels={})
    # Seen again by whoever leads next, it counts on; it once began anew with each extension.
    clock.now += 60
    seen = seen_of(expires_at=record.expires_at)
    assert await plugin.on_job_start("j1", seen) == start + 100
    await asyncio.gather(*(commands.extend("j1", seconds=30) for _ in range(2)))
    clock.now = start + 159
    assert await plugin.on_job_monitoring([seen]) == {"j1": start + 160}
    clock.now = start + 160
    assert await plugin.on_job_monitoring([seen]) == {"j1": None}
    async with store.read() as transaction:
        ending = await find_job(transaction, "j1")
    assert ending is not None
    assert (ending.desired, ending.end_state) == ("ended", "EXPIRED")


async def test_accounting_looks_at_every_start_period_and_end() -> None:
    class Book(NoLedger):
        asked: ClassVar[list[str]] = []

        async def write_up(self, job_id: str) -> float | None:
            self.asked.append(job_id)
            return 900.0

    plugin = AccountingPlugin(make_context(ledger=Book()))
    assert await plugin.on_job_start("j1", seen_of()) == 900.0
    assert await plugin.on_job_monitoring([seen_of()]) == {"j1": 900.0}
    # Also where the job was deleted for want of funds: that once skipped the last charge.
    await plugin.on_cleanup("j1")
    assert Book.asked == ["j1"] * 3


async def test_connect_to_job_has_rules_on_both_sides_and_takes_both_back() -> None:
    peer = {"lab": {"type": "peer", "job": "j2", "hostname": "lab"}}
    book = NoPeers([Peer("j2", "jobs", ended=False, address="10.96.0.7")])
    pipeline = make_pipeline(make_context(peers=book))
    job = make_job(parameters=peer)
    plan = await pipeline.plan(job, accepted_in="jobs")
    (policy,) = [one for one in plan.companions if one.name == "j-j1.network"]
    assert str(policy.manifest).count("'fumarole.dev/job': 'j2'") == 2
    (template,) = templates(plan)
    # By an address that stays, where the first pod's own was written once.
    assert template["spec"]["hostAliases"] == [{"ip": "10.96.0.7", "hostnames": ["lab"]}]
    # What the other one admits of it was once left behind.
    plugin = ConnectToJobPlugin(make_context(peers=book))
    await plugin.on_job_complete("j1", replace(seen_of(), job=job))
    assert book.ended == ["j1"]


async def test_ingress_takes_no_link_from_the_job_that_has_it(store: Store, clock: Clock) -> None:
    submissions = Submissions(
        store=store,
        pipeline=make_pipeline(),
        vault=Vault([os.urandom(32)]),
        defaults=make_defaults(),
        clock=clock,
        random=os.urandom,
        wake=lambda _: None,
    )
    jobs = [make_job(id=name, interactive=LAB, links=["my-demo"]) for name in ("first", "last")]
    results = await submissions.submit(jobs, "best_effort")
    # There the last one had it.
    assert [one.result for one in results] == ["created", "conflict"]


def test_network_ip_is_not_offered_and_asking_for_it_is_refused_not_dropped() -> None:
    assert "network_ip" not in [plugin.name for plugin in PLUGINS]
    with pytest.raises(ValidationError, match="extra_forbidden"):
        make_job(addresses=["192.0.2.1"])


async def test_proxy_has_routes_looked_at_on_start_and_ends_sessions_with_the_job() -> None:
    sessions = NoSessions()
    plugin = ProxyPlugin(make_context(sessions))
    await plugin.on_job_start("j1", seen_of())
    await plugin.on_job_complete("j1", seen_of())
    # A session's right once outlived its job.
    assert sessions.asked == [("look", "j1"), ("job ended", "j1")]


def test_every_plugin_that_was_documented_is_there_in_an_order_with_reasons() -> None:
    names = [plugin.name for plugin in PLUGINS]
    documented = {
        "accounting", "connect_to_job", "expiry", "fair_share", "file_mount", "kata_container",
        "minikube", "miscellaneous", "multi_node", "network_limit", "parameter", "proxy",
        "shared_memory", "task", "ingress",
    }  # fmt: skip
    assert documented <= set(names)
    assert (names[0], names[-1]) == ("task", "proxy")
    for plugin in PLUGINS[1:]:
        # Each says where it stands, or another one says so of it; a reason stands beside.
        said = re.search(r"(    # .*\n)?    (after|before): ", inspect.getsource(plugin))
        assert said or any(plugin.name in other.after + other.before for other in PLUGINS)
        assert not said or re.search(r"    # .*\n    (after|before): ", inspect.getsource(plugin))


# Leinao Cloud OS


async def test_training_is_a_kind_with_frameworks_parameters_and_artefacts() -> None:
    manifest = (await plan_of_case(WHOLE)).volcano_job.manifest()
    assert manifest["metadata"]["labels"]["fumarole.dev/kind"] == "training"
    assert "pytorch" in manifest["spec"]["plugins"]


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_same_job_is_taken_by_every_release_or_refused_never_cut(version: str) -> None:
    manifest = (await plan_of_case(WHOLE)).volcano_job.manifest()
    lacking = Capabilities(schema_of(version)).lacks(manifest)
    assert bool(lacking) == (version == "1.11")


def test_event_based_retry_prefers_the_tasks_policies_to_the_jobs() -> None:
    of_task = [Rule(action="RestartTask", exit_code=3)]
    of_job = [Rule(action="RestartJob", event="PodFailed")]
    first = deciding("PodFailed", 3, of_task=of_task, of_job=of_job)
    other = deciding("PodFailed", 1, of_task=of_task, of_job=of_job)
    assert (first, other) == (of_task[0], of_job[0])


async def test_max_retry_is_the_most_retries_not_one_less() -> None:
    plan = await plan_of(max_retry=2, policies=[{"event": "PodFailed", "action": "RestartJob"}])
    # Volcano fails a job that restarts when its count has come to ``maxRetry``.
    assert plan.volcano_job.max_retry - 1 == 2


async def test_restart_task_is_asked_of_volcano_as_it_is_written() -> None:
    plan = await plan_of(
        tasks=[{"name": "a", "policies": [{"event": "PodFailed", "action": "RestartTask"}]}]
    )
    (task,) = plan.volcano_job.manifest()["spec"]["tasks"]
    assert task["policies"] == [{"event": "PodFailed", "action": "RestartTask"}]


@pytest.mark.parametrize("nodes", [1, 2, 16])
@pytest.mark.parametrize(
    ("framework", "first"),
    [("pytorch", "master"), ("mpi", "master"), ("ray", "head"), ("tensorflow", "chief")],
)
async def test_distributed_jobs_of_the_mainstream_frameworks(
    framework: str, first: str, nodes: int
) -> None:
    tasks = [{"name": first}, {"name": "worker", "replicas": nodes}]
    plan = await plan_of(framework=framework, tasks=tasks)
    assert framework in plan.volcano_job.plugins
    assert plan.volcano_job.min_available == nodes + 1


async def test_topology_within_a_server_and_between_servers() -> None:
    spec = (
        await plan_of(
            resources={"cpu": 8, "gpu": 4},
            topology={"numa": "single-numa-node", "network": {"mode": "hard", "tier": 2}},
        )
    ).volcano_job.manifest()["spec"]
    assert spec["tasks"][0]["topologyPolicy"] == "single-numa-node"
    assert spec["networkTopology"] == {"mode": "hard", "highestTierAllowed": 2}


async def test_secrets_are_companions_that_the_pods_wait_for() -> None:
    plan = await plan_of_case(WHOLE)
    (secret,) = [one for one in plan.companions if one.kind == "Secret"]
    values = {base64.b64decode(one).decode() for one in secret.manifest["data"].values()}
    assert values == {"canary", "10.0.0.5:27000/canary"}
    assert secret.when == "before"


# What the page says of all this

PAGE = (Path(__file__).parents[3] / "docs/plugins/promises.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and "::" in line]


@pytest.mark.parametrize("row", ROWS, ids=[row.split("|")[1].strip() for row in ROWS])
def test_every_row_names_tests_that_exist(row: str) -> None:
    for path, name in re.findall(r"`([a-z_/.]+\.py)::(test_\w+)`", row):
        source = (Path(__file__).parents[2] / path).read_text()
        assert re.search(rf"^(async )?def {name}\(", source, re.M), name


def test_every_promise_and_bug_that_is_tested_is_on_the_page() -> None:
    here = "controller/plugins/test_promises.py", "controller/test_known_bugs.py"
    for path in (*here, "controller/api/test_promises.py"):
        source = (Path(__file__).parents[2] / path).read_text()
        for name in re.findall(r"^(?:async )?def (test_\w+)", source, re.M):
            if "_row" not in name and "_page" not in name:
                assert f"{path}::{name}`" in PAGE, name
