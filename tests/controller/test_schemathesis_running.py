"""Tests a running controller against its OpenAPI description, with schemathesis."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from deploy.local.cluster import EmbeddedCluster
from tests.controller.running import SIGNER, Controller, running
from tests.programs import RedisServer
from tests.shared.samples import make_claims

LONGEST_SECONDS = 1500
CONFIGURATION = Path(__file__).with_name("schemathesis.toml")


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [1, 2])
async def test_the_api_matches_its_openapi_document(
    redis_server: RedisServer, tmp_path: Path, seed: int
) -> None:
    async with EmbeddedCluster() as cluster:
        controller = Controller(
            tmp_path / "controller",
            kubeconfig=cluster.kubeconfig("controller"),
            redis_url=redis_server.url,
        )
        async with running(controller):
            # The examples' job runs and is reachable; other jobs are only accepted.
            await controller.submit("j1", interactive={"lab": {"kind": "web", "port": 8888}})
            await controller.until("j1", "RUNNING", seconds=90)
            await controller.open("j1", endpoint="lab")
            await controller.call("POST", "/v1/maintenance", {"action": "pause"})
            # Draining the controller prevents submissions, so this operation comes last.
            for which in ("--exclude-operation-id", "--include-operation-id"):
                chosen = ("--seed", str(seed), which, "setMaintenance")
                done = await asyncio.to_thread(ask_anything, controller, tmp_path, chosen)
                assert done.returncode == 0, done.stdout[-20_000:] + done.stderr + controller.tail()
            assert await controller.is_ready()


def ask_anything(
    controller: Controller, folder: Path, chosen: Sequence[str]
) -> subprocess.CompletedProcess[str]:
    """Send valid and invalid requests of the *chosen* operations."""
    claims = make_claims(time.time(), aud="fumarole-controller")
    token = SIGNER.sign(claims | {"exp": claims["iat"] + 3600})
    command = [
        str(Path(sys.executable).with_name("schemathesis")),
        "--config-file", str(CONFIGURATION), "run",
        f"http://{controller.addresses['api']}/v1/openapi.json", *chosen,
    ]  # fmt: skip
    return subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"FUMAROLE_TEST_TOKEN": token, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_SECONDS,
    )
