"""Tests the files of a job, as the programs in its pods see them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from controller.jobs.cluster.mount_points import mount_points_of
from controller.jobs.spec.accepted import public_spec
from controller.kube.kinds import VCJOBS
from controller.store.jobs.folders import (
    hold_mount_points,
    record_missing_mount_points,
    release_mount_points,
)
from controller.store.jobs.job_rows import insert_job, update_job
from tests.clock import Clock
from tests.controller.jobs.reconcile.pods.world import FAILED, World
from tests.controller.running import eventually
from tests.controller.samples import make_job, make_record

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]


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
