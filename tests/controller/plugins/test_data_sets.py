from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from controller.jobs.spec.problems import problems_of as told_by
from controller.plugins.data_sets import STAGE
from tests.controller.plugins.plans import plan_of, pod_of, problems_of

SETTINGS = {"FUMAROLE_CONTROLLER_VOLUMES": "home=home-{user}, sets=datasets/public:ro"}


def data_set(policy: str, size: str | None = None, **fields: Any) -> dict[str, Any]:
    limit = {"size_limit": size} if size else {}
    return {"type": "directory", "path": "/sets/big", "policy": policy, **limit, **fields}


async def test_a_staged_data_set_has_a_volume_and_storage_request_of_its_size() -> None:
    pod = await pod_of(settings=SETTINGS, parameters={"a": data_set("staged", "20Gi")})
    assert {"name": "data-0", "emptyDir": {"sizeLimit": "20Gi"}} in pod["volumes"]
    assert not [one for one in pod["volumes"] if "hostPath" in one]
    (container,) = pod["containers"]
    assert container["resources"]["requests"]["ephemeral-storage"] == "20Gi"
    assert "ephemeral-storage" not in container["resources"]["limits"]
    mount = {"name": "data-0", "mountPath": "/work/big", "subPath": "data", "readOnly": True}
    assert mount in container["volumeMounts"]
    assert not [one for one in container["volumeMounts"] if one["name"].startswith("files")]
    (stage,) = pod["initContainers"]
    assert stage["name"] == "fumarole-data"
    assert stage["command"][4:] == [
        "directory", "/volumes/files-0/public", "big", "/sets/big", "/copies/data-0/data",
        str(20 * 2**30),
    ]  # fmt: skip
    assert [one.get("readOnly", False) for one in stage["volumeMounts"]] == [True, False]


async def test_an_in_memory_data_set_is_added_to_the_memory_request() -> None:
    asked = {"settings": SETTINGS, "resources": {"memory": "1Gi"}}
    pod = await pod_of(parameters={"a": data_set("memory", "512Mi")}, **asked)
    volume = {"name": "data-0", "emptyDir": {"sizeLimit": "512Mi", "medium": "Memory"}}
    assert volume in pod["volumes"]
    assert pod["containers"][0]["resources"]["limits"]["memory"] == "1Gi"
    assert pod["initContainers"][0]["resources"]["limits"]["memory"] == "544Mi"
    problems = await problems_of(parameters={"a": data_set("memory", "1000Mi")}, **asked)
    assert set(problems) == {"parameters.a.size_limit"}


async def test_a_shared_data_set_is_mounted_read_only_and_a_direct_one_unchanged() -> None:
    parameters = {"a": data_set("shared", path="/home/a"), "b": data_set("direct", path="/home/b")}
    pod = await pod_of(settings=SETTINGS, parameters=parameters)
    mounts = {one["mountPath"]: one for one in pod["containers"][0]["volumeMounts"]}
    assert mounts["/work/a"]["readOnly"] is True
    assert "readOnly" not in mounts["/work/b"]
    assert [one["name"] for one in pod["initContainers"]] == ["fumarole-files"]


async def test_copies_and_mounts_coexist_in_every_task() -> None:
    parameters = {
        "a": data_set("staged", "1Mi"),
        "b": {"type": "file", "path": ["/home/x", "/home/y"], "policy": "memory",
              "size_limit": "4Mi"},
        "c": {"type": "directory", "path": "/home/c"},
    }  # fmt: skip
    plan = await plan_of(
        settings=SETTINGS, parameters=parameters, output="/home/out",
        tasks=[{"name": "a"}, {"name": "b"}], topology={"numa": "best-effort"},
        invocation={"command": ["run", {"parameter": "a"}, {"parameter": "b"}]},
    )  # fmt: skip
    for task in plan.volcano_job.tasks:
        assert [one.name for one in task.template.init_containers] == [
            "fumarole-files", "fumarole-data",
        ]  # fmt: skip
        assert all(one.resources["cpu"].milli == 1000 for one in task.template.init_containers)
        assert [one.name for one in task.template.volumes if one.name.startswith("data")] == [
            "data-0", "data-1", "data-2",
        ]  # fmt: skip
        command = task.template.containers[0].command
        assert command == ["run", "/work/big", "/work/x", "/work/y"]


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        (data_set("staged"), "parameters.a"),
        (data_set("shared", "1Gi"), "parameters.a"),
        (data_set("staged", "0"), "parameters.a.size_limit"),
        (data_set("staged", "much"), "parameters.a.size_limit"),
        (data_set("hostPath", "1Gi"), "parameters.a.policy"),
    ],
)
async def test_a_data_set_policy_requires_its_fields(fields: dict[str, Any], path: str) -> None:

    with pytest.raises(ValidationError) as caught:
        await problems_of(settings=SETTINGS, parameters={"a": fields})
    assert [one.path for one in told_by(caught.value)] == [path]


async def test_two_data_sets_of_one_name_are_refused_for_any_policy() -> None:
    parameters = {"a": data_set("staged", "1Gi"), "b": data_set("direct", path="/home/big")}
    problems = await problems_of(settings=SETTINGS, parameters=parameters)
    assert set(problems) == {"parameters.a.path", "parameters.b.path"}


# The container's script, in a real shell

