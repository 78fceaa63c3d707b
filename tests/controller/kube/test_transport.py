"""Tests expiring credentials: the kubeconfig's exec plugin runs once for concurrent calls."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from email.utils import formatdate
from pathlib import Path

import pytest
from aiohttp import web

from controller.kube import transport
from controller.kube.client import Kube
from controller.kube.errors import Unauthorized, Unavailable
from controller.kube.kinds import POD_METRICS, PODS
from controller.kube.watch import Changed, watch
from tests.controller.kube.api_server import Answer, Script, listing, says, serving, streams, thing
from tests.controller.running import eventually

PLUGIN = """
import json, pathlib, sys, time
runs = pathlib.Path(sys.argv[1])
count = len(runs.read_text()) + 1
runs.write_text("x" * count)
if (runs.parent / "hangs").exists():
    time.sleep(1)
    (runs.parent / f"ended-{count}").touch()
status = {"token": f"token-{count}", "expirationTimestamp": "2999-01-01T00:00:00Z"}
version = "client.authentication.k8s.io/v1"
print(json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status}))
"""


class Server(Script):
    """A scripted server that accepts one token at a time."""

    good = "token-1"

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {self.good}":
            self.requests.append((request.method, request.path, dict(request.query)))
            return await says({"reason": "Unauthorized"}, 401)(request)
        return await super().handle(request)


class Plugin:
    """The exec plugin that a kubeconfig names."""

    def __init__(self, folder: Path) -> None:
        self._runs = folder / "runs"
        self._runs.write_text("")
        self._script = folder / "plugin.py"
        self._script.write_text(PLUGIN)
        self._hangs = folder / "hangs"

    @property
    def runs(self) -> int:
        """Return how often the plugin was run."""
        return len(self._runs.read_text())

    def hang(self) -> None:
        """Make the plugin hang for a while."""
        self._hangs.touch()

    async def until_ended(self, runs: int) -> None:
        """Wait until no plugin process is left, *runs* of which hung."""

        async def ended() -> bool:
            return len(list(self._hangs.parent.glob("ended-*"))) == runs

        await eventually(ended)
        await asyncio.sleep(0.2)  # the event loop notices it

    def user(self) -> dict[str, object]:
        """Return the kubeconfig's user."""
        return {
            "exec": {
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": sys.executable,
                "args": [str(self._script), str(self._runs)],
                "interactiveMode": "Never",
            }
        }


@asynccontextmanager
async def asked_for(plugin: Plugin, server: Server, folder: Path) -> AsyncIterator[Kube]:
    """Yield a client that gets its credentials from *plugin*."""
    async with serving(server, folder):
        kubeconfig = folder / "kubeconfig"
        content = json.loads(kubeconfig.read_text())
        content["users"][0]["user"] = plugin.user()
        kubeconfig.write_text(json.dumps(content))
        async with Kube.connect(kubeconfig) as kube:
            yield kube


async def test_concurrent_calls_with_an_expired_token_renew_it_once(tmp_path: Path) -> None:
    plugin, server = Plugin(tmp_path), Server(says(thing("a", "1")))
    async with asked_for(plugin, server, tmp_path) as kube:
        await kube.get(PODS, "a", "ns")
        assert plugin.runs == 1
        server.good = "token-2"
        found = await asyncio.gather(*(kube.get(PODS, "a", "ns") for _ in range(20)))
        assert len(found) == 20
        assert plugin.runs == 2


async def test_a_watch_with_an_expired_token_resumes_at_once(tmp_path: Path) -> None:
    plugin = Plugin(tmp_path)
    server = Server(
        listing(version="5"),
        streams(("ADDED", thing("a", "6"))),
        streams(("ADDED", thing("b", "7")), then="hang"),
    )
    trouble: list[object] = []
    async with asked_for(plugin, server, tmp_path) as kube:
        stream = watch(kube, PODS, report=trouble.append)
        async with aclosing(stream):
            await anext(stream)
            assert await anext(stream) == Changed(thing("a", "6"))
            server.good = "token-2"
            assert await anext(stream) == Changed(thing("b", "7"))
    assert plugin.runs == 2
    assert set(trouble) == {None}
    assert server.requests[-1][2]["resourceVersion"] == "6"


async def test_an_always_invalid_token_is_renewed_once_per_call(tmp_path: Path) -> None:
    plugin, server = Plugin(tmp_path), Server(says({}))
    server.good = "none"
    async with asked_for(plugin, server, tmp_path) as kube:
        for _ in range(2):
            with pytest.raises(Unauthorized):
                await kube.get(PODS, "a", "ns")
    assert plugin.runs == 3
    assert len(server.requests) == 4


async def test_a_hanging_credential_plugin_times_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin, server = Plugin(tmp_path), Server(says(thing("a", "1")))
    async with asked_for(plugin, server, tmp_path) as kube:
        plugin.hang()
        monkeypatch.setattr(transport, "CREDENTIALS_WAIT_SECONDS", 0.3)
        # The present token is used while it is valid.
        monkeypatch.setattr(transport, "CREDENTIALS_SECONDS", 0.0)
        await kube.get(PODS, "a", "ns")
        monkeypatch.setattr(transport, "CREDENTIALS_SECONDS", 60.0)
        server.good = "token-9"
        with pytest.raises(Unavailable, match="no usable Kubernetes configuration"):
            await kube.get(PODS, "a", "ns")
        await plugin.until_ended(2)


