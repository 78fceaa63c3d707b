"""Tests connections to the API server with the environment's netrc, proxies and busy threads."""

from __future__ import annotations

import asyncio
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from controller.kube.client import Kube
from controller.kube.exec import ExecFailed, ExecTarget, PodExec
from controller.kube.kinds import PODS
from controller.kube.library import make_session, proxy_for
from tests.controller.kube.api_server import (
    Script,
    says,
    serving,
    streams,
    thing,
    write_kubeconfig,
)

ASKED = says(thing("a", "1"))
TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


async def test_a_netrc_entry_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login somebody password something\n")
    monkeypatch.setenv("NETRC", str(netrc))
    script = Script(ASKED)
    async with serving(script, tmp_path) as kube:
        await kube.get(PODS, "a", "ns")
    assert script.tokens == ["Bearer first"]


async def test_a_silent_connection_is_probed(tmp_path: Path) -> None:
    """A load balancer forgets idle connections, such as that of a followed log, without a word."""
    script = Script(ASKED, streams(then="hang"))
    async with serving(script, tmp_path) as kube, make_session(TLS, limit=0) as session:
        await kube.get(PODS, "a", "ns")
        async with session.get(f"http://{script.hosts[0]}/log") as response:
            connection = response.connection
            assert connection is not None
            assert connection.transport is not None
            sock = connection.transport.get_extra_info("socket")
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            probes = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            found = [sock.getsockopt(socket.IPPROTO_TCP, option) for option in probes]
            assert found == [30, 10, 3]


async def test_hooks_that_block_all_threads_delay_no_call(tmp_path: Path) -> None:
    over, threads = Event(), ThreadPoolExecutor(1)
    asyncio.get_running_loop().set_default_executor(threads)
    async with serving(Script(ASKED), tmp_path) as kube:
        held = asyncio.get_running_loop().run_in_executor(None, over.wait)
        try:
            async with asyncio.timeout(10):
                await kube.get(PODS, "a", "ns")
        finally:
            over.set()
            await held


async def test_a_proxy_from_the_environment_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script(ASKED)
    async with serving(script, tmp_path) as proxy:
        await proxy.get(PODS, "a", "ns")
        monkeypatch.setenv("HTTP_PROXY", f"http://{script.hosts.pop()}")
        path = write_kubeconfig(tmp_path / "other", "http://api.example.com")
        async with Kube.connect(path) as kube:
            await kube.get(PODS, "a", "ns")
    assert script.hosts == ["api.example.com"]


async def test_a_proxy_of_the_kubeconfig_takes_precedence_also_for_shells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script(ASKED)
    async with serving(script, tmp_path) as proxy:
        await proxy.get(PODS, "a", "ns")
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
        named = {"proxy-url": f"http://{script.hosts.pop()}"}
        path = write_kubeconfig(tmp_path / "other", "http://api.example.com", **named)
        async with Kube.connect(path) as kube:
            await kube.get(PODS, "a", "ns")
            with pytest.raises(ExecFailed, match="refused with 200"):
                await PodExec(kube).open(ExecTarget("ns", "a", "job"), ["sh"])
    assert script.hosts == ["api.example.com"] * 2


@pytest.mark.parametrize(
    ("url", "none_for", "proxy"),
    [
        ("https://api.example.com:6443", "", "http://p:3128"),
        ("https://api.example.com", "localhost,.example.com", None),
        ("https://10.0.0.1:6443", "10.0.0.1", None),
        ("http://api.example.com", "", None),
        ("", "", None),
        # Entries that Python's own parser of NO_PROXY does not support, and that clusters often
        # use.
        ("https://10.96.0.1:443", ".svc,.cluster.local, 10.0.0.0/8", None),
        ("https://10.96.0.1:443", "10.96.0.0/33,192.168.0.0/16", "http://p:3128"),
        ("https://10.96.0.1:443", "10.96.5.5/16", None),
        ("https://[fd00::1]:6443", "fd00::/8", None),
        ("https://[fe80::1]:6443", "10.0.0.0/8,fd00::/8", "http://p:3128"),
        ("https://127.0.0.1:6443", "", None),
        ("https://[::1]:6443", "", None),
        ("https://localhost:6443", "", None),
    ],
)
def test_the_proxy_is_chosen_by_environment_and_kubeconfig(
    url: str, none_for: str, proxy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://p:3128")
    monkeypatch.setenv("NO_PROXY", none_for)
    assert proxy_for(url) == proxy
