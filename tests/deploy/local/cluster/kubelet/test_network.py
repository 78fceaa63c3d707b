"""Tests that Pods reach each other by address, name and Service, within the NetworkPolicies."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from deploy.local.cluster.client import NETWORK_POLICIES, NODES, PODS, SERVICES, Client, Object
from deploy.local.cluster.kubelet.node import POD_NETWORK_LABEL
from tests.controller.plugins.plans import container_of
from tests.deploy.local.cluster.kubelet.test_pods import make_pod, output

pytestmark = pytest.mark.needs("namespaces")
_SERVE = (
    "import http.server as h, os\n"
    "class H(h.BaseHTTPRequestHandler):\n"
    "    def do_GET(self):\n"
    "        self.send_response(200); self.end_headers()\n"
    "        self.wfile.write((os.uname().nodename + ' ' + self.client_address[0]).encode())\n"
    "    def log_message(self, *_): pass\n"
    "h.HTTPServer(('0.0.0.0', 8000), H).serve_forever()\n"
)
_FETCH = (
    "import sys, urllib.request as u\n"
    "for url in sys.argv[2:]:\n"
    "    try: print(u.urlopen(url, timeout=float(sys.argv[1])).read().decode())\n"
    "    except Exception as e: print(getattr(e, 'reason', e))\n"
)


async def _pod_network(client: Client) -> str:
    nodes, _ = await client.list_objects(NODES, {})
    return str(nodes[0]["metadata"]["labels"][POD_NETWORK_LABEL])


@pytest.fixture(autouse=True)
async def joined(client: Client) -> None:
    """Skip if this kernel cannot connect Pods; the kubelet's log gives the reason."""
    if await _pod_network(client) == "none":
        pytest.skip("the kernel lets us make no network between Pods")


@pytest.fixture
async def filtered(client: Client) -> None:
    """Skip if this kernel offers us no packet filter."""
    if await _pod_network(client) != "filtered":
        pytest.skip("the kernel has no packet filter for users' networks")


def make_server(name: str, **spec: Any) -> Object:
    """Return a Pod that answers with its host name and the client's address."""
    probe = {"readinessProbe": {"tcpSocket": {"port": 8000}, "periodSeconds": 1}}
    ports = {"ports": [{"name": "web", "containerPort": 8000}]}
    command = ["python", "-u", "-c", _SERVE]
    return make_pod(name, command, image="python", container=probe | ports, **spec)


async def ready(client: Client, namespace: str, name: str) -> str:
    """Return the address of a Pod as soon as it is ready."""
    async with asyncio.timeout(30):
        while True:
            pod = await client.get(PODS, namespace, name) or {}
            conditions = (pod.get("status") or {}).get("conditions") or []
            if any(c["type"] == "Ready" and c["status"] == "True" for c in conditions):
                return str(pod["status"]["podIP"])
            await asyncio.sleep(0.05)


async def ask(
    client: Client, namespace: str, name: str, *urls: str, seconds: float = 15.0, **spec: Any
) -> list[str]:
    """Return a new Pod's responses from *urls* within the given seconds, or the error."""
    command = ["python", "-c", _FETCH, str(seconds), *urls]
    pod = make_pod(name, command, image="python", **spec)
    return (await output(client, namespace, pod)).splitlines()


async def serve(client: Client, namespace: str, name: str, **spec: Any) -> str:
    """Start a server and return its address."""
    await client.create(PODS, namespace, make_server(name, **spec))
    return await ready(client, namespace, name)


def make_service(name: str, app: str, **spec: Any) -> Object:
    """Return a Service for the Pods labelled *app*."""
    ports = [{"port": 80, "targetPort": "web"}]
    return {"metadata": {"name": name}, "spec": {"selector": {"app": app}, "ports": ports, **spec}}


async def test_a_pod_reaches_another_at_its_address(client: Client, namespace: str) -> None:
    address = await serve(client, namespace, "server")
    said = await ask(client, namespace, "asker", f"http://{address}:8000/")
    asker = await client.get(PODS, namespace, "asker")
    assert asker is not None
    assert said == [f"server {asker['status']['podIP']}"]


_COUNT = (
    "import socket, time\n"
    "time.sleep(1.5)\n"
    "listening = socket.create_server(('0.0.0.0', 8888))\n"
    "listening.accept()\n"
    "count, over = 1, time.monotonic() + 5\n"
    "while (left := over - time.monotonic()) > 0:\n"
    "    listening.settimeout(left)\n"
    "    try: listening.accept(); count += 1\n"
    "    except TimeoutError: pass\n"
    "print(count)\n"
)


async def test_an_app_is_probed_until_it_is_ready(client: Client, namespace: str) -> None:
    made = await container_of(interactive={"lab": {"kind": "web", "port": 8888}})
    probes = {name: probe for name, probe in made.items() if name.endswith("Probe")}
    command = ["python", "-u", "-c", _COUNT]
    pod = make_pod("counts", command, image="python", container=probes)
    assert await output(client, namespace, pod) == "1\n"


