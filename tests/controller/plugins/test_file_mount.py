from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from controller.jobs.spec.problems import MOST_PROBLEMS
from controller.plugins.file_mount import CHECK, CLEAN
from tests.controller.plugins.plans import plan_of, pod_of, problems_of

SETTINGS = {
    "FUMAROLE_CONTROLLER_VOLUMES": "home=home-{user}, sets=datasets/public:ro, team=cephfs/{user}"
}
DATA: dict[str, Any] = {"data": {"type": "directory", "path": "/home/set1"}}


async def test_a_directory_is_mounted_from_its_owners_claim_under_its_name() -> None:
    pod = await pod_of(settings=SETTINGS, parameters=DATA)
    assert {"name": "files-0", "persistentVolumeClaim": {"claimName": "home-ada"}} in pod["volumes"]
    mount = {"name": "files-0", "mountPath": "/work/set1", "subPath": "set1"}
    assert mount in pod["containers"][0]["volumeMounts"]


async def test_read_only_mounts_are_read_only() -> None:
    parameters = {
        "a": {"type": "file", "path": "/home/a", "read_only": True},
        "b": {"type": "file", "path": "/home/b"},
        "c": {"type": "directory", "path": "/sets/c"},
    }
    pod = await pod_of(settings=SETTINGS, parameters=parameters)
    mounts = {one["mountPath"]: one for one in pod["containers"][0]["volumeMounts"]}
    assert mounts["/work/a"]["readOnly"] is True
    assert "readOnly" not in mounts["/work/b"]
    assert mounts["/work/c"]["readOnly"] is True, "a volume that is read-only stays so"
    assert mounts["/work/c"]["subPath"] == "public/c"


async def test_the_output_folder_is_the_working_directory_and_is_mounted_first() -> None:
    pod = await pod_of(settings=SETTINGS, parameters=DATA, output="/home/Jobs/train")
    container = pod["containers"][0]
    paths = [one["mountPath"] for one in container["volumeMounts"]]
    assert paths.index("/work") < paths.index("/work/set1")
    assert container["volumeMounts"][0]["subPath"] == "Jobs/train"
    assert container["workingDir"] == "/work"
    assert "work" not in [one["name"] for one in pod["volumes"]], "nothing lies over it"


async def test_a_program_receives_the_paths_of_its_files() -> None:
    parameters = {
        **DATA,
        "many": {"type": "file", "path": ["/home/x/one", "/home/y/two"]},
    }
    invocation = {
        "command": ["run", {"parameter": "data", "prefix": "--in="}, {"parameter": "many"}],
        "environment": {"ALL": {"parameter": "many", "separator": ":"}},
    }
    pod = await pod_of(settings=SETTINGS, parameters=parameters, invocation=invocation)
    container = pod["containers"][0]
    assert container["command"] == ["run", "--in=/work/set1", "/work/one", "/work/two"]
    assert {"name": "ALL", "value": "/work/one:/work/two"} in container["env"]


async def test_a_job_without_files_has_no_init_container() -> None:
    pod = await pod_of(settings=SETTINGS)
    assert "initContainers" not in pod
    assert not [one for one in pod["volumes"] if "persistentVolumeClaim" in one]


async def test_every_task_gets_the_files() -> None:
    plan = await plan_of(settings=SETTINGS, parameters=DATA, tasks=[{"name": "a"}, {"name": "b"}])
    for task in plan.volcano_job.tasks:
        assert [one.name for one in task.template.init_containers] == ["fumarole-files"]
        assert "/work/set1" in [one.path for one in task.template.containers[0].mounts]