BIG = 1 << 30


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Return an owner's folder with a data set, beside another owner's folder."""
    (tmp_path / "bob").mkdir()
    (tmp_path / "bob" / "secret").write_text("x")
    (tmp_path / "copies").mkdir()
    folder = tmp_path / "ada" / "a set"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "er" / "-n $(id)'\n").write_bytes(os.urandom(10_000))
    (folder / "empty").touch()
    (folder / "secret").write_text("mine")
    (folder / "secret").chmod(0o600)
    (folder / "within").symlink_to("deep")
    (folder / "out").symlink_to("../../bob")
    return tmp_path / "ada"


def stage(
    home: Path, kind: str, rest: str, limit: int = BIG, *, cp: str = ""
) -> tuple[int, list[str]]:
    """Copy *rest* of *home*, with a test's own ``cp`` if one is given."""
    folder = home.parent
    log = folder / "log"
    log.write_text("")
    path = os.environ["PATH"]
    if cp:
        (folder / "bin").mkdir(exist_ok=True)
        (folder / "bin" / "cp").write_text(f"#!/bin/sh\n{cp}\n")
        (folder / "bin" / "cp").chmod(0o755)
        path = f"{folder}/bin:{path}"
    script = STAGE.replace("/dev/termination-log", str(log))
    asked = [kind, str(home), rest, f"/home/{rest}", str(folder / "copies" / "data"), str(limit)]
    done = subprocess.run(
        ["/bin/sh", "-c", script, "x", *asked],
        env={**os.environ, "PATH": path}, check=False, timeout=60,
    )  # fmt: skip
    return done.returncode, log.read_text().splitlines()


def tree(folder: Path) -> dict[str, bytes | str]:
    return {
        str(one.relative_to(folder)): str(one.readlink()) if one.is_symlink() else one.read_bytes()
        for one in folder.rglob("*")
        if one.is_symlink() or one.is_file()
    }


def test_a_copy_has_the_same_bytes_and_is_world_readable(files: Path) -> None:
    assert stage(files, "directory", "a set") == (0, [])
    copy = files.parent / "copies" / "data"
    assert tree(copy) == tree(files / "a set")
    assert len(tree(copy)) == 5
    assert (copy / "secret").stat().st_mode & 0o444 == 0o444
    # A restarted node runs the script again.
    (copy / "deep").chmod(0o500)
    (files / "a set" / "empty").unlink()
    assert stage(files, "directory", "a set/within") == (0, [])
    assert list(tree(copy)) == ["er/-n $(id)'\n"]


def test_a_single_file_is_copied(files: Path) -> None:
    assert stage(files, "file", "a set/secret") == (0, [])
    assert (files.parent / "copies" / "data").read_text() == "mine"


@pytest.mark.parametrize(
    ("kind", "rest", "told"),
    [
        ("directory", "none", "is not there"),
        ("directory", "a set/secret", "is no directory"),
        ("file", "a set", "is no file"),
        ("directory", "a set/out", "leads out of its owner's files"),
        ("file", "a set/out/secret", "leads out of its owner's files"),
    ],
)
def test_a_file_that_cannot_be_copied_is_named(
    files: Path, kind: str, rest: str, told: str
) -> None:
    assert stage(files, kind, rest) == (1, [f"/home/{rest}: {told}"])
    assert not list((files.parent / "copies").iterdir())


def test_an_oversize_data_set_is_not_copied(files: Path) -> None:
    # Three blocks for the large file, one for a small one, and one per folder and link.
    takes = 4096 * (3 + 1 + 5 + 1) + 128 * 8
    assert stage(files, "directory", "a set", takes) == (0, [])
    shutil.rmtree(files.parent / "copies" / "data")
    status, (message,) = stage(files, "directory", "a set", takes - 1)
    assert (status, message) == (
        1,
        f"/home/a set: is too large: it takes {takes} bytes, and its size_limit is {takes - 1}",
    )
    assert not list((files.parent / "copies").iterdir())


@pytest.mark.parametrize(
    "change",
    ["rm -r 'deep'", "rm 'empty'; /bin/cp \"$@\"", "echo more >> 'empty'; /bin/cp \"$@\"",
     "/bin/cp \"$@\"; touch 'another'", "/bin/cp \"$@\"; printf mIne > 'secret'"],
)  # fmt: skip
def test_a_source_that_changes_during_the_copy_fails_it(files: Path, change: str) -> None:
    status, message = stage(
        files, "directory", "a set", cp=f"cd '{files}/a set'; sleep 0.05; {change}"
    )
    assert (status, message) == (1, ["/home/a set: was changed while it was copied"])


def test_a_change_within_the_same_second_is_detected(
    files: Path,
) -> None:
    secret = files / "a set" / "secret"
    programs = {
        "stat": """PATH=/usr/bin:/bin stat "$@" | sed 's/\\.[0-9]* /.000000000 /'""",
        "date": f"echo {int(secret.stat().st_ctime)}",
        "sleep": f"/bin/sleep 1.1; touch '{files.parent}/slept'",
    }
    (files.parent / "bin").mkdir()
    for name, script in programs.items():
        (files.parent / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
        (files.parent / "bin" / name).chmod(0o755)
    change = f"/bin/cp \"$@\"; printf mIne > '{secret}'"
    status, message = stage(files, "directory", "a set", cp=change)
    assert (status, message) == (1, ["/home/a set: was changed while it was copied"])
    assert (files.parent / "slept").exists()


def test_a_failed_copy_states_its_reason(files: Path) -> None:
    status, message = stage(files, "directory", "a set", cp="echo no space left; exit 1")
    assert (status, message) == (1, ["/home/a set: could not be copied: no space left"])


def test_an_incomplete_copy_fails(files: Path) -> None:
    status, message = stage(files, "directory", "a set", cp='mkdir "$4"')
    assert (status, message) == (1, ["/home/a set: could not be copied whole"])


def test_special_files_are_not_copied(files: Path) -> None:
    os.mkfifo(files / "a set" / "pipe")
    message = "/home/a set: holds what is no file, folder or link"
    assert stage(files, "directory", "a set") == (1, [message])
