"""Tests the plugins' effects on pods, as the programs in the pods see them."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import struct
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from controller.jobs.cluster.informer import InformerCache
from controller.jobs.cluster.job_objects import JobObjects
from controller.jobs.cluster.mount_points import MountPointCleaner, mount_points_of
from controller.jobs.pipeline.pipeline import Pipeline
from controller.jobs.spec.accepted import public_spec
from controller.jobs.spec.model import Job
from controller.kube.client import Kube
from controller.kube.kinds import PERSISTENT_VOLUME_CLAIMS, VCJOBS, Kind
from controller.store.database import Store
from controller.store.instance import ensure_position, raise_term
from controller.store.jobs.folders import (
    hold_mount_points,
    record_missing_mount_points,
    release_mount_points,
)
from controller.store.jobs.job_rows import JobRecord, insert_job, update_job
from controller.store.jobs.tombstones import delete_job_records
from controller.volcano.preflight import PATH, read_openapi
from deploy.local.cluster import EmbeddedCluster
from tests.clock import Clock
from tests.controller.jobs.parts import Parts, make_parts
from tests.controller.running import eventually
from tests.controller.samples import (
    make_context,
    make_defaults,
    make_job,
    make_pipeline,
    make_record,
)

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

NODES = Kind("v1", "nodes", "Node", namespaced=False)
FAILED: list[Exception] = []
VOLUMES = "home=home-{user}, team=home-ada/shared/{user}, sets=sets:ro"
RANK_REPORT = Path(__file__).with_name("rank_report.py").read_text()


@dataclass
class World:
    """A controller over a cluster, and the files of its users."""

    parts: Parts
    pipeline: Pipeline
    cleaner: Callable[[Clock], MountPointCleaner]
    kube: Kube
    folder: Path
    sets: Path

    async def run(self, job_id: str, **fields: Any) -> JobRecord:
        await self.parts.submit(make_job(id=job_id, **fields))
        return await self.parts.drive_to_the_end(job_id)

    def seen(self, name: str) -> Any:
        return json.loads((self.folder / name).read_text())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    store = Store(f"sqlite:///{tmp_path_factory.mktemp('shapes')}/store.db")
    await store.open()
    async with store.write() as transaction:
        await ensure_position(transaction, new_identity="test")
        term = await raise_term(transaction)
    async with (
        EmbeddedCluster() as cluster,
        Kube.connect(cluster.kubeconfig("controller")) as kube,
        Kube.connect(cluster.kubeconfig("admin")) as admin,
    ):
        settings = {"FUMAROLE_CONTROLLER_VOLUMES": VOLUMES}
        pipeline = make_pipeline(make_context(defaults=make_defaults(**settings)))
        informer = InformerCache(kube, instance="test", changed=lambda _job: None)
        watching = asyncio.create_task(informer.run())
        await informer.complete()
        parts = make_parts(
            kube=kube, store=store, informer=informer, pipeline=pipeline, term=term, instance="test"
        )
        # The first job creates the namespace; the claims belong to the deployment.
        await parts.submit(make_job(id="first", image="busybox", invocation={"command": ["true"]}))
        await parts.drive_to_the_end("first")
        home = await make_claim(cluster, admin, "home-ada")
        sets = await make_claim(cluster, admin, "sets")
        (node,) = await admin.list(NODES)
        network = node["metadata"]["labels"].get("embedded-cluster/pod-network", "none")
        if network == "none":
            pytest.skip("pods have no mounts or network of their own here")

        def make_cleaner(clock: Clock) -> MountPointCleaner:
            cluster = JobObjects(kube, instance="test")
            return MountPointCleaner(
                store, term=term, kube=kube, cluster=cluster, clock=clock, failed=FAILED.append
            )

        yield World(parts, pipeline, make_cleaner, kube, home, sets)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    await store.close()


async def make_claim(cluster: EmbeddedCluster, admin: Kube, name: str) -> Path:
    spec = {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    body = {"metadata": {"name": name}, "spec": spec}
    await admin.create(PERSISTENT_VOLUME_CLAIMS, body, "jobs")
    folder = cluster.claim_folder("jobs", name)

    async def made() -> bool:
        return folder.is_dir()

    await eventually(made, what=f"no folder of {name}")
    return folder


def python(*arguments: str) -> dict[str, Any]:
    return {"command": ["python3", "-c", RANK_REPORT, *arguments]}


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


async def test_a_missing_file_fails_the_job_and_is_named(
    world: World,
) -> None:
    record = await world.run(
        "missing",
        image="busybox",
        parameters={"data": {"type": "directory", "path": "/home/not here"}},
        output="/home/nor this",
        invocation={"command": ["true"]},
    )
    assert (record.state, record.reason) == ("FAILURE", "files")
    assert record.message is not None
    assert "/home/not here: is not there" in record.message
    assert "/home/nor this: is not there" in record.message
    assert not (world.folder / "not here").exists()
    assert not (world.folder / "nor this").exists()


async def test_a_link_into_another_owners_files_fails_the_job(world: World) -> None:
    (world.folder / "shared" / "ada").mkdir(parents=True)
    (world.folder / "shared" / "bob").mkdir()
    (world.folder / "shared" / "ada" / "mine").symlink_to("../bob")
    record = await world.run(
        "linked",
        image="busybox",
        parameters={"data": {"type": "directory", "path": "/team/mine"}},
        invocation={"command": ["true"]},
    )
    assert (record.state, record.reason) == ("FAILURE", "files")
    assert record.message == "/team/mine: leads out of its owner's files"


async def test_inputs_are_at_their_paths_and_read_only_ones_immutable(world: World) -> None:
    (world.folder / "out").mkdir()
    (world.folder / "in").mkdir()
    (world.folder / "in" / "a b").write_text("hello")
    (world.sets / "big").mkdir()
    script = 'cat "$1" > copied.txt; if echo x > "$2/x"; then exit 3; fi; echo y > "$3/y"'
    record = await world.run(
        "mounts",
        image="busybox",
        parameters={
            "file": {"type": "file", "path": "/home/in/a b", "read_only": True},
            "set": {"type": "directory", "path": "/sets/big"},
            "dir": {"type": "directory", "path": "/home/in"},
        },
        output="/home/out",
        invocation={
            "command": ["sh", "-c", script, "x", {"parameter": "file"}, {"parameter": "set"},
                        {"parameter": "dir"}],
        },
    )  # fmt: skip
    assert record.state == "SUCCESS", record.message
    assert (world.folder / "out" / "copied.txt").read_text() == "hello"
    assert (world.folder / "in" / "y").read_text() == "y\n"
    assert not (world.sets / "big" / "x").exists()


async def test_an_unscheduled_cleaner_holds_a_folder_for_a_minute(
    world: World, clock: Clock
) -> None:
    job = make_job(
        id="nowhere", image="busybox", parameters={"in": {"type": "directory", "path": "/home/in"}},
        output="/home/nowhere",
    )  # fmt: skip
    plan = await world.pipeline.plan(job)
    plan.volcano_job.tasks[0].template.more["nodeSelector"] = {"no": "node"}
    assert plan.nested_mounts is not None
    wanted = mount_points_of(plan.nested_mounts, plan.volcano_job)
    record = make_record(id="nowhere", namespace="jobs", spec=public_spec(job))
    older = make_record(id="older", namespace="jobs", spec=public_spec(job), uid="u")
    async with world.parts.store.write() as transaction:
        await insert_job(transaction, record, labels={})
        # As a job submitted by an older version: it holds no mount points, but may use the folder.
        await insert_job(transaction, older, labels={})
        await hold_mount_points(transaction, "nowhere", wanted)
        await record_missing_mount_points(transaction, "nowhere", {0})
        await release_mount_points(transaction, "nowhere", at=1.0)
    await world.cleaner(clock).clean_due()
    async with world.parts.store.write() as transaction:
        assert await hold_mount_points(transaction, "older", wanted), "it is not being cleaned"
        await release_mount_points(transaction, "older", at=1.0)
        await update_job(transaction, older, now=1.0, finished_at=1.0, state="SUCCESS")
    cleaning = asyncio.create_task(world.cleaner(clock).clean_due())

    async def ours() -> list[Any] | None:
        found = await world.kube.list(VCJOBS, "jobs")
        mine = f"mounts-{wanted.place[:20]}-"
        return [one for one in found if one["metadata"]["name"].startswith(mine)] or None

    (made,) = await eventually(ours)
    assert "fumarole.dev/instance" not in made["metadata"].get("labels", {}), "it is no job"
    async with world.parts.store.write() as transaction:
        assert not await hold_mount_points(transaction, "first", wanted)
    clock.now += 61
    await cleaning
    assert await ours() is None
    async with world.parts.store.write() as transaction:
        assert await hold_mount_points(transaction, "first", wanted)
    assert FAILED == []


SUM = 'cd "$1"; find . -type f -exec sha256sum {} + | sort > /work/sums; cat /work/sums'


async def test_a_staged_data_set_has_the_same_bytes_and_is_read_only(world: World) -> None:
    (world.folder / "copied").mkdir()
    (world.sets / "small" / "deep").mkdir(parents=True)
    parts = {"a": os.urandom(300_000), "deep/b c": b"hello"}
    for name, content in parts.items():
        (world.sets / "small" / name).write_bytes(content)
    for policy in ("staged", "memory"):
        record = await world.run(
            f"copied-{policy}",
            image="busybox",
            output="/home/copied",
            topology={"numa": "best-effort"},
            parameters={
                "set": {"type": "directory", "path": "/sets/small", "policy": policy,
                        "size_limit": "1Mi"},
                "one": {"type": "file", "path": "/sets/small/a", "policy": policy,
                        "size_limit": "1Mi"},
            },
            invocation={
                "command": ["sh", "-c", SUM + '; cmp "$2" a || exit 4; ! touch mine || exit 3', "x",
                            {"parameter": "set"}, {"parameter": "one"}],
            },
        )  # fmt: skip
        assert record.state == "SUCCESS", record.message
        told = (world.folder / "copied" / "sums").read_text().splitlines()
        sums = {name: hashlib.sha256(content).hexdigest() for name, content in parts.items()}
        assert sorted(told) == sorted(f"{digest}  ./{name}" for name, digest in sums.items())
    assert not (world.sets / "small" / "mine").exists()


async def test_an_oversize_or_removed_data_set_fails_the_job_with_its_name(
    world: World,
) -> None:
    (world.sets / "large").mkdir()
    (world.sets / "large" / "x").write_bytes(bytes(2 << 20))
    (world.sets / "removed").mkdir()
    sets = {
        name: {"type": "directory", "path": f"/sets/{name}", "policy": "staged",
               "size_limit": "1Mi"}
        for name in ("large", "removed")
    }  # fmt: skip
    job = make_job(id="spoilt", image="busybox", invocation={"command": ["true"]}, parameters=sets)
    await world.parts.submit(job)
    (world.sets / "removed").rmdir()
    record = await world.parts.drive_to_the_end("spoilt")
    assert (record.state, record.reason) == ("FAILURE", "data")
    assert record.message is not None
    large, removed = record.message.split("; ")
    assert large.startswith("/sets/large: is too large: it takes ")
    assert removed == "/sets/removed: is not there"
    assert not (world.sets / "removed").exists()


async def test_writes_to_a_shared_data_set_are_refused_in_every_rank(world: World) -> None:
    (world.folder / "all").mkdir()
    (world.folder / "all" / "x").write_text("hello")
    script = 'grep -q hello "$1/x" && ! touch "$1/y" && ! rm "$1/x" && ! echo z > "$1/x"'
    record = await world.run(
        "shared",
        image="busybox",
        replicas=2,
        parameters={"set": {"type": "directory", "path": "/home/all", "policy": "shared"}},
        invocation={"command": ["sh", "-c", script, "x", {"parameter": "set"}]},
    )
    assert record.state == "SUCCESS", record.message
    assert (world.folder / "all" / "x").read_text() == "hello"
    assert len(list((world.folder / "all").iterdir())) == 1


TRAIN = """
import json, os
if os.environ["RANK"] == "0":
    points, slope = [(x, 3.5 * x) for x in range(1, 6)], 0.0
    for _ in range(int(os.environ["EPOCHS"])):
        slope -= 0.01 * sum(2 * x * (slope * x - y) for x, y in points) / len(points)
    os.mkdir("artefacts")
    json.dump({"slope": slope}, open("artefacts/model.json", "w"))