async def test_artefacts_are_mounted_read_only_under_their_jobs_id() -> None:
    found = {"type": "artefacts", "job": "t1", "path": "/home/runs/1/artefacts"}
    words = ["run", {"parameter": "model"}]
    pod = await pod_of(
        settings=SETTINGS, output="/home/runs/2", after=["t1"], parameters={"model": found},
        invocation={"command": words},
    )  # fmt: skip
    container = pod["containers"][0]
    assert {
        "name": "files-0", "mountPath": "/work/t1", "subPath": "runs/1/artefacts", "readOnly": True,
    } in container["volumeMounts"]  # fmt: skip
    assert container["command"] == ["run", "/work/t1"]
    parameters = {"model": found, "same": {"type": "directory", "path": "/sets/t1"}}
    problems = await problems_of(settings=SETTINGS, after=["t1"], parameters=parameters)
    assert set(problems) == {"parameters.model.job", "parameters.same.path"}
    plan = await plan_of(
        settings=SETTINGS, output="/home/runs/2", after=["t1"], parameters={"model": found}
    )
    # The job's own artefacts, in the same folder, are not listed.
    assert plan.nested_mounts is not None
    assert plan.nested_mounts.names == ("t1",)
    look = pod["initContainers"][0]["command"]
    assert look[-5:] == [
        "directory", "/volumes/files-0", "runs/1/artefacts", "/home/runs/1/artefacts", "t1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "paths"),
    [
        ({"parameters": {"a": {"type": "file", "path": "/nowhere/x"}}}, {"parameters.a.path"}),
        ({"parameters": {"a": {"type": "file", "path": "/home/x"},
                         "b": {"type": "file", "path": "/home/x/"}}},
         {"parameters.a.path", "parameters.b.path"}),
        ({"parameters": {"a": {"type": "file", "path": ["/home/1/x", "/home/2/x"]}}},
         {"parameters.a.path[0]", "parameters.a.path[1]"}),
        ({"parameters": {"a": {"type": "file", "path": "/home/x:y"}}}, {"parameters.a.path"}),
        ({"output": "/sets/out"}, {"output"}),
        ({"output": "/home/x", "parameters": {"a": {"type": "directory", "path": "/home/x"}}},
         {"output", "parameters.a.path"}),
        ({"owner": {"user": "Ada"}, "output": "/home/x"}, {"output"}),
    ],
)  # fmt: skip
async def test_an_invalid_mount_is_refused(fields: dict[str, Any], paths: set[str]) -> None:
    assert set(await problems_of(settings=SETTINGS, **fields)) == paths


async def test_a_program_that_works_in_the_root_folder_has_no_output_folder() -> None:
    settings = {**SETTINGS, "FUMAROLE_CONTROLLER_WORKING_DIRECTORY": "/"}
    assert set(await problems_of(settings=settings, output="/home/x")) == {"output"}


async def test_the_checking_container_has_limits_no_rights_and_read_only_mounts() -> None:
    pod = await pod_of(settings=SETTINGS, parameters=DATA, output="/team/out")
    (look,) = pod["initContainers"]
    assert look["resources"]["requests"] == look["resources"]["limits"]
    assert look["resources"]["limits"] == {"cpu": "50m", "memory": "32Mi"}
    assert look["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsUser": 65534,
    }
    assert all(one["readOnly"] for one in look["volumeMounts"])
    assert look["command"][4:] == [
        "directory", "/volumes/files-0/ada", "out", "/team/out", "work",
        "directory", "/volumes/files-1", "set1", "/home/set1", "set1",
    ]  # fmt: skip


async def test_the_checking_container_runs_as_the_owner_of_the_files_if_known() -> None:
    settings = {**SETTINGS, "FUMAROLE_CONTROLLER_RUN_AS_USER": "1234"}
    pod = await pod_of(settings=settings, parameters=DATA)
    assert pod["initContainers"][0]["securityContext"]["runAsUser"] == 1234


# The container's script, in a real shell