@pytest.mark.parametrize("content", ["", "hello", "- a\n", "{}"])
async def test_a_malformed_kubeconfig_is_reported_with_its_path(
    tmp_path: Path, content: str
) -> None:
    file = tmp_path / "config"
    file.write_text(content)
    with pytest.raises(
        Unavailable, match=r"config: (it is empty, or not a kubeconfig|.*current-context)"
    ):
        async with Kube.connect(file):
            pass


WHOLE = """\
apiVersion: v1
kind: Config
current-context: c
clusters:
- name: c
  cluster:
    server: https://127.0.0.1:6443
    certificate-authority-data: Zm9v
contexts:
- name: c
  context:
    cluster: c
    user: u
users:
- name: u
  user:
    exec: {apiVersion: client.authentication.k8s.io/v1, command: cat, args: [answer]}
"""
ANSWERS = ("", "x", "null", "[]", '"x"', "{}", '{"status":null}', '{"status":{"token":1}}',
           '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":7}',
           '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1"}',
           '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1",'
           '"status":{"token":"t","expirationTimestamp":"soon"}}')  # fmt: skip


async def test_a_partly_written_kubeconfig_is_unusable(
    tmp_path: Path,
) -> None:
    path = tmp_path / "kubeconfig"
    ends = [end for end, letter in enumerate(WHOLE) if letter in " \n:-"]
    for text in (*(WHOLE[:end] for end in ends), "- a", "7", "clusters: 7", "users: [7]"):
        path.write_text(text)
        with pytest.raises(Unavailable):
            await transport.Credentials(path).load()


@pytest.mark.parametrize("said", ANSWERS)
async def test_malformed_output_of_a_credential_plugin_yields_no_credentials(
    tmp_path: Path, said: str
) -> None:
    (tmp_path / "answer").write_text(said)
    path = tmp_path / "kubeconfig"
    path.write_text(WHOLE.replace("answer", str(tmp_path / "answer")))
    with pytest.raises(Unavailable):
        await transport.Credentials(path).load()


async def test_a_malformed_authority_is_an_unusable_configuration(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(WHOLE.partition("users:")[0] + "users: [{name: u, user: {token: t}}]\n")
    with pytest.raises(Unavailable, match="certificates cannot be used"):
        async with Kube.connect(path):
            pass


async def test_a_token_file_may_end_with_a_line_break(tmp_path: Path) -> None:
    server = Server(says(thing("a", "1")))
    server.good = "from-a-file"
    async with serving(server, tmp_path):
        (tmp_path / "token").write_text("from-a-file\n")
        path = tmp_path / "kubeconfig"
        content = json.loads(path.read_text())
        content["users"][0]["user"] = {"tokenFile": "token"}
        path.write_text(json.dumps(content))
        async with Kube.connect(path) as kube:
            await kube.get(PODS, "a", "ns")


async def test_a_failing_credential_plugin_keeps_the_last_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "CREDENTIALS_SECONDS", 0.0)
    server, response = Server(says(thing("a", "1"))), tmp_path / "answer"
    said = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
    response.write_text(json.dumps(said | {"status": {"token": "token-1"}}))
    async with serving(server, tmp_path):
        path = tmp_path / "kubeconfig"
        content = json.loads(path.read_text())
        program = {"apiVersion": said["apiVersion"], "command": "cat", "args": [str(response)]}
        content["users"][0]["user"] = {"exec": program}
        path.write_text(json.dumps(content))
        async with Kube.connect(path) as kube:
            await kube.get(PODS, "a", "ns")
            response.write_text(json.dumps(said | {"status": {}}))
            await kube.get(PODS, "a", "ns")


@pytest.mark.parametrize("content", ["a word", "[", "{}", None])
async def test_a_malformed_kubeconfig_is_named(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "config"
    if content is not None:
        file.write_text(content)
    with pytest.raises(Unavailable, match=rf"configuration: {file}: "):
        await transport.Credentials(file).load()


async def test_without_configuration_the_searched_locations_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(Unavailable, match="KUBECONFIG is not set, this is not a pod, and"):
        await transport.Credentials(None).load()


async def test_the_servers_clock_is_known_from_its_last_response(tmp_path: Path) -> None:
    def said(offset: float) -> Answer:
        return says(thing("a", "1"), Date=formatdate(time.time() + offset, usegmt=True))

    # A second or two may be the way of the response.
    script = Script(said(0.0), said(-600.0), says(thing("a", "1"), Date="today"), said(1.0))
    async with serving(script, tmp_path), Kube.connect(tmp_path / "kubeconfig") as kube:
        known = []
        for _ in range(4):
            await kube.get(PODS, "a", "ns")
            known.append(kube.clock_offset)
            # By the earlier of both clocks.
            now = time.time() + min(0.0, known[-1])
            assert kube.now() == pytest.approx(now, abs=0.5)
            assert kube.server_ahead == 0.0
    assert known == [0.0, pytest.approx(-600.0, abs=1.5), known[1], 0.0]


async def test_a_slow_response_and_the_metrics_servers_clock_say_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def late(request: web.Request) -> web.StreamResponse:
        # The response is read late, as by a process that was busy or suspended meanwhile.
        response = await says(thing("a", "1"), Date=formatdate(now, usegmt=True))(request)
        monkeypatch.setattr(time, "time", lambda: now + 60.0)
        return response

    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    others = says(thing("a", "1"), Date=formatdate(now + 600.0, usegmt=True))
    script = Script(late, others)
    async with serving(script, tmp_path), Kube.connect(tmp_path / "kubeconfig") as kube:
        await kube.get(PODS, "a", "ns")
        assert kube.clock_offset == 0.0
        # Another server responds, on another machine.
        await kube.get(POD_METRICS, "a", "ns")
        assert kube.clock_offset == 0.0
