"""Tests what a job's pods know of each other and reach, and which jobs Queues admit.

The containers are ``busybox`` and ``python`` with commands that the images of those names on any
registry can run.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.calls import (
    BATCH,
    BUS,
    SCHEDULING,
    Kube,
    Object,
    eventually,
    make_job,
)

pytestmark = pytest.mark.usefixtures("kubelet")

_MEET = """
import http.server, os, threading, time, urllib.request
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
        self.wfile.write(os.uname().nodename.encode())
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("0.0.0.0", 8000), Answer)
threading.Thread(target=server.serve_forever, daemon=True).start()
for host in open("/etc/volcano/job.host").read().split():
    while True:
        try:
            print(host, urllib.request.urlopen(f"http://{host}:8000/", timeout=2).read().decode())
            break
        except OSError:
            time.sleep(0.2)
time.sleep(3)
"""


def _task(name: str, script: str, replicas: int = 1) -> Object:
    task: Object = make_job("x", script=script, replicas=replicas)["spec"]["tasks"][0]
    return {**task, "name": name}


async def _ended(kube: Kube, namespace: str, name: str) -> str:
    async def ends() -> str:
        phase = await kube.phase(namespace, name)
        return phase if phase in ("Completed", "Failed", "Aborted", "Terminated") else ""

    return str(await eventually(ends, seconds=60, every=0.2))


async def _log(kube: Kube, namespace: str, pod: str) -> str:
    return str(await kube.core.read_namespaced_pod_log(pod, namespace))


async def test_the_ranks_of_a_job_reach_each_other_by_name(kube: Kube, namespace: str) -> None:
    job = make_job("gang", replicas=4, plugins={"svc": [], "env": []})
    container = job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]
    container |= {"image": "python", "command": ["python", "-u", "-c", _MEET]}
    await kube.create_job(namespace, job)
    assert await _ended(kube, namespace, "gang") == "Completed"
    met = "".join(f"gang-job-{n}.gang gang-job-{n}\n" for n in range(4))
    for rank in range(4):
        assert await _log(kube, namespace, f"gang-job-{rank}") == met


async def test_pytorch_sets_master_address_and_rank(kube: Kube, namespace: str) -> None:
    script = "echo $MASTER_ADDR $MASTER_PORT $WORLD_SIZE $RANK"
    job = make_job("torch", plugins={"pytorch": ["--port=29500"]})
    job["spec"]["tasks"] = [_task("master", script), _task("worker", script, 2)]
    await kube.create_job(namespace, job)
    assert await _ended(kube, namespace, "torch") == "Completed"
    for rank, pod in enumerate(("torch-master-0", "torch-worker-0", "torch-worker-1")):
        said = await _log(kube, namespace, pod)
        assert said.split() == ["torch-master-0.torch", "29500", "3", str(rank)]


async def test_tensorflow_sets_tf_config(kube: Kube, namespace: str) -> None:
    job = make_job("tf", plugins={"tensorflow": []})
    job["spec"]["tasks"] = [_task("ps", "echo $TF_CONFIG"), _task("worker", "echo $TF_CONFIG", 2)]
    await kube.create_job(namespace, job)
    assert await _ended(kube, namespace, "tf") == "Completed"
    # The raw call: the library would decode a log that looks like JSON as an object.
    _, said = await kube.call("GET", f"/api/v1/namespaces/{namespace}/pods/tf-worker-1/log")
    assert said == {
        "cluster": {
            "ps": ["tf-ps-0.tf:2222"],
            "worker": ["tf-worker-0.tf:2222", "tf-worker-1.tf:2222"],
        },
        "task": {"type": "worker", "index": 1},
    }


async def test_mpi_gives_the_master_the_worker_hosts_and_ssh_keys(
    kube: Kube, namespace: str
) -> None:
    script = (
        "echo $MPI_HOST; sort -u /root/.ssh/authorized_keys | wc -l; grep Host /root/.ssh/config"
    )
    job = make_job("mpi", plugins={"mpi": []})
    job["spec"]["tasks"] = [_task("master", script), _task("worker", "exit 0", 2)]
    for task in job["spec"]["tasks"]:
        task["template"]["spec"]["securityContext"] = {"runAsUser": 0}
    await kube.create_job(namespace, job)
    assert await _ended(kube, namespace, "mpi") == "Completed"
    lines = (await _log(kube, namespace, "mpi-master-0")).split("\n")
    assert lines[:2] == ["mpi-worker-0.mpi,mpi-worker-1.mpi", "1"]
    assert "Host mpi-worker-1" in lines


# Queues


async def _open_queue(kube: Kube, name: str, **spec: Any) -> None:
    queue = {
        "apiVersion": "/".join(SCHEDULING),
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"weight": 1, **spec},
    }
    await kube.custom.create_cluster_custom_object(*SCHEDULING, "queues", queue)

    async def is_open() -> bool:
        return await _queue_state(kube, name) == "Open"

    await eventually(is_open)


async def _queue_state(kube: Kube, name: str) -> str:
    queue = await kube.custom.get_cluster_custom_object(*SCHEDULING, "queues", name)
    return str((queue.get("status") or {}).get("state", ""))


def _greedy(name: str, queue: str, script: str) -> Object:
    job = make_job(name, script=script, queue=queue)
    container = job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]
    container["resources"] = {"requests": {"cpu": "100m"}, "limits": {"cpu": "100m"}}
    return job


async def test_a_queue_admits_jobs_up_to_its_capability(
    kube: Kube, namespace: str, queue: str
) -> None:
    await _open_queue(kube, queue, capability={"cpu": "150m"})
    # Both at once: an admitted job counts before its pod exists.
    for name in ("first", "second"):
        await kube.create_job(namespace, _greedy(name, queue, "sleep 2"))

    async def all_ended() -> bool:
        names = [await kube.phase(namespace, name) for name in ("first", "second")]
        pods = (await kube.core.list_namespaced_pod(namespace)).items
        running = [p for p in pods if p.status.phase == "Running"]
        assert len(running) <= 1
        return names == ["Completed", "Completed"]

    await eventually(all_ended, seconds=60)


async def _queue_command(kube: Kube, namespace: str, queue: str, action: str) -> None:
    found = await kube.custom.get_cluster_custom_object(*SCHEDULING, "queues", queue)
    target = {
        "apiVersion": "/".join(SCHEDULING),
        "kind": "Queue",
        "name": queue,
        "uid": found["metadata"]["uid"],
    }
    command = {
        "apiVersion": "/".join(BUS),
        "kind": "Command",
        "metadata": {"generateName": f"{queue}-", "namespace": namespace},
        "action": action,
        "target": target,
    }
    await kube.custom.create_namespaced_custom_object(*BUS, namespace, "commands", command)


async def test_a_closed_queue_refuses_new_jobs_and_finishes_running_ones(
    kube: Kube, namespace: str, queue: str
) -> None:
    await _open_queue(kube, queue)
    await kube.create_job(namespace, _greedy("old", queue, "sleep 3"))

    async def runs() -> bool:
        return await kube.phase(namespace, "old") == "Running"

    await eventually(runs)
    await _queue_command(kube, namespace, queue, "CloseQueue")

    async def has_closed() -> bool:
        state = await _queue_state(kube, queue)
        assert state in ("Open", "Closing", "Closed")
        return state == "Closed"

    await eventually(has_closed, seconds=60)
    assert await kube.phase(namespace, "old") == "Completed"
    path = f"/apis/{'/'.join(BATCH)}/namespaces/{namespace}/jobs"
    code, said = await kube.call("POST", path, _greedy("new", queue, "exit 0"))
    assert code == 400
    assert "can only submit job to queue with state `Open`" in str(said)
