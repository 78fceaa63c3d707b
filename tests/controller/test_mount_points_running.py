"""Tests that a job's mount points in an output folder go with the folder's last job."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.kube.client import Kube
from controller.kube.kinds import PERSISTENT_VOLUME_CLAIMS, VCJOBS
from deploy.local.cluster import EmbeddedCluster
from tests.controller.running import Controller, eventually, running
from tests.programs import RedisServer

DIRECTORIES = ("new", "kept", "filled")
FILL = "mkdir -p /work/home/out/filled/mine"
"""What is mounted at ``/work/filled`` hides it; by way of the whole volume it is seen."""
READ = "until [ -e /work/stop ]; do sleep 0.1; done; cat /work/new/data > /work/seen"
PARAMETERS = {
    **{name: {"type": "directory", "path": f"/home/in/{name}"} for name in DIRECTORIES},
    "file": {"type": "file", "path": "/home/in/file"},
    "home": {"type": "directory", "path": "/home"},
}


async def make_home(cluster: EmbeddedCluster, admin: Kube) -> Path:
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    body = {"metadata": {"name": "home-ada"}, "spec": spec}
    await admin.create(PERSISTENT_VOLUME_CLAIMS, body, "jobs")
    folder = cluster.claim_folder("jobs", "home-ada")

    async def is_there() -> bool:
        return folder.is_dir()

    await eventually(is_there, what="there is no volume")
    for name in DIRECTORIES:
        (folder / "in" / name).mkdir(parents=True)
    (folder / "in" / "new" / "data").write_text("of the input")
    (folder / "in" / "file").write_text("x")
    (folder / "out" / "kept").mkdir(parents=True)
    return folder


@pytest.mark.timeout(300)
async def test_only_empty_mount_points_are_removed_with_the_last_job(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    async with EmbeddedCluster() as cluster, Kube.connect(cluster.kubeconfig("admin")) as admin:
        controller = Controller(
            tmp_path / "controller",
            kubeconfig=cluster.kubeconfig("controller"),
            redis_url=redis_server.url,
            FUMAROLE_CONTROLLER_VOLUMES="home=home-{user}",
        )
        async with running(controller):
            # The first job creates the namespace; the claim belongs to the deployment.
            await controller.submit("first", invocation={"command": ["true"]})
            await controller.until("first", "SUCCESS", seconds=90)
            home = await make_home(cluster, admin)
            out = home / "out"
            fields = {"output": "/home/out", "parameters": PARAMETERS}
            script = {"command": ["sh", "-c", READ]}
            await controller.submit("stays", **fields, invocation=script)
            await controller.until("stays", "RUNNING", seconds=90)
            script = {"command": ["sh", "-c", FILL]}
            await controller.submit("ranks", **fields, replicas=2, invocation=script)
            await controller.until("ranks", "SUCCESS", seconds=90)
            # The leader dies before the cleaning. The store holds what the cleaning needs.
            await controller.kill()
            (out / "stop").touch()
            await controller.start()
            await controller.until("stays", "SUCCESS", seconds=90)
            assert (out / "seen").read_text() == "of the input", "the mount of another job is gone"

            async def are_gone() -> bool:
                left = {path.name for path in out.iterdir()}
                return left == {"kept", "filled", "stop", "seen"}

            await eventually(are_gone, seconds=120, what=controller.tail())
            assert [path.name for path in (out / "filled").iterdir()] == ["mine"]

            async def are_ours_gone() -> bool:
                found = await admin.list(VCJOBS, "jobs")
                return not [one for one in found if one["metadata"]["name"].startswith("mounts-")]

            await eventually(are_ours_gone, seconds=60, what=controller.tail())
            shown = (await controller.call("GET", "/v1/jobs"))["items"]
            assert {one["id"] for one in shown} == {"first", "stays", "ranks"}
            # The folder is free again, and the next job gets its mount points there.
            script = {"command": ["test", "-e", "new/data"]}
            await controller.submit("next", **fields, invocation=script)
            await controller.until("next", "SUCCESS", seconds=90)
