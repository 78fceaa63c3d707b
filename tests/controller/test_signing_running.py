"""Tests a controller with a signing key, and a gateway with its public key, as processes."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import aiohttp
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from deploy.local.cluster import EmbeddedCluster
from shared.bus import Keys, connect
from tests import warm
from tests.controller.running import ROOT, Controller, eventually, running
from tests.gateway.process import GatewayProcess
from tests.programs import RedisServer, redis_program

JOB = {"image": "python", "invocation": {"command": ["sleep", "600"]},
       "interactive": {"site": {"kind": "web", "port": 8000}}}  # fmt: skip


@pytest.mark.timeout(180)
async def test_a_gateway_serves_signed_routes_also_after_the_controller_stopped(
    tmp_path: Path,
) -> None:
    key = tmp_path / "bus.pem"
    key.write_bytes(
        Ed25519PrivateKey.generate().private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )
    )
    command = [sys.executable, "-m", "controller", "route-keys", str(key)]
    public = tmp_path / "route-keys.json"
    public.write_text(warm.run(command, cwd=ROOT, env={"PATH": os.environ["PATH"]}).stdout)
    with RedisServer(redis_program(), tmp_path) as server:
        async with EmbeddedCluster() as cluster:
            controller = Controller(
                tmp_path / "controller",
                kubeconfig=cluster.kubeconfig("controller"),
                redis_url=server.url,
                FUMAROLE_CONTROLLER_BUS_SIGNING_KEY_FILE=str(key),
            )
            (tmp_path / "gateway").mkdir()
            gateway = GatewayProcess(
                tmp_path / "gateway",
                server.url,
                FUMAROLE_INSTANCE=controller.instance,
                FUMAROLE_GATEWAY_ROUTE_KEYS=str(public),
            )
            try:
                await gateway.start(ready=False)
                async with running(controller):
                    await follow(controller, gateway, server)
                # A leader of the next term, with the same key.
                async with running(controller):
                    await until_equal(controller, gateway)
            finally:
                gateway.kill()


async def follow(controller: Controller, gateway: GatewayProcess, server: RedisServer) -> None:
    """Open, revoke and end a session; check that the gateway follows and proves each change."""
    await controller.submit("j1", **JOB)
    sid = await controller.open("j1", endpoint="site")
    await until_equal(controller, gateway)
    assert (await told(gateway))["routes"] == 1
    await controller.call("POST", f"/v1/sessions/{sid}/revoke", {})
    await until_equal(controller, gateway)
    assert (await told(gateway))["revocations"] == 1
    client = connect(server.url)
    assert await client.hget(Keys(controller.instance).head, "signed")
    await client.aclose()


async def told(gateway: GatewayProcess) -> dict[str, object]:
    found: dict[str, object] = json.loads((await gateway.ask_ops("/debug/routes")).text)
    assert "unproven" not in found["noted"]  # type: ignore[operator]  # an object
    return found


async def until_equal(controller: Controller, gateway: GatewayProcess) -> None:
    """Wait until the gateway holds what the controller has published."""

    async def equal() -> bool:
        ours = await told(gateway)
        url = f"http://{controller.addresses['ops']}/debug/routes"
        async with aiohttp.ClientSession() as http, http.get(url) as response:
            theirs = await response.json()
        names = ("epoch", "seq", "hash")
        settled = theirs["published"] and not theirs["changed_jobs"]
        return settled and [ours.get(n) for n in names] == [theirs[n] for n in names]

    await eventually(equal, seconds=40.0, what="they are not equal")
