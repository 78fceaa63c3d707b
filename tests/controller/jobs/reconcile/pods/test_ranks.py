"""Tests ranks, resources and parameters, as the programs in the pods see them."""

from __future__ import annotations

import pytest

from controller.volcano.preflight import PATH, read_openapi
from tests.controller.jobs.reconcile.pods.world import World, python
from tests.controller.samples import make_job, make_pipeline

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]


async def test_four_ranks_read_their_rank_and_reach_others_by_name(world: World) -> None:
    (world.folder / "meet").mkdir()
    record = await world.run(
        "meet",
        image="python",
        resources={"cpu": 2},
        tasks=[{"name": "master"}, {"name": "worker", "replicas": 3}],
        output="/home/meet",
        invocation=python("/etc/ucloud", "4"),
    )
    assert record.state == "SUCCESS", record.message
    nodes = ["j-meet-master-0.j-meet", *(f"j-meet-worker-{index}.j-meet" for index in range(3))]
    for rank in range(4):
        seen = world.seen(f"meet/{rank}.json")
        assert seen["files"] == {
            "rank.txt": str(rank),
            "number_of_nodes.txt": "4",
            "nodes.txt": "\n".join(nodes),
            "cores.txt": "2",
            "job_id.txt": "meet",
            **{f"node-{index}.txt": node for index, node in enumerate(nodes)},
        }
        assert seen["reached"] == [0, 1, 2, 3]


async def test_rank_names_resolve_before_any_rank_is_ready(world: World) -> None:
    # No program listens at the endpoint, so no pod becomes ready.
    finds = (
        "other=j-names-job-$((1 - $(cat /etc/ucloud/rank.txt))).j-names; tries=0;"
        " until getent hosts $other; do tries=$((tries + 1)); [ $tries -lt 100 ] || exit 9;"
        " sleep 0.1; done; sleep 2"
    )
    record = await world.run(
        "names",
        replicas=2,
        interactive={"lab": {"kind": "web", "port": 8888}},
        invocation={"command": ["sh", "-c", finds]},
    )
    assert (record.state, record.message) == ("SUCCESS", None)


async def test_a_numa_topology_is_accepted_with_files_and_a_second_task(world: World) -> None:
    (world.folder / "numa").mkdir()
    record = await world.run(
        "numa",
        image="busybox",
        resources={"cpu": 1},
        tasks=[{"name": "master"}, {"name": "worker"}],
        topology={"numa": "best-effort"},
        output="/home/numa",
        invocation={"command": ["true"]},
    )
    assert record.state == "SUCCESS", record.message


async def test_each_rank_of_a_single_task_knows_its_rank(world: World) -> None:
    (world.folder / "alone").mkdir()
    record = await world.run(
        "alone", image="python", replicas=2, output="/home/alone",
        invocation=python("/etc/ucloud", "2"),
    )  # fmt: skip
    assert record.state == "SUCCESS", record.message
    assert [world.seen(f"alone/{rank}.json")["files"]["rank.txt"] for rank in (0, 1)] == ["0", "1"]


async def test_the_features_of_volcano_are_read_from_its_openapi(world: World) -> None:
    can = read_openapi(await world.kube.openapi(PATH))
    (task,) = (await make_pipeline().plan(make_job())).volcano_job.manifest()["spec"]["tasks"]
    manifest = {"spec": {"networkTopology": {"mode": "hard"}, "tasks": [task]}}
    assert can.lacks(manifest) == []
    assert [path for path, _ in can.lacks({"spec": {"tasks": [{"nonsense": 1}]}})] == [
        "spec.tasks[0].nonsense"
    ]


async def test_two_endpoints_at_one_port_are_accepted(world: World) -> None:
    endpoints = {
        "lab": {"kind": "web", "port": 8888},
        "board": {"kind": "web", "port": 8888, "base_path": "/board"},
    }
    record = await world.run("ports", interactive=endpoints, invocation={"command": ["true"]})
    assert (record.state, record.message) == ("SUCCESS", None)


async def test_df_shows_the_limit_of_shared_memory(world: World) -> None:
    (world.folder / "shm").mkdir()
    script = "df -k /dev/shm | tail -1 > /work/df.txt"
    record = await world.run(
        "shm", image="busybox", resources={"memory": "96Mi"}, output="/home/shm",
        invocation={"command": ["sh", "-c", script]},
    )  # fmt: skip
    assert record.state == "SUCCESS", record.message
    assert int((world.folder / "shm" / "df.txt").read_text().split()[1]) == 96 * 1024


async def test_parameter_values_reach_a_program_unchanged(world: World) -> None:
    (world.folder / "values").mkdir()
    tricky = "$(HOME) $$ `id` '\"\\ $((1+1))\n;|&"
    program = "import json,os,sys; json.dump([sys.argv[1:], os.environ['A']], open('v.json','w'))"
    record = await world.run(
        "values",
        image="python",
        parameters={
            "t": {"type": "text", "value": [tricky, "two"]},
            "s": {"type": "secret", "value": tricky},
            "l": {"type": "licence", "address": "10.0.0.5", "port": 27000, "key": tricky},
        },
        output="/home/values",
        invocation={
            "command": ["python3", "-c", program, {"parameter": "t", "prefix": "-$(A)"},
                        {"parameter": "s"}, {"parameter": "l"},
                        {"parameter": "none", "optional": True}],
            "environment": {"A": {"parameter": "s", "prefix": "$$"}},
        },
    )  # fmt: skip
    assert record.state == "SUCCESS", record.message
    arguments, variable = world.seen("values/v.json")
    assert arguments == [
        f"-$(A){tricky}", "-$(A)two", tricky, f"10.0.0.5:27000/{tricky}",
    ]  # fmt: skip
    assert variable == "$$" + tricky


async def test_a_pytorch_job_sees_its_master_its_rank_and_the_worlds_size(world: World) -> None:
    (world.folder / "torch").mkdir()
    program = (
        "import json,os; e=os.environ; json.dump({k: e.get(k) for k in"
        " ('MASTER_ADDR','MASTER_PORT','RANK','WORLD_SIZE')}, open(e['RANK'] + '.json', 'w'))"
    )
    record = await world.run(
        "torch",
        image="python",
        framework="pytorch",
        tasks=[{"name": "master"}, {"name": "worker", "replicas": 2}],
        output="/home/torch",
        invocation={"command": ["python3", "-c", program]},
    )
    assert record.state == "SUCCESS", record.message
    for rank in range(3):
        assert world.seen(f"torch/{rank}.json") == {
            "MASTER_ADDR": "j-torch-master-0.j-torch",
            "MASTER_PORT": "23456",
            "RANK": str(rank),
            "WORLD_SIZE": "3",
        }
