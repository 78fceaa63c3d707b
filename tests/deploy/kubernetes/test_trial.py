"""Tests the trial's manifests on the embedded cluster: applied by kubectl, then run.

No image is built and no pod of ours runs, because the embedded cluster has no Deployments. The test
starts the pods' commands with the settings, files and rights of the manifests.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import yaml

from controller.kube.client import Kube
from controller.kube.kinds import NAMESPACES, SECRETS, SERVICE_ACCOUNTS
from deploy.local.cluster import EmbeddedCluster
from deploy.local.cluster.kubelet.images import MORE_VARIABLE
from deploy.trial_token import for_controller, for_session
from tests.controller.running import eventually
from tests.deploy.kubernetes.in_cluster import SYSTEM, Account, read_addresses, request_token, start
from tests.deploy.kubernetes.manifests import Object, build, of_kind, pods_of, settings_of
from tests.gateway.http import http
from tests.programs import redis_program

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(180),
    pytest.mark.needs("kubectl", "namespaces"),
]

# The kinds that the embedded cluster serves; it could not run the other kinds.
SERVED = ("Namespace", "ServiceAccount", "ConfigMap", "Service", "NetworkPolicy", "Role",
          "RoleBinding", "ClusterRole", "ClusterRoleBinding", "PersistentVolumeClaim")  # fmt: skip


def kubectl(cluster: EmbeddedCluster, *words: str, given: str) -> str:
    """Return kubectl's output."""
    done = subprocess.run(
        ["kubectl", *words], input=given, capture_output=True, text=True, timeout=60,
        env={"PATH": os.environ["PATH"], "HOME": str(cluster.folder),
             "KUBECONFIG": str(cluster.kubeconfig("admin"))},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@dataclass
class Trial:
    """The applied manifests, and the running processes."""

    cluster: EmbeddedCluster
    admin: Kube
    folder: Path
    objects: list[Object]
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    redis_port: int = 0

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")[-4000:]

    async def secret(self, name: str) -> dict[str, str]:
        found = await self.admin.get(SECRETS, name, SYSTEM)
        return {key: base64.b64decode(value).decode() for key, value in found["data"].items()}

    async def settings(self, deployment: str) -> dict[str, str]:
        """Return the environment of the Deployment's container, with its files in our folder."""
        pod = pods_of(self.objects)[deployment]
        (container,) = pod["containers"]
        values = settings_of(self.objects, pod)
        for source in container["envFrom"]:
            if "secretRef" in source:
                values |= await self.secret(source["secretRef"]["name"])
        places = await self.mounted(deployment)
        for name, value in values.items():
            # Only at the beginning of a path: the replacement may lie below /tmp, too.
            mount = next((one for one in places if value.startswith(f"{one}/")), None)
            if mount is not None:
                value = f"{places[mount]}{value.removeprefix(mount)}"
            value = value.replace("fumarole-redis:6379", f"127.0.0.1:{self.redis_port}")
            values[name] = value.replace("$(POD_ADDRESS)", "127.0.0.1")
        return values

    async def mounted(self, deployment: str) -> dict[str, Path]:
        """Lay out the pod's volumes; return each mount's folder here."""
        pod = pods_of(self.objects)[deployment]
        (container,) = pod["containers"]
        volumes = {one["name"]: one for one in pod["volumes"]}
        places = {}
        for mount in container["volumeMounts"]:
            place = self.folder / deployment / mount["name"]
            place.mkdir(parents=True, exist_ok=True)
            places[mount["mountPath"]] = place
            if "secret" in volumes[mount["name"]]:
                secret = await self.secret(volumes[mount["name"]]["secret"]["secretName"])
                for name, value in secret.items():
                    (place / name).write_text(value)
        return places

    def run(
        self, name: str, command: list[str], environment: dict[str, str], account: Account | None
    ) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            process = start(command, account, environment, log)
        self.processes.append(process)
        return process

    async def account(self, name: str) -> Account:
        account = Account(self.folder / f"account-{name}", self.cluster.kubeconfig("admin"))
        account.write(await request_token(self.admin, name))
        return account


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def trial(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Trial]:
    folder = tmp_path_factory.mktemp("trial")
    objects = build("overlays/trial", folder)
    images = folder / "images.json"
    # As the image of that name on Docker Hub, and most others.
    as_root = {"busybox": {"visible": [], "environment": {}, "user": 0}}
    images.write_text(json.dumps(as_root))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MORE_VARIABLE, str(images))
        async with _trial(folder, objects) as one:
            yield one


@asynccontextmanager
async def _trial(folder: Path, objects: list[Object]) -> AsyncIterator[Trial]:
    async with EmbeddedCluster() as cluster, Kube.connect(cluster.kubeconfig("admin")) as admin:
        one = Trial(cluster, admin, folder, objects)
        try:
            yield one
        finally:
            for process in reversed(one.processes):
                process.kill()
                process.wait()


