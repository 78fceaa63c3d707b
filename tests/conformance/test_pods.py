"""Tests pods as a client sees them: bound, running, logs, exec, probes, ended."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from kubernetes_asyncio.stream import WsApiClient

from tests.conformance.calls import Kube, eventually, make_pod, refused, watched, within


def _running_pod(name: str, script: str, **container: Any) -> dict[str, Any]:
    main = {"name": "main", "image": "busybox", "command": ["sh", "-c", script], **container}
    return make_pod(name, containers=[main], schedulingGates=None, terminationGracePeriodSeconds=1)


async def _until(kube: Kube, namespace: str, name: str, phase: str) -> Any:
    async def reached() -> Any:
        pod = await kube.core.read_namespaced_pod(name, namespace)
        return pod if pod.status.phase == phase else None

    return await eventually(reached)


async def test_exec_needs_a_node(kube: Kube, namespace: str) -> None:
    await kube.core.create_namespaced_pod(namespace, make_pod("a"))
    call = kube.core.connect_get_namespaced_pod_exec("a", namespace, command="true")
    await refused("exec in an unscheduled pod", call)


async def test_exec_in_a_missing_pod_or_container_is_refused_before_the_upgrade(
    kube: Kube, namespace: str
) -> None:
    call = kube.core.connect_get_namespaced_pod_exec("no-such", namespace, command="true")
    await refused("get what is missing", call)


@pytest.mark.usefixtures("kubelet")
async def test_a_pod_runs_to_its_end_with_exit_code_and_log(kube: Kube, namespace: str) -> None:
    script = "echo one; echo two; echo three; exit 3"
    await kube.core.create_namespaced_pod(namespace, _running_pod("a", script))
    pod = await _until(kube, namespace, "a", "Failed")
    ended = pod.status.container_statuses[0].state.terminated
    assert (ended.exit_code, ended.reason) == (3, "Error")
    assert ended.started_at <= ended.finished_at
    log = await kube.core.read_namespaced_pod_log("a", namespace)
    assert log == "one\ntwo\nthree\n"
    tail = await kube.core.read_namespaced_pod_log("a", namespace, tail_lines=1, container="main")
    assert tail == "three\n"


@pytest.mark.usefixtures("kubelet")
async def test_a_followed_log_is_streamed_and_ends_with_the_container(
    kube: Kube, namespace: str
) -> None:
    script = "for i in 1 2 3; do echo $i; sleep 0.3; done"
    await kube.core.create_namespaced_pod(namespace, _running_pod("a", script))

    async def has_started() -> bool:
        pod = await kube.core.read_namespaced_pod("a", namespace)
        return bool(pod.status.phase != "Pending")

    await eventually(has_started)
    async with within(10):
        log = await kube.core.read_namespaced_pod_log("a", namespace, follow=True)
    assert log == "1\n2\n3\n"


async def _execute(kube: Kube, namespace: str, name: str, *command: str) -> tuple[str, Any]:
    """Return the output of *command* and its final Status."""
    api = WsApiClient(configuration=kube.api.configuration)
    async with api:
        core: Any = type(kube.core)(api)
        socket = await core.connect_get_namespaced_pod_exec(
            name,
            namespace,
            command=list(command),
            stdout=True,
            stderr=True,
            stdin=False,
            tty=False,
            _preload_content=False,
        )
        output, status = b"", b""
        async with within(10), socket as stream:
            async for message in stream:
                if message.data[0] in (1, 2):
                    output += message.data[1:]
                elif message.data[0] == 3:
                    status += message.data[1:]
            assert stream.close_code == 1006
    return output.decode(), json.loads(status)


@pytest.mark.usefixtures("kubelet")
async def test_exec_runs_beside_the_container_and_returns_its_exit_code(
    kube: Kube, namespace: str
) -> None:
    await kube.core.create_namespaced_pod(namespace, _running_pod("a", "sleep 60"))
    await _until(kube, namespace, "a", "Running")
    output, status = await _execute(kube, namespace, "a", "sh", "-c", "echo $((6*7))")
    assert output == "42\n"
    assert status["status"] == "Success"
    output, status = await _execute(kube, namespace, "a", "sh", "-c", "echo no >&2; exit 5")
    assert output == "no\n"
    assert status["reason"] == "NonZeroExitCode"
    assert status["details"]["causes"] == [{"reason": "ExitCode", "message": "5"}]


@pytest.mark.usefixtures("kubelet")
async def test_a_terminal_echoes_is_resized_and_hangs_up(kube: Kube, namespace: str) -> None:
    await kube.core.create_namespaced_pod(namespace, _running_pod("a", "sleep 60"))
    await _until(kube, namespace, "a", "Running")
    async with WsApiClient(configuration=kube.api.configuration) as api:
        core: Any = type(kube.core)(api)
        socket = await core.connect_get_namespaced_pod_exec(
            "a",
            namespace,
            command=["sh"],
            stdin=True,
            stdout=True,
            stderr=False,
            tty=True,
            _preload_content=False,
        )
        seen = b""
        async with within(10), socket as stream:
            await stream.send_bytes(b"\x04" + json.dumps({"Width": 132, "Height": 43}).encode())
            await stream.send_bytes(b"\x00sleep 0.5; stty size; tty; exit 6\n")
            async for message in stream:
                if message.data[0] == 1:
                    seen += message.data[1:]
                elif message.data[0] == 3:
                    status = json.loads(message.data[1:])
    assert b"43 132" in seen
    assert b"/dev/pts/" in seen
    assert b"stty size" in seen  # echoed
    assert status["details"]["causes"] == [{"reason": "ExitCode", "message": "6"}]


@pytest.mark.usefixtures("kubelet")
async def test_a_wrong_container_is_refused(kube: Kube, namespace: str) -> None:
    await kube.core.create_namespaced_pod(namespace, _running_pod("a", "sleep 60"))
    await _until(kube, namespace, "a", "Running")
    call = kube.core.read_namespaced_pod_log("a", namespace, container="other")
    await refused("a log of a wrong container", call)


@pytest.mark.usefixtures("kubelet")
async def test_readiness_follows_the_probe(kube: Kube, namespace: str) -> None:
    script = "while :; do sleep 0.1; done"
    probe = {
        "exec": {"command": ["test", "-e", "/tmp/ready"]},
        "periodSeconds": 1,
        "failureThreshold": 1,
    }
    await kube.core.create_namespaced_pod(
        namespace, _running_pod("a", script, readinessProbe=probe)
    )
    pod = await _until(kube, namespace, "a", "Running")
    assert not pod.status.container_statuses[0].ready

    async def ready_is(expected: bool) -> bool:
        found = await kube.core.read_namespaced_pod("a", namespace)
        conditions = {c.type: c.status for c in found.status.conditions}
        return bool((conditions["Ready"] == "True") == expected)

    await _execute(kube, namespace, "a", "touch", "/tmp/ready")
    await eventually(lambda: ready_is(True))
    await _execute(kube, namespace, "a", "rm", "/tmp/ready")
    await eventually(lambda: ready_is(False))


@pytest.mark.usefixtures("kubelet")
async def test_an_unknown_image_stays_in_image_pull_back_off(kube: Kube, namespace: str) -> None:
    pod = _running_pod("a", "true", image="registry.invalid/no/such:image")
    await kube.core.create_namespaced_pod(namespace, pod)

    async def reason() -> Any:
        found = await kube.core.read_namespaced_pod("a", namespace)
        waiting = [s.state.waiting for s in found.status.container_statuses or []]
        return [w.reason for w in waiting if w and w.reason in ("ErrImagePull", "ImagePullBackOff")]

    await eventually(reason)
    assert (await kube.core.read_namespaced_pod("a", namespace)).status.phase == "Pending"


@pytest.mark.usefixtures("kubelet")
async def test_a_container_is_restarted_by_its_restart_policy(kube: Kube, namespace: str) -> None:
    pod = _running_pod("a", "exit 1")
    pod["spec"]["restartPolicy"] = "OnFailure"
    await kube.core.create_namespaced_pod(namespace, pod)

    async def restarted() -> Any:
        found = await kube.core.read_namespaced_pod("a", namespace)
        statuses = found.status.container_statuses or []
        return statuses[0] if statuses and statuses[0].restart_count else None

    status = await eventually(restarted)
    assert status.last_state.terminated.exit_code == 1


@pytest.mark.usefixtures("kubelet")
async def test_a_deleted_pod_has_its_grace_to_end(kube: Kube, namespace: str) -> None:
    script = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    await kube.core.create_namespaced_pod(namespace, _running_pod("a", script))
    await _until(kube, namespace, "a", "Running")
    following = asyncio.create_task(kube.core.read_namespaced_pod_log("a", namespace, follow=True))

    async def is_up() -> bool:
        return "up" in await kube.core.read_namespaced_pod_log("a", namespace)

    await eventually(is_up)
    await kube.core.delete_namespaced_pod("a", namespace)
    async with within(10):
        assert "bye" in await following

    async def is_gone() -> bool:
        found = await kube.core.list_namespaced_pod(namespace)
        return not found.items

    await eventually(is_gone)


@pytest.mark.usefixtures("kubelet")
async def test_an_evicted_pod_has_the_disruption_condition_and_is_deleted(
    kube: Kube, namespace: str
) -> None:
    await kube.core.create_namespaced_pod(namespace, _running_pod("a", "sleep 60"))
    await _until(kube, namespace, "a", "Running")
    listed = await kube.core.list_namespaced_pod(namespace)
    stream = watched(
        kube.core.list_namespaced_pod,
        namespace,
        resource_version=listed.metadata.resource_version,
    )
    path = f"/api/v1/namespaces/{namespace}/pods/a/eviction"
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}
    code, said = await kube.call("POST", path, body)
    assert (code, said["status"]) == (201, "Success")
    async with within(15):
        async for change, pod in stream:
            why = [c.reason for c in pod.status.conditions if c.type == "DisruptionTarget"]
            if change == "DELETED":
                break
    await stream.aclose()
    assert why == ["EvictionByEvictionAPI"]
