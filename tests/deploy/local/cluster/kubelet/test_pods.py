"""Tests Pods as processes of this machine: their view of the system, and how they are reached."""

from __future__ import annotations

import asyncio
import base64
import socket
import urllib.error
import urllib.request
from typing import Any

import pytest

from deploy.local.cluster.client import CLAIMS, CONFIG_MAPS, PODS, SECRETS, Client, Object
from deploy.local.cluster.kubelet.relay import Relay
from deploy.local.cluster.kubelet.sandboxes import Sandbox

pytestmark = pytest.mark.needs("namespaces")
SERVER = ["python", "-u", "-m", "http.server"]


def make_pod(name: str, command: list[str], *, image: str = "busybox", **spec: Any) -> Object:
    """Return a Pod of one container, with further fields from ``container``."""
    container = {"name": "main", "image": image, "command": command, **spec.pop("container", {})}
    return {
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            **spec,
        },
    }


def make_claim(name: str, **spec: Any) -> Object:
    """Return a claim of the default class."""
    asked: Object = {"requests": {"storage": "1Gi"}}
    spec = {"accessModes": ["ReadWriteMany"], "resources": asked, **spec}
    return {"metadata": {"name": name}, "spec": spec}


async def until(client: Client, namespace: str, name: str, phase: str) -> Object:
    """Return the Pod as soon as it is in *phase*."""
    async with asyncio.timeout(60):
        while True:
            pod = await client.get(PODS, namespace, name)
            if pod and (pod.get("status") or {}).get("phase") == phase:
                return pod
            await asyncio.sleep(0.05)


async def output(client: Client, namespace: str, pod: Object) -> str:
    """Run *pod* to its end and return what it wrote."""
    name = pod["metadata"]["name"]
    await client.create(PODS, namespace, pod)
    ended = await until(client, namespace, name, "Succeeded")
    return await client.text(PODS.path(namespace, ended["metadata"]["name"], "log"))


async def fetch(address: str, port: int) -> bytes:
    """Return the response of an HTTP server at *address*; retry until it listens."""
    url = f"http://{address}:{port}/"
    async with asyncio.timeout(10):
        while True:
            try:
                return await asyncio.to_thread(_read, url)
            except (urllib.error.URLError, ConnectionError):
                await asyncio.sleep(0.05)


def _read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=5) as response:
        return bytes(response.read())


async def test_a_pod_has_a_root_of_its_own_and_no_rights(client: Client, namespace: str) -> None:
    script = "id -u; hostname; pwd; touch /work/mine /tmp/mine && echo ok; touch /usr/no; ls /home"
    said = await output(client, namespace, make_pod("a", ["sh", "-c", f"({script}) 2>&1; exit 0"]))
    lines = said.splitlines()
    assert lines[:4] == ["1000", "a", "/work", "ok"]
    assert "Read-only file system" in lines[4]
    assert "cannot access" in lines[5]


async def test_a_pod_sees_only_its_own_processes(client: Client, namespace: str) -> None:
    said = await output(client, namespace, make_pod("a", ["sh", "-c", "ls -d /proc/[0-9]*"]))
    # The shell, which may have become `ls`; no other process of the machine or the kubelet.
    assert said.split()[0] == "/proc/1"
    assert len(said.split()) <= 2


async def test_two_pods_listen_on_one_port_at_addresses_of_their_own(
    client: Client, namespace: str
) -> None:
    addresses = set()
    for name in ("a", "b"):
        script = f"echo {name} > index.html; exec python -m http.server 8000"
        pod = make_pod(name, ["sh", "-c", script], image="python")
        await client.create(PODS, namespace, pod)
    for name in ("a", "b"):
        status = (await until(client, namespace, name, "Running"))["status"]
        assert (await fetch(status["podIP"], 8000)).decode().strip() == name
        addresses.add(status["podIP"])
    assert len(addresses) == 2


