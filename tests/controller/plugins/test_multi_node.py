from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from controller.plugins.multi_node import PREPARE
from tests.controller.plugins.plans import plan_of, pod_of, problems_of

TRAIN: dict[str, Any] = {
    "tasks": [
        {"name": "master"},
        {"name": "worker", "replicas": 3, "depends_on": ["master"]},
        {"name": "eval"},
    ]
}


async def data_of(**fields: Any) -> dict[str, str]:
    plan = await plan_of(**fields)
    (companion,) = [one for one in plan.companions if one.kind == "ConfigMap"]
    assert companion.when == "before", "pods cannot start without it"
    data: dict[str, str] = companion.manifest["data"]
    return data


async def test_the_files_list_number_and_addresses_of_ranks() -> None:
    data = await data_of(replicas=2)
    assert data == {
        "job_id.txt": "j1\n",
        "number_of_nodes.txt": "2\n",
        "nodes.txt": "j-j1-job-0.j-j1\nj-j1-job-1.j-j1\n",
        "node-0.txt": "j-j1-job-0.j-j1\n",
        "node-1.txt": "j-j1-job-1.j-j1\n",
    }


async def test_each_line_of_the_node_file_matches_the_ranks_own_file() -> None:
    data = await data_of(**TRAIN)
    lines = data["nodes.txt"].splitlines()
    assert [data[f"node-{rank}.txt"].strip() for rank in range(len(lines))] == lines
    assert data["number_of_nodes.txt"] == "5\n"


async def test_a_single_replica_needs_no_init_container() -> None:
    pod = await pod_of(resources={"cpu": 1.5})
    assert "initContainers" not in pod
    (volume,) = [one for one in pod["volumes"] if one["name"] == "ranks"]
    config_map, downward = volume["projected"]["sources"]
    assert config_map == {"configMap": {"name": "j-j1.ranks"}}
    rank, cores = downward["downwardAPI"]["items"]
    assert rank == {
        "path": "rank.txt",
        "fieldRef": {"fieldPath": "metadata.annotations['fumarole.dev/rank']"},
    }
    assert cores == {
        "path": "cores.txt",
        "fieldRef": {"fieldPath": "metadata.annotations['fumarole.dev/cores']"},
    }
    (task,) = (await plan_of(resources={"cpu": 1.5})).volcano_job.tasks
    annotations = task.template.annotations
    assert annotations["fumarole.dev/rank"] == "0\n"
    assert annotations["fumarole.dev/cores"] == "2\n"
    mount = {"name": "ranks", "mountPath": "/etc/ucloud", "readOnly": True}
    assert mount in pod["containers"][0]["volumeMounts"]


async def test_a_task_of_several_replicas_needs_an_init_container() -> None:
    plan = await plan_of(**TRAIN)
    master, worker, evaluation = plan.volcano_job.tasks
    assert master.template.init_containers == []
    assert master.template.annotations["fumarole.dev/rank"] == "0\n"
    assert evaluation.template.init_containers == []
    assert evaluation.template.annotations["fumarole.dev/rank"] == "4\n"
    (helper,) = worker.template.init_containers
    assert helper.command[4:] == ["/ranks/source", "/ranks/written", "1", "0"]
    manifest = helper.manifest()
    assert manifest["resources"]["requests"] == manifest["resources"]["limits"]
    assert manifest["env"] == [
        {
            "name": "INDEX",
            "valueFrom": {
                "fieldRef": {"fieldPath": "metadata.annotations['volcano.sh/task-index']"}
            },
        }
    ]


async def test_no_rank_waits_for_the_name_of_a_rank_that_depends_on_it() -> None:
    settings = {"FUMAROLE_CONTROLLER_WAIT_FOR_NAMES_SECONDS": "60"}
    plan = await plan_of(settings=settings, **TRAIN)
    for task in plan.volcano_job.tasks:
        (helper,) = task.template.init_containers
        assert helper.command[7:] == ["60", "0-0", "4-4"]


async def test_a_job_of_one_rank_waits_for_no_name() -> None:
    settings = {"FUMAROLE_CONTROLLER_WAIT_FOR_NAMES_SECONDS": "60"}
    assert "initContainers" not in await pod_of(settings=settings)


