"""Tests that each overlay's settings are enough: its processes start and become ready.

One process reads the resulting settings. Then the Deployments' commands are started with exactly
these settings, except for the listening addresses and the values that the docs put into Secrets.
"""

from __future__ import annotations

import asyncio
import base64
import os
import subprocess
import sys
from pathlib import Path

import pytest

from controller.kube.client import Kube
from controller.settings import read_settings
from deploy.local.cluster import EmbeddedCluster
from gateway.settings import settings_from
from shared.settings import Environment
from tests import warm
from tests.controller.running import eventually
from tests.deploy.kubernetes.in_cluster import ROOT, read_addresses
from tests.deploy.kubernetes.manifests import (
    PLURALS,
    Object,
    build,
    of_kind,
    pods_of,
    settings_of,
)
from tests.programs import RedisServer
from tests.shared.samples import SIGNERS, key_set_of

pytestmark = [pytest.mark.needs("kubectl"), pytest.mark.timeout(180)]

OVERLAYS = ("overlays/production", "overlays/one-namespace", "overlays/trial")
MODULES = {"fumarole-controller": "controller", "fumarole-hub": "controller",
           "fumarole-gateway": "gateway"}  # fmt: skip


def environment_of(
    objects: list[Object], name: str, folder: Path, redis_url: str
) -> dict[str, str]:
    """Return the environment of the Deployment's container, with Secrets and files of the test."""
    for key in ("link", "grant"):
        path = folder / f"{key}.key"
        if not path.exists():
            path.write_text(base64.b64encode(os.urandom(32)).decode())
    (folder / "jwks.json").write_bytes(key_set_of(SIGNERS["EdDSA"]))
    files = {
        "/etc/fumarole/link/key": str(folder / "link.key"),
        "/etc/fumarole/grant/key": str(folder / "grant.key"),
        # The file of an orchestrator that does not exist.
        "https://orchestrator.example.com/.well-known/jwks.json": str(folder / "jwks.json"),
        "/etc/fumarole/orchestrator/jwks.json": str(folder / "jwks.json"),
        "$(POD_ADDRESS):8082": "127.0.0.1:8082",
    }
    found = settings_of(objects, pods_of(objects)[name])
    found = {key: files.get(value, value) for key, value in found.items()}
    found["FUMAROLE_REDIS_URL"] = redis_url
    if MODULES[name] == "controller":
        found["FUMAROLE_CONTROLLER_STORE_URL"] = f"sqlite:///{folder}/store.db"
    prefix = f"FUMAROLE_{MODULES[name].upper()}"
    listens = [f"{prefix}_LISTEN", f"{prefix}_OPS_LISTEN"]
    if MODULES[name] == "controller":
        listens.append(f"{prefix}_HUB_LISTEN")
    found |= dict.fromkeys(listens, "127.0.0.1:0")
    return found | {f"{prefix}_ADDRESS_FILE": str(folder / f"{name}.json")}


async def apply_places(admin: Kube, objects: list[Object]) -> None:
    """Create the namespaces, the accounts and their rights."""
    for kind in PLURALS:
        for one in of_kind(objects, kind):
            where = one["metadata"].get("namespace")
            await admin.create(PLURALS[kind], one, where)


# test_trial.py starts the trial's processes.
@pytest.mark.parametrize("overlay", OVERLAYS[:2])
async def test_every_process_of_an_overlay_starts_and_is_ready(
    overlay: str, tmp_path: Path, redis_server: RedisServer
) -> None:
    objects = build(overlay, tmp_path)
    running: dict[str, subprocess.Popen[bytes]] = {}
    async with EmbeddedCluster() as cluster, Kube.connect(cluster.kubeconfig("admin")) as admin:
        await apply_places(admin, objects)
        try:
            for name in MODULES.keys() & pods_of(objects).keys():
                environment = environment_of(objects, name, tmp_path, redis_server.url)
                account = "account-hub" if name == "fumarole-hub" else "account-controller"
                if name != "fumarole-gateway":
                    environment["KUBECONFIG"] = str(cluster.kubeconfig(account))
                with (tmp_path / f"{name}.log").open("wb") as log:
                    running[name] = warm.popen(
                        [sys.executable, "-m", MODULES[name]],
                        cwd=ROOT,
                        env={"PATH": os.environ["PATH"], **environment},
                        stdout=log,
                        stderr=log,
                    )
            for name, process in running.items():
                await until_ready(tmp_path, name, process)
            for process in running.values():
                process.terminate()
            for name, process in running.items():
                assert await asyncio.to_thread(process.wait, 60) == 0, said_by(tmp_path, name)
        finally:
            for process in running.values():
                process.kill()
                process.wait()


async def until_ready(folder: Path, name: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until the ops listener reports that the process is ready."""

    async def ready() -> bool:
        assert process.poll() is None, said_by(folder, name)
        addresses = read_addresses(folder / f"{name}.json")
        if addresses is None:
            return False
        host, _, port = addresses["ops"].rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /readyz HTTP/1.1\r\nHost: ops\r\nConnection: close\r\n\r\n")
        status = await reader.readline()
        writer.close()
        await writer.wait_closed()
        return b" 200 " in status

    try:
        await eventually(ready, seconds=90)
    except AssertionError:
        raise AssertionError(f"{name} is not ready\n{said_by(folder, name)}") from None


def said_by(folder: Path, name: str) -> str:
    return (folder / f"{name}.log").read_text(errors="replace")[-3000:]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_no_setting_is_missing_or_unknown(overlay: str, tmp_path: Path) -> None:
    objects = build(overlay, tmp_path)
    for name in MODULES.keys() & pods_of(objects).keys():
        values = environment_of(objects, name, tmp_path, "redis://redis.example.com")
        environment = Environment(values)
        module = MODULES[name]
        (read_settings if module == "controller" else settings_from)(environment)
        environment.check()
        assert environment.unknown(f"FUMAROLE_{module.upper()}_") == []
