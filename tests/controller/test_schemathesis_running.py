"""A running controller does what its description says, whatever it is asked (schemathesis)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deploy.local.cluster import EmbeddedCluster
from tests.controller.running import SIGNER, Controller, running
from tests.programs import RedisServer
from tests.shared.samples import make_claims

CONFIGURATION = Path(__file__).with_name("schemathesis.toml")


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_it_does_what_its_description_says(redis_server: RedisServer, tmp_path: Path) -> None:
    async with EmbeddedCluster() as cluster:
        controller = Controller(
            tmp_path / "controller",
            kubeconfig=cluster.kubeconfig("controller"),
            redis_url=redis_server.url,
        )
        async with running(controller):
            # The job of the examples, which runs and can be reached; others are only accepted.
            await controller.submit("j1", interactive={"lab": {"kind": "web", "port": 8888}})
            await controller.until("j1", "RUNNING", seconds=90)
            await controller.open("j1", endpoint="lab")
            await controller.call("POST", "/v1/maintenance", {"action": "pause"})
            done = await asyncio.to_thread(ask_anything, controller, tmp_path)
            assert done.returncode == 0, done.stdout[-20_000:] + done.stderr + controller.tail()
            assert await controller.is_ready()


def ask_anything(controller: Controller, folder: Path) -> subprocess.CompletedProcess[str]:
    """Ask whatever the description lets one ask, and what it does not."""
    claims = make_claims(time.time(), aud="fumarole-controller")
    token = SIGNER.sign(claims | {"exp": claims["iat"] + 3600})
    command = [
        str(Path(sys.executable).with_name("schemathesis")),
        "--config-file", str(CONFIGURATION), "run",
        f"http://{controller.addresses['api']}/v1/openapi.json",
    ]  # fmt: skip
    return subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"FUMAROLE_TEST_TOKEN": token, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
