"""Tests the job plugins: the objects that they create, and their changes to the pods."""

from __future__ import annotations

import base64
from typing import Any

from cryptography.hazmat.primitives import serialization

from deploy.local.cluster.client import CONFIG_MAPS, NETWORK_POLICIES, SECRETS, SERVICES
from deploy.local.cluster.volcano.plugins import companion_keys, companions
from deploy.local.cluster.volcano.pods import make_pod

Object = dict[str, Any]


def make_job(plugins: dict[str, list[str]], *tasks: tuple[str, int]) -> Object:
    """Return a job of *tasks*, each with a container of its own name, and an init container."""
    template = {
        name: {"spec": {"containers": [{"name": name}], "initContainers": [{"name": "init"}]}}
        for name, _ in tasks
    }
    return {
        "metadata": {"name": "j", "namespace": "n", "uid": "u"},
        "spec": {
            "schedulerName": "volcano",
            "queue": "default",
            "plugins": plugins,
            "tasks": [{"name": n, "replicas": r, "template": template[n]} for n, r in tasks],
        },
    }


def pod_of(job: Object, task: str, index: int = 0) -> Object:
    """Return one of the job's pods."""
    return make_pod(job, next(t for t in job["spec"]["tasks"] if t["name"] == task), index)


def environment(container: Object) -> dict[str, Any]:
    """Return a container's variables that have a value."""
    return {entry["name"]: entry.get("value") for entry in container.get("env") or []}


def test_the_keys_of_plugin_objects_match_the_created_objects() -> None:
    job = make_job({"svc": [], "ssh": [], "ray": []}, ("head", 1), ("worker", 2))
    made = [(resource, value["metadata"]["name"]) for resource, value in companions(job)]
    assert made == companion_keys(job)
    assert set(made) == {
        (SERVICES, "j"),
        (CONFIG_MAPS, "j-svc"),
        (NETWORK_POLICIES, "j"),
        (SECRETS, "j-ssh"),
        (SERVICES, "j-head-svc"),
    }
    assert all(value["metadata"]["ownerReferences"] for _, value in companions(job))


def test_the_svc_plugin_can_omit_its_network_policy() -> None:
    job = make_job({"svc": ["--disable-network-policy=true"]}, ("job", 1))
    assert [resource for resource, _ in companions(job)] == [SERVICES, CONFIG_MAPS]


def test_ssh_keys_match_and_are_new_each_time() -> None:
    job = make_job({"ssh": []}, ("job", 2))
    first, second = (companions(job)[0][1]["data"] for _ in range(2))
    assert first["id_rsa"] != second["id_rsa"]
    private = serialization.load_pem_private_key(base64.b64decode(first["id_rsa"]), None)
    public = private.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    assert base64.b64decode(first["authorized_keys"]).strip() == public
    config = base64.b64decode(first["config"]).decode()
    assert "Host j-job-1\n  HostName j-job-1.j\n" in config


def test_ssh_keys_are_mounted_at_the_requested_path() -> None:
    for arguments, path, mode in (
        ([], "/root/.ssh", 0o600),
        (["--ssh-key-file-path=/home/u/.ssh"], "/home/u/.ssh", 0o755),
    ):
        pod = pod_of(make_job({"ssh": arguments}, ("job", 1)), "job")
        mount = pod["spec"]["containers"][0]["volumeMounts"][0]
        assert (mount["mountPath"], mount["subPath"]) == (path, ".ssh")
        assert pod["spec"]["volumes"][0]["secret"]["defaultMode"] == mode


def test_ray_starts_its_own_commands_and_the_workers_find_the_head() -> None:
    job = make_job({"ray": ["--port=7000"], "svc": []}, ("head", 1), ("worker", 1))
    head = pod_of(job, "head")["spec"]["containers"][0]
    assert head["command"][:2] == ["sh", "-c"]
    assert "--head --block" in head["command"][2]
    assert {port["name"]: port["containerPort"] for port in head["ports"]} == {
        "gcs": 7000,
        "dashboard": 8265,
        "client-server": 10001,
    }
    worker = pod_of(job, "worker")["spec"]["containers"][0]
    assert worker["command"][2] == "ray start --block --address=j-head-0.j:7000"
    service = next(v for _, v in companions(job) if v["metadata"]["name"] == "j-head-svc")
    assert service["spec"]["selector"]["volcano.sh/task-spec"] == "head"


def test_mpi_configures_only_the_master_and_opens_the_port_everywhere() -> None:
    job = make_job({"mpi": ["--port=2222"]}, ("master", 1), ("worker", 2))
    master, worker = pod_of(job, "master")["spec"], pod_of(job, "worker", 1)["spec"]
    hosts = "j-worker-0.j,j-worker-1.j"
    assert environment(master["containers"][0])["MPI_HOST"] == hosts
    assert environment(master["initContainers"][0])["MPI_HOST"] == hosts
    assert "MPI_HOST" not in environment(worker["containers"][0])
    assert worker["containers"][0]["ports"] == [{"name": "mpijob-port", "containerPort": 2222}]


def test_a_tensorflow_job_of_one_pod_gets_no_tf_config() -> None:
    job = make_job({"tensorflow": []}, ("worker", 1))
    assert "TF_CONFIG" not in environment(pod_of(job, "worker")["spec"]["containers"][0])


def test_a_pod_knows_its_partition() -> None:
    job = make_job({}, ("job", 4))
    job["spec"]["tasks"][0]["partitionPolicy"] = {"totalPartitions": 2, "partitionSize": 2}
    labels = [pod_of(job, "job", n)["metadata"]["labels"] for n in range(4)]
    assert [own["volcano.sh/partition-id"] for own in labels] == ["0", "0", "1", "1"]


def test_making_a_pod_leaves_the_job_as_it_was() -> None:
    job = make_job({"svc": [], "env": [], "mpi": []}, ("master", 1), ("worker", 1))
    for _ in range(2):
        pod = pod_of(job, "master")
    variables = [entry["name"] for entry in pod["spec"]["initContainers"][0]["env"]]
    assert len(variables) == len(set(variables))
    assert job["spec"]["tasks"][0]["template"]["spec"]["initContainers"] == [{"name": "init"}]