async def test_the_deployment_configures_the_folder() -> None:
    pod = await pod_of(settings={"FUMAROLE_CONTROLLER_RANKS_FOLDER": "/etc/ranks"})
    assert "/etc/ranks" in [one["mountPath"] for one in pod["containers"][0]["volumeMounts"]]


async def test_more_ranks_than_can_be_written_are_refused() -> None:
    tasks = [{"name": f"t{number}", "replicas": 1000} for number in range(32)]
    assert "replicas" in await problems_of(tasks=tasks)


def prepare(folder: Path, *, index: int, first: int, ranges: list[str], names: str = "") -> str:
    """Run the container's script with a ``getent`` that resolves *names*."""
    source, target, programs = folder / "source", folder / "target", folder / "bin"
    for one in (source, target, programs):
        one.mkdir()
    for rank in range(4):
        (source / f"node-{rank}.txt").write_text(f"node{rank}\n")
    (source / "job_id.txt").write_text("j1\n")
    (source / "cores.txt").write_text("3")
    known = programs / "getent"
    known.write_text(f'#!/bin/sh\ncase " {names} " in *" $2 "*) exit 0;; esac; exit 2\n')
    (programs / "nslookup").write_text("#!/bin/sh\nexit 1\n")
    for program in programs.iterdir():
        program.chmod(0o755)
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "INDEX": str(index)}
    arguments = [str(source), str(target), str(first), "1", *ranges]
    done = subprocess.run(
        ["/bin/sh", "-c", PREPARE, "x", *arguments],
        check=True, timeout=30, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert (target / "job_id.txt").read_text() == "j1\n"
    assert (target / "rank.txt").read_text() == f"{first + index}\n"
    assert (target / "cores.txt").read_text() == "3\n"
    return done.stdout


def test_the_rank_is_written_beside_the_known_addresses(tmp_path: Path) -> None:
    assert prepare(tmp_path, index=2, first=1, ranges=[]) == ""


def test_names_are_awaited_until_all_resolve(tmp_path: Path) -> None:
    said = prepare(tmp_path, index=0, first=0, ranges=["0-1", "3-3"], names="node0 node1 node3")
    assert said == ""


def test_an_unresolvable_name_times_out(tmp_path: Path) -> None:
    said = prepare(tmp_path, index=0, first=0, ranges=["0-3"], names="node0 node1")
    assert "node2 has no address" in said


@pytest.mark.parametrize("name", ["rank.txt", "number_of_nodes.txt", "nodes.txt", "node-0.txt"])
async def test_the_documented_files_exist(name: str) -> None:
    pod = await pod_of()
    (volume,) = [one for one in pod["volumes"] if one["name"] == "ranks"]
    items = volume["projected"]["sources"][1]["downwardAPI"]["items"]
    assert name in {*(one["path"] for one in items), *await data_of()}


def test_without_getent_fully_qualified_names_are_resolved(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    (tmp_path / "source").mkdir()
    (tmp_path / "target").mkdir()
    (tmp_path / "source" / "node-0.txt").write_text("j-j1-job-0.j-j1\n")
    (tmp_path / "source" / "cores.txt").write_text("1")
    (tmp_path / "resolv").write_text("nameserver 10.0.0.1\nsearch jobs.svc.cluster.local svc\n")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "getent").write_text("#!/bin/sh\nexit 127\n")
    (programs / "nslookup").write_text(f'#!/bin/sh\necho "$@" > {asked}\n')
    for program in programs.iterdir():
        program.chmod(0o755)
    script = PREPARE.replace("/etc/resolv.conf", str(tmp_path / "resolv"))
    arguments = [str(tmp_path / "source"), str(tmp_path / "target"), "0", "5", "0-0"]
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "INDEX": "0"}
    subprocess.run(
        ["/bin/sh", "-c", script, "x", *arguments], check=True, timeout=30, env=environment
    )
    assert asked.read_text() == "-type=a j-j1-job-0.j-j1.jobs.svc.cluster.local\n"