def look(folder: Path, *asked: tuple[str, str], note: str = "") -> tuple[int, list[str]]:
    """Run the check over *folder*, an owner's; return its exit code and its messages."""
    log = folder.parent / "log"
    log.write_text("")
    script = CHECK.replace("/dev/termination-log", str(log))
    arguments = [
        word
        for kind, rest in asked
        for name in [f"/home/{rest}" if rest else "/home"]
        for word in (kind, str(folder), rest, name, name.rpartition("/")[2])
    ]
    command, environment = ["/bin/sh", "-c", script, "x", *arguments], {"NOTE_MISSING": note}
    done = subprocess.run(command, check=False, timeout=30, env=os.environ | environment)
    return done.returncode, log.read_text().splitlines()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "ada"
    (folder / "set 1" / "deep").mkdir(parents=True)
    (folder / "set 1" / "a").write_text("x")
    (folder / "within").symlink_to("set 1")
    (folder / "out").symlink_to("../bob")
    (folder / "dangling").symlink_to("nowhere")
    (tmp_path / "bob").mkdir()
    (tmp_path / "bob" / "secret").write_text("x")
    (tmp_path / "adabob").mkdir()
    (folder / "beside").symlink_to(tmp_path / "adabob")
    return folder


def test_existing_files_pass_the_check(files: Path) -> None:
    asked = [("directory", "set 1"), ("file", "set 1/a"), ("directory", ""),
             ("directory", "within/deep")]  # fmt: skip
    assert look(files, *asked) == (0, [])


def test_all_missing_files_are_named(files: Path) -> None:
    asked = [("directory", "set 1"), ("directory", "set 2"), ("file", "$(id)/x'\""),
             ("file", "dangling")]  # fmt: skip
    assert look(files, *asked) == (
        1,
        [
            "/home/set 2: is not there",
            "/home/$(id)/x'\": is not there",
            "/home/dangling: is not there",
        ],
    )


def test_a_file_and_a_directory_are_distinguished(files: Path) -> None:
    assert look(files, ("file", "set 1"), ("directory", "set 1/a")) == (
        1,
        ["/home/set 1: is no file", "/home/set 1/a: is no directory"],
    )


@pytest.mark.parametrize("rest", ["out", "out/secret", "beside"])
def test_a_symbolic_link_to_another_owner_is_refused(files: Path, rest: str) -> None:
    kind = "file" if rest.endswith("secret") else "directory"
    assert look(files, (kind, rest)) == (1, [f"/home/{rest}: leads out of its owner's files"])


def test_an_owner_without_a_folder_has_no_files(tmp_path: Path) -> None:
    assert look(tmp_path / "none", ("directory", "")) == (1, ["/home: is not there"])


# Mount points within the output folder


async def test_mount_points_within_the_output_folder_are_recorded_and_removable() -> None:
    plan = await plan_of(settings=SETTINGS, parameters=DATA, output="/team/out")
    nested = plan.nested_mounts
    assert nested is not None
    assert (nested.claim, nested.folder, nested.names) == ("cephfs", "ada/out", ("set1",))
    cleaner = nested.cleaner.manifest()
    assert cleaner["command"][4:] == ["/volumes/files-0/ada", "out"]
    assert cleaner["resources"]["limits"] == {"cpu": "50m", "memory": "32Mi"}
    (mount,) = cleaner["volumeMounts"]
    assert mount == {"name": "files-0", "mountPath": "/volumes/files-0"}
    (look,) = plan.volcano_job.tasks[0].template.init_containers
    assert [one.name for one in look.environment] == ["NOTE_MISSING"]


@pytest.mark.parametrize(
    ("settings", "fields"),
    [
        ({}, {"parameters": DATA}),
        ({}, {"output": "/home/out"}),
        ({"FUMAROLE_CONTROLLER_REMOVE_MOUNT_POINTS": "no"},
         {"parameters": DATA, "output": "/home/out"}),
    ],
)  # fmt: skip
async def test_without_mount_points_nothing_is_recorded(
    settings: dict[str, str], fields: dict[str, Any]
) -> None:
    plan = await plan_of(settings=SETTINGS | settings, **fields)
    assert plan.nested_mounts is None
    (look,) = plan.volcano_job.tasks[0].template.init_containers
    assert look.environment == []