def free_ports(count: int) -> Iterator[int]:
    """Yield ports on which nothing listens now."""
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    yield from ports


async def test_a_trial_runs_without_edits(trial: Trial) -> None:
    """Each step continues where the previous one ended."""
    await everything_is_taken_by_an_api_server(trial)
    await the_job_makes_every_secret_once(trial)
    await as_in_a_pod_jobs_run_and_terminals_open_and_tokens_are_renewed(trial)


async def everything_is_taken_by_an_api_server(trial: Trial) -> None:
    served = [one for one in trial.objects if one["kind"] in SERVED]
    given = yaml.safe_dump_all(served)
    said = kubectl(trial.cluster, "apply", "--validate=strict", "-f", "-", given=given)
    assert said.count(" created") == len(served)
    assert "Warning" not in said
    again = kubectl(trial.cluster, "apply", "--validate=strict", "-f", "-", given=given)
    assert again.count(" unchanged") == len(served), again


async def the_job_makes_every_secret_once(trial: Trial) -> None:
    job = of_kind(trial.objects, "Job")[0]["spec"]["template"]["spec"]
    (script,) = [one for one in of_kind(trial.objects, "ConfigMap") if "keys.py" in one["data"]]
    place = trial.folder / "keys.py"
    place.write_text(script["data"]["keys.py"])
    account = await trial.account(job["serviceAccountName"])
    for seconds in range(2):
        process = trial.run(f"keys{seconds}", [str(place)], {}, account)
        code = await asyncio.to_thread(process.wait, 60)
        assert code == 0, trial.log(f"keys{seconds}")
    assert trial.log("keys0").count("made") == 7
    assert trial.log("keys1").count("is there") == 7
    wanted = {
        source["secretRef"]["name"]
        for pod in pods_of(trial.objects).values()
        for source in pod["containers"][0].get("envFrom", ())
        if "secretRef" in source
    }
    for pod in pods_of(trial.objects).values():
        wanted |= {one["secret"]["secretName"] for one in pod["volumes"] if "secret" in one}
    there = {one["metadata"]["name"] for one in await trial.admin.list(SECRETS, SYSTEM)}
    assert wanted <= there
    # The lost keys are made again and are the same, because all derive from one seed.
    before = await trial.secret("fumarole-gateway")
    await trial.admin.delete(SECRETS, "fumarole-gateway", SYSTEM)
    process = trial.run("keys2", [str(place)], {}, account)
    assert await asyncio.to_thread(process.wait, 60) == 0
    assert await trial.secret("fumarole-gateway") == before