async def test_a_localhost_listener_is_not_reachable_from_outside(
    client: Client, namespace: str
) -> None:
    command = [*SERVER, "--bind", "127.0.0.1", "8000"]
    await client.create(PODS, namespace, make_pod("a", command, image="python"))
    await client.create(PODS, namespace, make_pod("b", [*SERVER, "8000"], image="python"))
    inner = (await until(client, namespace, "a", "Running"))["status"]["podIP"]
    outer = (await until(client, namespace, "b", "Running"))["status"]["podIP"]
    await fetch(outer, 8000)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(inner, 8000)


async def test_bytes_and_half_closes_are_relayed_both_ways(client: Client, namespace: str) -> None:
    script = (
        "import socket; s = socket.create_server(('', 7000)); c, _ = s.accept()\n"
        "total = b''\n"
        "while d := c.recv(65536): total += d\n"
        "c.sendall(total[::-1]); c.close()"
    )
    await client.create(PODS, namespace, make_pod("a", ["python", "-c", script], image="python"))
    address = (await until(client, namespace, "a", "Running"))["status"]["podIP"]
    sent = bytes(range(256)) * 8192
    async with asyncio.timeout(60):
        reader, writer = await connected(address, 7000)
        writer.write(sent)
        writer.write_eof()
        assert await reader.read() == sent[::-1]
        writer.close()


