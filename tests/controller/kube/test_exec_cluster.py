"""Tests the exec client with the embedded cluster's API server and kubelet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from controller.hub.opening import open_shell
from controller.kube.client import Kube
from controller.kube.errors import KubeError
from controller.kube.exec import ExecFailed, ExecTarget, Exited, PodExec, TerminalStream
from controller.kube.kinds import PODS
from deploy.local.cluster import EmbeddedCluster

WHERE = ExecTarget("default", "p1", "job")


def make_pod(name: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "job", "image": "shell", "command": ["sleep", "infinity"]}
    return {"metadata": {"name": name}, "spec": {"containers": [container]} | spec}


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster() as one:
        yield one


@pytest.fixture
async def kube(cluster: EmbeddedCluster) -> AsyncIterator[Kube]:
    async with Kube.connect(cluster.kubeconfig("admin")) as kube:
        async with asyncio.timeout(20):
            await _create(kube, make_pod("p1"))
            while (await kube.get(PODS, "p1", "default"))["status"].get("phase") != "Running":
                await asyncio.sleep(0.05)
        yield kube


async def _create(kube: Kube, pod: dict[str, Any]) -> None:
    while True:  # the ServiceAccount appears shortly after the namespace
        try:
            await kube.create(PODS, pod, "default")
        except KubeError:
            await asyncio.sleep(0.05)
        else:
            return


async def read_until(stream: TerminalStream, text: bytes) -> bytes:
    output = b""
    async with asyncio.timeout(10):
        while text not in output:
            received = await stream.receive()
            assert isinstance(received, bytes), (output, received)
            output += received
    return output


async def test_a_shell_in_a_pod(kube: Kube) -> None:
    executor = PodExec(kube)
    stream, first = await open_shell(executor, WHERE)
    assert b"5522" not in first
    await stream.resize(100, 30)
    await stream.send(b"echo $((6*7))-$TERM-$-; stty size; hostname\n")
    output = await read_until(stream, b"\np1")
    assert b"\n42-xterm-256color-" in output or b"\r42-xterm-256color-" in output
    assert b"30 100" in output
    await stream.send(b"exit 5\n")
    async with asyncio.timeout(10):
        while isinstance(received := await stream.receive(), bytes):
            pass
    assert isinstance(received, Exited)
    assert (received.code, received.lost) == (5, False)
    await stream.close()

    # After the hang-up its program gets a signal and does not stay in the pod.
    stream, _ = await open_shell(executor, WHERE)
    await stream.send(b"exec sleep 98765\n")
    look = ["sh", "-c", "grep -la 9876[5] /proc/[0-9]*/cmdline; echo end"]

    async def runs() -> bool:
        looking = await executor.open(WHERE, look)
        found = await read_until(looking, b"end\r\n")
        await looking.close()
        return b"/proc/" in found

    async with asyncio.timeout(20):
        while not await runs():
            await asyncio.sleep(0.1)
    await stream.close()
    async with asyncio.timeout(20):
        while await runs():
            await asyncio.sleep(0.1)

    for where, status in (
        (ExecTarget("default", "missing", "job"), 404),
        (ExecTarget("default", "p1", "another"), 400),
    ):
        with pytest.raises(ExecFailed) as raised:
            await executor.open(where, ["true"])
        assert raised.value.status == status


async def test_a_terminal_whose_kubelet_ends_is_lost_and_no_other_is_opened(
    cluster: EmbeddedCluster, kube: Kube
) -> None:
    executor = PodExec(kube)
    stream, _ = await open_shell(executor, WHERE)
    await cluster.kill_program("kubelet")
    async with asyncio.timeout(20):
        while isinstance(received := await stream.receive(), bytes):
            pass
    assert isinstance(received, Exited)
    assert (received.code, received.lost) == (None, True)
    await stream.close()
    # The API server accepts the WebSocket, and the command never begins.
    with pytest.raises(ExecFailed, match="error sending request"):
        await open_shell(executor, WHERE)