async def as_in_a_pod_jobs_run_and_terminals_open_and_tokens_are_renewed(trial: Trial) -> None:
    (trial.redis_port,) = free_ports(1)
    users = trial.folder / "users.acl"
    users.write_text((await trial.secret("fumarole-redis-users"))["users.acl"])
    with (trial.folder / "redis.log").open("ab") as log:
        trial.processes.append(
            subprocess.Popen(
                [redis_program(), "--port", str(trial.redis_port), "--bind", "127.0.0.1",
                 "--aclfile", str(users), "--save", ""], stdout=log, stderr=log, cwd="/tmp",
            )
        )  # fmt: skip
    account = await trial.account("fumarole-controller")
    # Only the listening addresses differ from the manifests, because other tests share the machine.
    here = {"FUMAROLE_CONTROLLER_LISTEN": "127.0.0.1:0",
            "FUMAROLE_CONTROLLER_OPS_LISTEN": "127.0.0.1:0",
            "FUMAROLE_CONTROLLER_HUB_LISTEN": "127.0.0.1:0",
            "FUMAROLE_CONTROLLER_ADDRESS_FILE": str(trial.folder / "controller.json")}  # fmt: skip
    settings = await trial.settings("fumarole-controller")
    assert settings["FUMAROLE_CONTROLLER_ROLES"] == "api,reconciler,hub"
    settings.pop("FUMAROLE_CONTROLLER_HUB_ADVERTISE")  # the kernel chooses the port here
    # The image sets it, to a volume of the pod.
    settings["FUMAROLE_CONTROLLER_STATE_FOLDER"] = str(trial.folder / "fumarole-controller/state")
    # The server refuses this token, so the files are read again until the server accepts one.
    good = (account.folder / "token").read_text()
    account.write("nobody's")
    controller = trial.run("controller", ["-m", "controller"], settings | here, account)
    await eventually(lambda: why_not_ready(trial, controller), seconds=90, what="it says nothing")
    account.write(good)
    at = await until_ready(trial, "controller", controller)
    gateway_settings = await trial.settings("fumarole-gateway") | {
        "FUMAROLE_GATEWAY_LISTEN": "127.0.0.1:0",
        "FUMAROLE_GATEWAY_OPS_LISTEN": "127.0.0.1:0",
        "FUMAROLE_GATEWAY_ADDRESS_FILE": str(trial.folder / "gateway.json"),
        # The embedded cluster's pods have loopback addresses, unlike real pods.
        "FUMAROLE_GATEWAY_UPSTREAM_NETWORKS": "127.0.0.0/8",
    }
    gateway = trial.run("gateway", ["-m", "gateway"], gateway_settings, None)
    front = await until_ready(trial, "gateway", gateway)
    key = (await trial.secret("fumarole-orchestrator"))["key.pem"]

    async def call(method: str, path: str, body: Any = None) -> tuple[int, Any]:
        token = for_controller(key, now=time.time())
        headers = {"Authorization": f"Bearer {token}"}
        url = f"http://{at['api']}{path}"
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, url, json=body, headers=headers) as response,
        ):
            return response.status, await response.json()

    async def submit(job_id: str) -> None:
        job = {
            "id": job_id, "owner": {"user": "me"}, "image": "busybox",
            "resources": {"cpu": 0.1, "memory": "64Mi"},
            "invocation": {"command": ["sh", "-c", "trap 'exit 0' TERM; sleep 3600 & wait"]},
        }  # fmt: skip
        status, said = await call("POST", "/v1/jobs", {"items": [job]})
        assert (status, said["items"][0]["result"]) == (200, "created"), said

    async def runs(job_id: str) -> bool:
        _, said = await call("GET", f"/v1/jobs/{job_id}")
        return bool(said["state"] == "RUNNING")

    await submit("shell")
    await eventually(lambda: runs("shell"), seconds=60, what=trial.log("controller"))
    wanted = {"items": [{"job": "shell", "rank": 0, "kind": "terminal"}]}
    _, opened = await call("POST", "/v1/sessions", wanted)
    sid = opened["items"][0]["sid"]

    async def ready() -> bool:
        return bool((await call("GET", f"/v1/sessions/{sid}"))[1]["state"] == "ready")

    await eventually(ready, seconds=60, what=trial.log("controller"))
    public = front["public"].rpartition(":")
    token = for_session(key, sid, job="shell", rank=0, kind="terminal", now=time.time())
    host = {"Host": f"{sid}.apps.localhost:8080", "Content-Type": "application/json"}
    response = await http(
        (public[0], int(public[2])), "POST", "/.fumarole/open", host,
        b'{"token":"%s"}' % token.encode(),
    )  # fmt: skip
    assert response.status == 303, (response, trial.log("gateway"))

    # The kubelet renews the token; the API server no longer accepts the old one.
    await make_account_anew(trial, "fumarole-controller")
    account.write(await request_token(trial.admin, "fumarole-controller"))
    await submit("later")
    await eventually(lambda: runs("later"), seconds=60, what=trial.log("controller"))
    assert controller.poll() is None
    assert gateway.poll() is None
    (place,) = [
        one["metadata"]["name"]
        for one in await trial.admin.list(NAMESPACES, labels="fumarole.dev/instance=default")
    ]
    assert place != SYSTEM


async def why_not_ready(trial: Trial, process: subprocess.Popen[bytes]) -> str | None:
    """Return the controller's reason for not being ready that concerns the API server."""
    assert process.poll() is None, trial.log("controller")
    found = read_addresses(trial.folder / "controller.json")
    if found is None:
        return None
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{found['ops']}/readyz") as response,
    ):
        reasons: list[str] = (await response.json()).get("reasons", [])
        return next((one for one in reasons if "nauthorized" in one), None)


async def until_ready(trial: Trial, name: str, process: subprocess.Popen[bytes]) -> dict[str, str]:
    """Return the listening address of the process once it is ready."""

    async def ready() -> dict[str, str] | None:
        assert process.poll() is None, trial.log(name)
        found = read_addresses(trial.folder / f"{name}.json")
        if found is None:
            return None
        url = f"http://{found['ops']}/readyz"
        with suppress(aiohttp.ClientError):
            async with aiohttp.ClientSession() as session, session.get(url) as response:
                return found if response.status == 200 else None
        return None

    return await eventually(ready, seconds=90, what=f"{name} is not ready")


async def make_account_anew(trial: Trial, name: str) -> None:
    """Delete and create the account: a real server then refuses the previous account's tokens."""
    made = await trial.admin.get(SERVICE_ACCOUNTS, name, SYSTEM)
    await trial.admin.delete(SERVICE_ACCOUNTS, name, SYSTEM)
    metadata = {"name": name, "labels": made["metadata"].get("labels") or {}}
    await trial.admin.create(SERVICE_ACCOUNTS, {"metadata": metadata}, SYSTEM)