async def test_a_headless_service_names_its_pods(client: Client, namespace: str) -> None:
    await client.create(SERVICES, namespace, make_service("gang", "server", clusterIP="None"))
    await serve(client, namespace, "server", hostname="rank-0", subdomain="gang")
    names = ("rank-0.gang", "gang", f"rank-0.gang.{namespace}.svc.cluster.local", "rank-1.gang")
    said = await ask(client, namespace, "asker", *(f"http://{name}:8000/" for name in names))
    assert [line.partition(" ")[0] for line in said[:3]] == ["rank-0"] * 3
    assert "Name or service not known" in said[3]


async def test_a_pod_resolves_its_own_name(client: Client, namespace: str) -> None:
    script = "getent hosts self; hostname"
    pod = make_pod("self", ["sh", "-c", script], hostname="self", subdomain="gang")
    lines = (await output(client, namespace, pod)).splitlines()
    assert lines[0].split()[1].startswith("self.gang.")
    assert lines[1] == "self"


async def test_a_service_has_an_address_for_its_ready_pods(client: Client, namespace: str) -> None:
    service = await client.create(SERVICES, namespace, make_service("web", "server"))
    address = service["spec"]["clusterIP"]
    before = await ask(client, namespace, "early", f"http://{address}/")
    assert "refused" in before[0]
    await serve(client, namespace, "server")
    said = await ask(
        client,
        namespace,
        "asker",
        "http://web/",
        f"http://{address}/",
        "http://alias/",
        "http://web:81/",
        hostAliases=[{"ip": address, "hostnames": ["alias"]}],
    )
    assert [line.partition(" ")[0] for line in said[:3]] == ["server"] * 3
    assert "refused" in said[3]


async def test_a_service_address_reaches_only_ready_pods_from_the_host(
    client: Client, namespace: str
) -> None:
    ports = [{"port": 8080, "targetPort": "web"}]
    made = await client.create(SERVICES, namespace, make_service("web", "server", ports=ports))
    address = made["spec"]["clusterIP"]
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(address, 8080)
    await serve(client, namespace, "server")
    async with asyncio.timeout(10):
        while not await said_at(address):
            await asyncio.sleep(0.05)
    await client.delete(PODS, namespace, "server", {"gracePeriodSeconds": 0})
    async with asyncio.timeout(10):
        while await said_at(address):
            await asyncio.sleep(0.05)


async def said_at(address: str) -> bool:
    """Return whether the server at *address* answers with its name; False if nothing listens."""
    try:
        reader, writer = await asyncio.open_connection(address, 8080)
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        said = await reader.read()
        writer.close()
    except OSError:
        return False
    return b"server" in said


@pytest.mark.usefixtures("filtered")
async def test_a_network_policy_admits_only_selected_pods(client: Client, namespace: str) -> None:
    address = await serve(client, namespace, "server")
    await client.create(SERVICES, namespace, make_service("web", "server"))
    await client.create(
        NETWORK_POLICIES,
        namespace,
        {
            "metadata": {"name": "friends"},
            "spec": {
                "podSelector": {"matchLabels": {"app": "server"}},
                "policyTypes": ["Ingress"],
                "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "friend"}}}]}],
            },
        },
    )
    urls = (f"http://{address}:8000/", "http://web/")
    friend = await ask(client, namespace, "friend", *urls)
    stranger = await ask(client, namespace, "stranger", *urls, seconds=1.0)
    assert [line.partition(" ")[0] for line in friend] == ["server", "server"]
    assert "timed out" in stranger[0]
    assert "server" not in stranger[1]


_QUERY = (
    "import socket as s\n"
    "k = s.socket(s.AF_INET, s.SOCK_DGRAM); k.settimeout(1)\n"
    "q = bytes.fromhex('0001010000010000000000000377656200000100 01'.replace(' ', ''))\n"
    "k.sendto(q, ('127.128.0.10', 53))\n"
    "try: k.recv(512); print('answered')\n"
    "except TimeoutError: print('silent')\n"
)


@pytest.mark.usefixtures("filtered")
async def test_a_pod_without_egress_cannot_resolve_names(client: Client, namespace: str) -> None:
    address = await serve(client, namespace, "server")
    policy = {
        "metadata": {"name": "quiet"},
        "spec": {"podSelector": {"matchLabels": {"app": "mute"}}, "policyTypes": ["Egress"]},
    }
    await client.create(NETWORK_POLICIES, namespace, policy)
    said = await ask(client, namespace, "mute", f"http://{address}:8000/", seconds=1.0)
    assert "timed out" in said[0]
    for name, response in (("talker", "answered"), ("mute-too", "silent")):
        pod = make_pod(name, ["python", "-c", _QUERY], image="python")
        pod["metadata"]["labels"]["app"] = name.removesuffix("-too")
        assert (await output(client, namespace, pod)).strip() == response
