"""Tests data sets and artefacts, as the programs in the pods see them."""

from __future__ import annotations

import hashlib
import os
import struct
import time
from typing import Any

import pytest

from controller.jobs.spec.model import Job
from controller.store.jobs.tombstones import delete_job_records
from tests.controller.jobs.reconcile.pods.world import World
from tests.controller.samples import make_job

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

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
        text = (world.folder / "copied" / "sums").read_text().splitlines()
        sums = {name: hashlib.sha256(content).hexdigest() for name, content in parts.items()}
        assert sorted(text) == sorted(f"{digest}  ./{name}" for name, digest in sums.items())
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


def chain(name: str) -> list[Job]:
    """Return three jobs: one that trains, one that quantizes, and one that converts."""

    def program(text: str, *arguments: str, **environment: Any) -> dict[str, Any]:
        words = [{"parameter": one} for one in arguments]
        return {"command": ["python3", "-c", text, *words], "environment": environment}

    def made_by(job: str) -> dict[str, Any]:
        return {"type": "artefacts", "job": f"{name}-{job}"}

    epochs, width = {"type": "integer", "value": 60}, {"type": "integer", "value": 8}
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
    results = await world.parts.submissions.submit(chain("chain"), "atomic")
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


async def test_missing_artefacts_fail_the_reading_job(world: World) -> None:
    (world.folder / "none").mkdir()
    true = {"image": "busybox", "invocation": {"command": ["true"]}}
    reads = {"model": {"type": "artefacts", "job": "makes-none"}}
    assert (await world.run("makes-none", output="/home/none", **true)).state == "SUCCESS"
    record = await world.run("reads-none", after=["makes-none"], parameters=reads, **true)
    assert (record.reason, record.message) == ("files", "/home/none/artefacts: is not there")
