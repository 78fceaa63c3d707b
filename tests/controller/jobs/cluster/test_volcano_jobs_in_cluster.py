"""Tests VolcanoJobs and Commands of jobs on the embedded cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import AsyncMock, patch

import pytest

from controller.jobs.cluster.job_objects import JobObjects
from controller.jobs.cluster.verdicts import NameTaken
from controller.jobs.pipeline.builder import Companion
from controller.kube.errors import NotFound
from controller.kube.kinds import COMMANDS, VCJOBS, Kind
from controller.volcano.names import INSTANCE_LABEL, JOB_LABEL
from tests.controller.jobs.two_accounts import TwoAccounts, make_vcjob
from tests.controller.running import eventually
from tests.controller.samples import make_job, make_pipeline

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]


@pytest.mark.parametrize("owner", ["another", ""], ids=["foreign", "ours"])
async def test_only_the_controllers_command_is_withdrawn(
    both: TwoAccounts, objects: JobObjects, instance: str, owner: str
) -> None:
    labels = {INSTANCE_LABEL: owner or instance, JOB_LABEL: "wd"}
    name, target = "j-wd.command", {"kind": "Job", "name": "j-none"}
    # Volcano carries out a command by deleting it. This finalizer keeps the command.
    metadata = {"name": name, "labels": labels, "finalizers": ["example.com/held"]}
    body = {"metadata": metadata, "action": "AbortJob", "target": target}
    await both.admin.create(COMMANDS, body, "jobs")

    async def is_done() -> bool:
        found = await both.admin.get(COMMANDS, name, "jobs")
        return "deletionTimestamp" in found["metadata"]

    deleted = AsyncMock(wraps=both.kube.delete)
    with patch.object(both.kube, "delete", deleted):
        await objects.withdraw_command("wd", "jobs")
        await objects.withdraw_command("none", "jobs")
    assert deleted.await_count == (0 if owner else 1)
    await eventually(is_done)
    await both.admin.merge(COMMANDS, name, {"metadata": {"finalizers": None}}, "jobs")


async def test_a_job_is_stopped_although_a_foreign_command_has_its_name(
    both: TwoAccounts, objects: JobObjects, instance: str
) -> None:
    job = await make_vcjob(both.admin, "taken", instance)
    metadata = {"name": "j-taken.command", "finalizers": ["example.com/held"]}
    target = {"kind": "Job", "name": "j-none"}
    body = {"metadata": metadata, "action": "AbortJob", "target": target}
    await both.admin.create(COMMANDS, body, "jobs")
    await objects.command("taken", job, "AbortJob")

    async def is_stopped() -> bool:
        found = await both.admin.get(VCJOBS, job.name, "jobs")
        state = found.get("status", {}).get("state", {})  # the first status may come late
        return bool(state.get("phase") == "Aborted")

    await eventually(is_stopped)
    # A command that Volcano has not carried out is withdrawn under that name too.
    labels = {INSTANCE_LABEL: instance, JOB_LABEL: "taken"}
    second = {**body, "metadata": {**metadata, "name": "j-taken.command-2", "labels": labels}}
    await both.admin.create(COMMANDS, second, "jobs")
    deleted = AsyncMock(wraps=both.kube.delete)
    with patch.object(both.kube, "delete", deleted):
        await objects.withdraw_command("taken", "jobs")
    assert [call.args[1] for call in deleted.await_args_list] == ["j-taken.command-2"]
    for name in ("j-taken.command", "j-taken.command-2"):
        await both.admin.merge(COMMANDS, name, {"metadata": {"finalizers": None}}, "jobs")


@pytest.mark.parametrize("left", [{}, {INSTANCE_LABEL: "another"}, {INSTANCE_LABEL: "test"}])
async def test_labels_changed_by_admission_are_restored_on_a_volcano_job(
    both: TwoAccounts, left: dict[str, str]
) -> None:
    # As a policy engine that allows listed labels only: the controller finds objects by label.
    create = both.kube.create

    async def admitted(kind: Kind, body: dict[str, Any], namespace: str) -> dict[str, Any]:
        return await create(
            kind, {**body, "metadata": {**body["metadata"], "labels": left}}, namespace
        )

    plan = await make_pipeline().plan(make_job(id="relabelled"))
    with patch.object(both.kube, "create", admitted), pytest.raises(NameTaken, match="labels"):
        await JobObjects(both.kube, instance="test").ensure_volcano_job(plan)

    async def is_gone() -> bool:
        try:
            await both.admin.get(VCJOBS, "j-relabelled", "jobs")
        except NotFound:
            return True
        return False

    await eventually(is_gone)


async def test_a_volcano_job_is_created_once(both: TwoAccounts, instance: str) -> None:
    objects = JobObjects(both.kube, instance="test")
    plan = await make_pipeline().plan(make_job(id="once"))
    first = await objects.ensure_volcano_job(plan)
    assert (await objects.ensure_volcano_job(plan)).uid == first.uid
    other = JobObjects(both.kube, instance="another")
    with pytest.raises(NameTaken):
        await other.ensure_volcano_job(plan)
    assert await other.find_volcano_job("jobs", "j-once", "once") is None
    await objects.remove_volcano_job("jobs", first.name, "of-another-one")
    found = await objects.find_volcano_job("jobs", "j-once", "once")
    assert found is not None
    # Somebody may have given it to another instance meanwhile.
    assert not await other.remove_volcano_job("jobs", first.name, first.uid, shown=False)
    assert await other.remove_volcano_job("jobs", first.name, "of-another-one", shown=False)
    assert await objects.find_volcano_job("jobs", "j-once", "once") is not None
    assert await objects.remove_volcano_job("jobs", first.name, first.uid, shown=False)
    assert await objects.find_volcano_job("jobs", "j-once", "once") is None
    await objects.remove_volcano_job("jobs", first.name, first.uid)


async def test_recovery_data_is_found_only_for_its_own_volcano_job(
    both: TwoAccounts, objects: JobObjects, instance: str
) -> None:
    job = await make_vcjob(both.admin, "start", instance)
    assert await objects.find_recovery_data(job) == {}
    kept = Companion(
        kind="ConfigMap", name="j-start.recovery", manifest={"data": {"a": "1"}}, when="after"
    )
    await objects.companions.ensure("start", "jobs", kept, owner=job)
    assert await objects.find_recovery_data(job) == {"a": "1"}
    later = replace(job, uid="of a later attempt")
    assert await objects.find_recovery_data(later) == {}