async def connected(address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a connection; retry until the server listens."""
    while True:
        try:
            return await asyncio.open_connection(address, port)
        except ConnectionRefusedError:
            await asyncio.sleep(0.05)


async def test_shared_memory_has_the_requested_size(client: Client, namespace: str) -> None:
    volumes = [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "32Mi"}}]
    mounts = {"volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}]}
    script = "df --output=size -B1 /dev/shm | tail -1; head -c 40000000 /dev/zero > /dev/shm/x"
    command = ["sh", "-c", f"({script}) 2>&1; exit 0"]
    pod = make_pod("a", command, volumes=volumes, container=mounts)
    size, error = (await output(client, namespace, pod)).splitlines()[:2]
    assert int(size) == 32 * 2**20
    assert "No space left" in error


async def test_volumes_of_every_kind_are_there(client: Client, namespace: str) -> None:
    await client.create(
        CONFIG_MAPS, namespace, {"metadata": {"name": "c"}, "data": {"k": "config", "l": "more"}}
    )
    secret = {"metadata": {"name": "s"}, "data": {"p": base64.b64encode(b"hush").decode()}}
    await client.create(SECRETS, namespace, secret)
    await client.create(CLAIMS, namespace, make_claim("data"))
    field = {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}
    items = [{"key": "k", "path": "deep/k"}]
    volumes: list[Object] = [
        {"name": "c", "configMap": {"name": "c"}},
        {"name": "s", "secret": {"secretName": "s", "defaultMode": 0o400}},
        {
            "name": "p",
            "projected": {
                "sources": [
                    {"configMap": {"name": "c", "items": items}},
                    {"downwardAPI": {"items": [field]}},
                ]
            },
        },
        {"name": "e", "emptyDir": {}},
        {"name": "claim", "persistentVolumeClaim": {"claimName": "data"}},
    ]
    mounts = [
        {"name": "c", "mountPath": "/etc/ucloud"},
        {"name": "c", "mountPath": "/work/one.txt", "subPath": "k"},
        {"name": "s", "mountPath": "/secret", "readOnly": True},
        {"name": "p", "mountPath": "/projected"},
        {"name": "e", "mountPath": "/scratch"},
        {"name": "claim", "mountPath": "/work/data", "subPath": "set1"},
    ]
    script = (
        "cat /etc/ucloud/k /etc/ucloud/l /work/one.txt /secret/p /projected/deep/k; echo;"
        "cat /projected/labels; echo; echo kept > /work/data/f; touch /scratch/x && echo yes;"
        "touch /etc/ucloud/x || echo no"
    )
    pod = make_pod("a", ["sh", "-c", script], volumes=volumes, container={"volumeMounts": mounts})
    said = await output(client, namespace, pod)
    assert said.splitlines() == [
        "configmoreconfighushconfig",
        'app="a"',
        "yes",
        "touch: cannot touch '/etc/ucloud/x': Read-only file system",
        "no",
    ]
    again = make_pod(
        "b",
        ["cat", "/data/set1/f"],
        volumes=[volumes[-1]],
        container={"volumeMounts": [{"name": "claim", "mountPath": "/data"}]},
    )
    assert await output(client, namespace, again) == "kept\n"


async def test_the_environment_is_expanded_from_every_source(
    client: Client, namespace: str
) -> None:
    await client.create(CONFIG_MAPS, namespace, {"metadata": {"name": "c"}, "data": {"K": "v"}})
    env = [
        {"name": "A", "value": "one"},
        {"name": "B", "value": "$(A)-$$(A)-$(NONE)"},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "K"}}},
        {
            "name": "D",
            "valueFrom": {"secretKeyRef": {"name": "none", "key": "x", "optional": True}},
        },
    ]
    command = ["sh", "-c", 'echo "$B|$C|${D-unset}|$1"; test -n "$IP"', "-", "$(A)"]
    pod = make_pod(
        "a", command, container={"env": env, "envFrom": [{"configMapRef": {"name": "c"}}]}
    )
    assert await output(client, namespace, pod) == "one-$(A)-$(NONE)|v|unset|one\n"


async def test_host_aliases_and_the_pods_own_name_resolve(client: Client, namespace: str) -> None:
    spec: dict[str, Any] = {
        "hostAliases": [{"ip": "127.0.0.9", "hostnames": ["other", "other.far"]}]
    }
    pod = make_pod("a", ["sh", "-c", "getent hosts a other; cat /etc/hostname"], **spec)
    lines = (await output(client, namespace, pod)).splitlines()
    assert lines[0].split()[1:] == ["a"]
    assert lines[1].split() == ["127.0.0.9", "other", "other.far"]
    assert lines[2] == "a"


async def test_init_containers_run_first_and_one_after_the_other(
    client: Client, namespace: str
) -> None:
    mounts = [{"name": "e", "mountPath": "/e"}]
    inits = [
        {
            "name": f"init{n}",
            "image": "busybox",
            "command": ["sh", "-c", f"sleep 0.1; echo {n} >> /e/order"],
            "volumeMounts": mounts,
        }
        for n in (1, 2)
    ]
    pod = make_pod(
        "a",
        ["cat", "/e/order"],
        initContainers=inits,
        volumes=[{"name": "e", "emptyDir": {}}],
        container={"volumeMounts": mounts},
    )
    assert await output(client, namespace, pod) == "1\n2\n"


async def test_containers_of_a_pod_share_its_network(client: Client, namespace: str) -> None:
    script = "until python -c 'import urllib.request as u; u.urlopen(\"http://127.0.0.1:8000\")'"
    pod = make_pod("a", ["sh", "-c", f"{script}; do sleep 0.1; done"], image="python")
    # Not with `timeout`: in coreutils 9.10 it refuses to be the first process of a container.
    other = {"name": "side", "image": "python", "command": [*SERVER, "8000"]}
    pod["spec"]["containers"].append(other)
    await client.create(PODS, namespace, pod)
    async with asyncio.timeout(15):
        while True:
            found = await client.get(PODS, namespace, "a")
            statuses = ((found or {}).get("status") or {}).get("containerStatuses") or [{}]
            if "terminated" in statuses[0].get("state", {}):
                break
            await asyncio.sleep(0.1)
    assert statuses[0]["state"]["terminated"]["exitCode"] == 0


async def test_a_pod_waits_for_a_missing_config_map(client: Client, namespace: str) -> None:
    volumes = [{"name": "c", "configMap": {"name": "late"}}]
    mounts = {"volumeMounts": [{"name": "c", "mountPath": "/c"}]}
    pod = make_pod("a", ["cat", "/c/k"], volumes=volumes, container=mounts)
    await client.create(PODS, namespace, pod)
    await asyncio.sleep(0.5)
    found = await client.get(PODS, namespace, "a")
    assert found is not None
    assert found["status"]["phase"] == "Pending"
    await client.create(CONFIG_MAPS, namespace, {"metadata": {"name": "late"}, "data": {"k": "v"}})
    await until(client, namespace, "a", "Succeeded")


async def test_the_user_follows_the_security_context(client: Client, namespace: str) -> None:
    context: dict[str, Any] = {"securityContext": {"runAsUser": 4321, "runAsNonRoot": True}}
    assert await output(client, namespace, make_pod("a", ["id", "-u"], **context)) == "4321\n"
    root: dict[str, Any] = {"securityContext": {"runAsUser": 0, "runAsNonRoot": True}}
    await client.create(PODS, namespace, make_pod("b", ["id", "-u"], **root))

    async def waits() -> str:
        found = await client.get(PODS, namespace, "b") or {}
        statuses = (found.get("status") or {}).get("containerStatuses") or [{}]
        return str((statuses[0].get("state") or {}).get("waiting", {}).get("reason", ""))

    async with asyncio.timeout(10):
        while await waits() != "CreateContainerConfigError":
            await asyncio.sleep(0.05)


async def test_a_missing_command_fails_with_its_name(client: Client, namespace: str) -> None:
    await client.create(PODS, namespace, make_pod("a", ["no-such-program"]))
    failed = await until(client, namespace, "a", "Failed")
    state = failed["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (state["exitCode"], state["reason"]) == (128, "StartError")
    assert 'exec: "no-such-program": executable file not found in $PATH' in state["message"]
    # containerd reports the same for a container that never started.
    assert state["startedAt"] == "1970-01-01T00:00:00Z"


async def test_a_container_that_takes_more_memory_than_its_limit_is_killed(
    client: Client, namespace: str
) -> None:
    # The memory belongs to a silent child of the container's first process.
    script = "python3 -c 'import time; kept = bytearray(96 << 20); time.sleep(300)'; exit 0"
    within = {"resources": {"limits": {"memory": "64Mi"}}}
    pod = make_pod("a", ["sh", "-c", script], container=within)
    await client.create(PODS, namespace, pod)
    failed = await until(client, namespace, "a", "Failed")
    state = failed["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (state["exitCode"], state["reason"]) == (137, "OOMKilled")


async def test_a_pod_listener_is_reached_after_the_next_scan_of_the_relay() -> None:
    sandbox = await Sandbox.start(isolated=True)
    relay = Relay(sandbox, "127.64.200.1")
    running = asyncio.create_task(relay.run())
    try:
        assert await relay.look() == set()
        with await sandbox.socket(socket.AF_INET, socket.SOCK_STREAM) as program:
            program.bind(("0.0.0.0", 0))
            program.listen()
            port = program.getsockname()[1]
            # Beside the relay's own look, which may be under way.
            found = await asyncio.gather(relay.look(), relay.look())
            assert [*found] == [{port}, {port}]
            _, writer = await asyncio.open_connection("127.64.200.1", port)
            writer.close()
            running.cancel()
            await asyncio.wait([running])
            assert await relay.look() == set()
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.64.200.1", port)
    finally:
        running.cancel()
        await sandbox.close()


async def test_a_liveness_probe_that_fails_restarts_the_container(
    client: Client, namespace: str
) -> None:
    probe = {"tcpSocket": {"port": 9}, "periodSeconds": 1, "failureThreshold": 1}
    script = "trap 'exit 1' TERM; while :; do sleep 0.05; done"
    pod = make_pod("a", ["sh", "-c", script], container={"livenessProbe": probe})
    pod["spec"]["restartPolicy"] = "Always"
    await client.create(PODS, namespace, pod)
    async with asyncio.timeout(15):
        while True:
            found = await client.get(PODS, namespace, "a")
            statuses = ((found or {}).get("status") or {}).get("containerStatuses") or [{}]
            if statuses[0].get("restartCount"):
                break
            await asyncio.sleep(0.1)
