from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from controller.plugins.file_mount import CHECK
from tests.controller.plugins.making import plan_of, pod_of, problems_of

SETTINGS = {
    "FUMAROLE_CONTROLLER_VOLUMES": "home=home-{user}, sets=datasets/public:ro, team=cephfs/{user}"
}
DATA: dict[str, Any] = {"data": {"type": "directory", "path": "/home/set1"}}


async def test_a_directory_is_mounted_from_its_owners_claim_under_its_name() -> None:
    pod = await pod_of(settings=SETTINGS, parameters=DATA)
    assert {"name": "files-0", "persistentVolumeClaim": {"claimName": "home-ada"}} in pod["volumes"]
    mount = {"name": "files-0", "mountPath": "/work/set1", "subPath": "set1"}
    assert mount in pod["containers"][0]["volumeMounts"]


async def test_what_is_asked_to_be_read_only_is() -> None:
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


async def test_a_program_receives_where_its_files_are() -> None:
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


async def test_a_job_without_files_has_no_container_of_ours() -> None:
    pod = await pod_of(settings=SETTINGS)
    assert "initContainers" not in pod
    assert not [one for one in pod["volumes"] if "persistentVolumeClaim" in one]


async def test_every_task_gets_the_files() -> None:
    plan = await plan_of(settings=SETTINGS, parameters=DATA, tasks=[{"name": "a"}, {"name": "b"}])
    for task in plan.volcano_job.tasks:
        assert [one.name for one in task.template.init_containers] == ["fumarole-files"]
        assert "/work/set1" in [one.path for one in task.template.containers[0].mounts]


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
async def test_what_cannot_be_mounted_is_refused(fields: dict[str, Any], paths: set[str]) -> None:
    assert set(await problems_of(settings=SETTINGS, **fields)) == paths


async def test_a_program_that_works_in_the_root_folder_has_no_output_folder() -> None:
    settings = {**SETTINGS, "FUMAROLE_CONTROLLER_WORKING_DIRECTORY": "/"}
    assert set(await problems_of(settings=settings, output="/home/x")) == {"output"}


async def test_who_looks_has_limits_no_rights_and_only_reads() -> None:
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
        "directory", "/volumes/files-0/ada", "out", "/team/out",
        "directory", "/volumes/files-1", "set1", "/home/set1",
    ]  # fmt: skip


async def test_who_looks_is_whom_the_files_belong_to_where_that_is_known() -> None:
    settings = {**SETTINGS, "FUMAROLE_CONTROLLER_RUN_AS_USER": "1234"}
    pod = await pod_of(settings=settings, parameters=DATA)
    assert pod["initContainers"][0]["securityContext"]["runAsUser"] == 1234


# What the container says, with a real shell


def look(folder: Path, *asked: tuple[str, str]) -> tuple[int, list[str]]:
    """Run the check over *folder*, an owner's, and return its exit code and what it tells."""
    log = folder.parent / "log"
    log.write_text("")
    script = CHECK.replace("/dev/termination-log", str(log))
    arguments = [
        word
        for kind, rest in asked
        for word in (kind, str(folder), rest, f"/home/{rest}" if rest else "/home")
    ]
    done = subprocess.run(["/bin/sh", "-c", script, "x", *arguments], check=False, timeout=30)
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


def test_what_is_there_is_fine(files: Path) -> None:
    asked = [("directory", "set 1"), ("file", "set 1/a"), ("directory", ""),
             ("directory", "within/deep")]  # fmt: skip
    assert look(files, *asked) == (0, [])


def test_everything_that_is_missing_is_named(files: Path) -> None:
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


def test_a_file_is_no_directory_nor_the_other_way_round(files: Path) -> None:
    assert look(files, ("file", "set 1"), ("directory", "set 1/a")) == (
        1,
        ["/home/set 1: is no file", "/home/set 1/a: is no directory"],
    )


@pytest.mark.parametrize("rest", ["out", "out/secret", "beside"])
def test_a_link_that_leads_to_another_owner_is_refused(files: Path, rest: str) -> None:
    kind = "file" if rest.endswith("secret") else "directory"
    assert look(files, (kind, rest)) == (1, [f"/home/{rest}: leads out of its owner's files"])


def test_an_owner_without_a_folder_has_no_files(tmp_path: Path) -> None:
    assert look(tmp_path / "none", ("directory", "")) == (1, ["/home: is not there"])