"""
QUANTIZE = """
import json, os, sys
folder, bits = sys.argv[1], int(sys.argv[2])
slope, scale = json.load(open(folder + "/model.json"))["slope"], 4 / (2 ** (bits - 1) - 1)
try:
    open(folder + "/mine", "w")
except OSError:
    os.mkdir("artefacts")
    json.dump({"slope": round(slope / scale), "scale": scale}, open("artefacts/q.json", "w"))
else:
    sys.exit("a predecessor's artefacts could be written")
"""
CONVERT = """
import json, os, struct, sys
made = json.load(open(sys.argv[1] + "/q.json"))
os.mkdir("artefacts")
with open("artefacts/model.bin", "wb") as file:
    file.write(struct.pack("<4sbd", b"TINY", made["slope"], made["scale"]))
"""


def chain(name: str, *, bits: int) -> list[Job]:
    """Return three jobs: one that trains, one that quantizes, and one that converts."""

    def program(text: str, *arguments: str, **environment: Any) -> dict[str, Any]:
        words = [{"parameter": one} for one in arguments]
        return {"command": ["python3", "-c", text, *words], "environment": environment}

    def made_by(job: str) -> dict[str, Any]:
        return {"type": "artefacts", "job": f"{name}-{job}"}

    epochs, width = {"type": "integer", "value": 60}, {"type": "integer", "value": bits}
    wanted: dict[str, dict[str, Any]] = {
        "train": {
            "kind": "training",
            "framework": "pytorch",
            "tasks": [{"name": "master"}, {"name": "worker"}],
            "parameters": {"epochs": epochs},
            "invocation": program(TRAIN, EPOCHS={"parameter": "epochs"}),
        },
        "small": {
            "kind": "quantization",
            "after": [f"{name}-train"],
            "parameters": {"model": made_by("train"), "bits": width},
            "invocation": program(QUANTIZE, "model", "bits"),
        },
        "tiny": {
            "kind": "conversion",
            "after": [f"{name}-small"],
            "parameters": {"model": made_by("small")},
            "invocation": program(CONVERT, "model"),
        },
    }
    return [
        make_job(id=f"{name}-{job}", image="python", output=f"/home/{name}/{job}", **fields)
        for job, fields in wanted.items()
    ]


async def test_a_chain_passes_artefacts_and_outlives_job_records(
    world: World,
) -> None:
    for job in ("train", "small", "tiny"):
        (world.folder / "chain" / job).mkdir(parents=True)
    results = await world.parts.submissions.submit(chain("chain", bits=8), "atomic")
    assert [one.result for one in results] == ["created"] * 3, results
    for job in ("train", "small", "tiny"):
        record = await world.parts.drive_to_the_end(f"chain-{job}")
        assert record.state == "SUCCESS", record.message
        async with world.parts.store.write() as transaction:
            await delete_job_records(transaction, [record.id], at=time.time())
    made = (world.folder / "chain" / "tiny" / "artefacts" / "model.bin").read_bytes()
    name, slope, scale = struct.unpack("<4sbd", made)
    assert name == b"TINY"
    assert abs(slope * scale - 3.5) < 0.05
    assert not (world.folder / "chain" / "train" / "artefacts" / "mine").exists()


async def test_a_chain_stops_at_a_failed_job(world: World) -> None:
    for job in ("train", "small", "tiny"):
        (world.folder / "broken" / job).mkdir(parents=True)
    await world.parts.submissions.submit(chain("broken", bits=1), "atomic")
    ended = [await world.parts.drive_to_the_end(f"broken-{job}") for job in ("train", "small")]
    assert [one.state for one in ended] == ["SUCCESS", "FAILURE"]
    assert ended[1].reason == "exit_code"
    last = await world.parts.drive_to_the_end("broken-tiny")
    assert (last.state, last.reason, last.uid) == ("FAILURE", "predecessor", None)
    assert not any((world.folder / "broken" / "tiny").iterdir())


async def test_missing_artefacts_fail_the_reading_job(world: World) -> None:
    (world.folder / "none").mkdir()
    true = {"image": "busybox", "invocation": {"command": ["true"]}}
    reads = {"model": {"type": "artefacts", "job": "makes-none"}}
    assert (await world.run("makes-none", output="/home/none", **true)).state == "SUCCESS"
    record = await world.run("reads-none", after=["makes-none"], parameters=reads, **true)
    assert (record.reason, record.message) == ("files", "/home/none/artefacts: is not there")


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