async def test_a_copy_within_the_output_folder_prevents_its_cleaning() -> None:
    (name, given), *_ = DATA.items()
    copied = {name: {**given, "policy": "staged", "size_limit": "1Gi"}}
    plan = await plan_of(settings=SETTINGS, parameters=copied, output="/team/out")
    assert plan.nested_mounts is not None
    assert plan.nested_mounts.names == ()


def test_missing_mount_points_are_reported_by_number(files: Path) -> None:
    (files / "mine").mkdir()
    (files / "mine" / "deep").mkdir()
    (files / "mine" / "a").symlink_to("nowhere")
    asked = [("directory", "mine"), ("directory", "set 1"), ("directory", "set 1/deep"),
             ("file", "set 1/a"), ("directory", "")]  # fmt: skip
    assert look(files, *asked) == (0, [])
    # The last one is the volume itself, which keeps its own name.
    assert look(files, *asked, note="yes") == (0, ["1;4;"])
    wrong = [*asked, ("directory", "not here")]
    assert look(files, *wrong, note="yes") == (1, ["/home/not here: is not there"])


def clean(home: Path, rest: str, *names: str, until: float | None = None) -> int:
    """Run the script that removes mount points; return its exit code."""
    until = time.time() + 60 if until is None else until
    arguments = [str(home), rest, str(int(until)), *names]
    command = ["/bin/sh", "-c", CLEAN, "x", *arguments]
    return subprocess.run(command, check=False, timeout=30, cwd="/").returncode


def test_only_empty_mount_points_are_removed(files: Path) -> None:
    mine = files / "mine"
    for name in ("empty", "full", "-r", "a b"):
        (mine / name).mkdir(parents=True)
    (mine / "full" / "x").touch()
    (mine / "none").touch()
    (mine / "some").write_text("x")
    (mine / "link").symlink_to("../set 1/deep")
    (mine / "other").mkdir()
    names = ["empty", "full", "-r", "a b", "none", "some", "link", "gone"]
    assert clean(files, "mine", *names) == 0
    assert {one.name for one in mine.iterdir()} == {"full", "some", "link", "other"}
    assert (files / "set 1" / "deep").is_dir()


def test_nothing_is_removed_through_a_link_or_after_the_deadline(files: Path) -> None:
    (files.parent / "bob" / "empty").mkdir()
    assert clean(files, "out", "empty") == 1, "it leads to another owner"
    assert clean(files, "within", "deep") == 1, "other jobs may have it by its own name"
    assert (files / "set 1" / "deep").is_dir()
    assert (files.parent / "bob" / "empty").is_dir()
    assert clean(files, "not here", "empty") == 1
    (files / "empty").mkdir()
    assert clean(files, "", "empty", until=time.time() - 5) == 1
    assert (files / "empty").is_dir()
    assert clean(files, "", "empty") == 0
    assert not (files / "empty").exists()


async def test_file_mount_transfers_no_file_and_creates_no_folder() -> None:
    for word in ("cp ", "mv ", "mkdir", "touch", "rsync", "ln "):
        assert word not in CHECK
    pod = await pod_of(settings=SETTINGS, output="/home/out")
    assert all(one["readOnly"] for one in pod["initContainers"][0]["volumeMounts"])


async def test_at_most_a_hundred_unmountable_files_are_reported() -> None:
    paths = [f"/nowhere/{n}" for n in range(600)]
    files = {name: {"type": "file", "path": paths} for name in ("a", "b")}
    assert len(await problems_of(parameters=files)) == MOST_PROBLEMS


async def test_an_oversize_job_is_refused_before_any_plugin() -> None:
    files = {"a": {"type": "file", "path": [f"/nowhere/{'d/' * 150}{n}" for n in range(900)]}}
    found = await problems_of(parameters=files)
    assert list(found) == [""]
    assert found[""].endswith("bytes are more than 262144")
