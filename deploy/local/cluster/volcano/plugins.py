"""The objects that a job's plugins make beside its pods, and their changes to each pod. No I/O."""

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from deploy.local.cluster.client import (
    CONFIG_MAPS,
    NETWORK_POLICIES,
    SECRETS,
    SERVICES,
    Resource,
)
from deploy.local.cluster.volcano.definitions import BATCH

Object = dict[str, Any]
JOB_LABEL: Final = "volcano.sh/job-name"
_HOSTS_FOLDER: Final = "/etc/volcano"
_KEYS_FOLDER: Final = "/root/.ssh"
_KEY_BITS: Final = 2048
_POLICY_OFF: Final = "--disable-network-policy=true"
_RAY_PORTS: Final = {"gcs": "6379", "dashboard": "8265", "client-server": "10001"}


def pod_name(job: Object, task: Object, index: int) -> str:
    """Return the name of one of the job's pods."""
    return f"{job['metadata']['name']}-{task['name']}-{index}"


def owned(job: Object, name: str) -> Object:
    """Return the metadata of an object that belongs to *job*."""
    metadata = job["metadata"]
    owner = {
        "apiVersion": BATCH,
        "kind": "Job",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {"name": name, "namespace": metadata["namespace"], "ownerReferences": [owner]}


def mount(spec: Object, volume: Object, path: str, **rest: str) -> None:
    """Mount *volume* at *path* in all containers of a pod's *spec*."""
    spec["volumes"] = [*(spec.get("volumes") or []), volume]
    for container in spec["containers"]:
        mounts = container.get("volumeMounts") or []
        added = {"name": volume["name"], "mountPath": path, **rest}
        container["volumeMounts"] = [*mounts, added]


def companion_names(job: Object) -> dict[str, str]:
    """Return ``status.controlledResources`` for the job's plugins."""
    return {f"plugin-{name}": name for name in job["spec"].get("plugins") or {}}


def companion_keys(job: Object) -> list[tuple[Resource, str]]:
    """Return kind and name of each object that `companions` makes."""
    plugins, name = job["spec"].get("plugins") or {}, job["metadata"]["name"]
    keys: list[tuple[Resource, str]] = []
    if "svc" in plugins:
        keys += [(SERVICES, name), (CONFIG_MAPS, f"{name}-svc")]
        if _POLICY_OFF not in plugins["svc"]:
            keys.append((NETWORK_POLICIES, name))
    if "ssh" in plugins:
        keys.append((SECRETS, f"{name}-ssh"))
    if "ray" in plugins:
        keys.append((SERVICES, f"{name}-head-svc"))
    return keys


def companions(job: Object) -> list[tuple[Resource, Object]]:
    """Return the objects that the job's plugins need beside its pods; ``ssh`` keys are new ones."""
    return [(what, {**_make(what, job, name)}) for what, name in companion_keys(job)]


def _make(resource: Resource, job: Object, name: str) -> Object:
    value: Object = {"apiVersion": resource.api_version, "metadata": owned(job, name)}
    match resource.plural:
        case "configmaps":
            return value | {"kind": "ConfigMap", "data": hosts_data(job)}
        case "secrets":
            return value | {"kind": "Secret", "data": _new_keys(job)}
        case "networkpolicies":
            rule = {"from": [{"podSelector": {"matchLabels": _selector(job)}}]}
            spec: Object = {"podSelector": {"matchLabels": _selector(job)}, "ingress": [rule]}
            return value | {"kind": "NetworkPolicy", "spec": {**spec, "policyTypes": ["Ingress"]}}
    is_own = name == job["metadata"]["name"]
    return value | {"kind": "Service", "spec": _gang_service(job) if is_own else _ray_service(job)}


def _selector(job: Object) -> dict[str, str]:
    metadata = job["metadata"]
    return {JOB_LABEL: metadata["name"], "volcano.sh/job-namespace": metadata["namespace"]}


def _gang_service(job: Object) -> Object:
    flag = _arguments(job, "svc").get("publish-not-ready-addresses", "false")
    early = {"publishNotReadyAddresses": True} if flag in ("", "true") else {}
    return {"clusterIP": "None", "selector": _selector(job), **early}


def _ray_service(job: Object) -> Object:
    head = _arguments(job, "ray").get("head", "head")
    ports = _ray_ports(job)
    return {
        "selector": {**_selector(job), "volcano.sh/task-spec": head},
        "ports": [{"name": n, "port": port, "targetPort": n} for n, port in ports.items()],
    }


def hosts_data(job: Object) -> dict[str, str]:
    """Return the content of the ConfigMap of ``svc``."""
    data = {}
    for task in job["spec"]["tasks"]:
        hosts = _hosts(job, task)
        name = task["name"].replace("-", "_")
        data[f"{name}.host"] = "\n".join(hosts)
        data[f"VC_{name.upper()}_HOSTS"] = ",".join(hosts)
        data[f"VC_{name.upper()}_NUM"] = str(task.get("replicas", 0))
    return data


def _hosts(job: Object, task: Object) -> list[str]:
    return [
        f"{pod_name(job, task, index)}.{job['metadata']['name']}"
        for index in range(task.get("replicas", 0))
    ]


def _arguments(job: Object, plugin: str) -> dict[str, str]:
    words = job["spec"]["plugins"][plugin] or []
    return dict(word.lstrip("-").partition("=")[::2] for word in words)


def _tasks(job: Object) -> dict[str, Object]:
    return {task["name"]: task for task in job["spec"]["tasks"]}


def _new_keys(job: Object) -> dict[str, str]:
    key = rsa.generate_private_key(public_exponent=65537, key_size=_KEY_BITS)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    hosts = [host for task in job["spec"]["tasks"] for host in _hosts(job, task)]
    lines = ["StrictHostKeyChecking no", "UserKnownHostsFile /dev/null"]
    lines += [f"Host {host.partition('.')[0]}\n  HostName {host}" for host in hosts]
    content = {
        "id_rsa": private,
        "id_rsa.pub": public + b"\n",
        "authorized_keys": public + b"\n",
        "config": "\n".join([*lines, ""]).encode(),
    }
    return {name: base64.b64encode(text).decode() for name, text in content.items()}


# --- the change of each plugin to a pod ---


def _add_env(pod: Object, variables: list[Object], *, inits: bool = True) -> None:
    beside = (pod["spec"].get("initContainers") or []) if inits else []
    for container in (*pod["spec"]["containers"], *beside):
        container["env"] = [*(container.get("env") or []), *variables]


def _add_port(container: Object, name: str, port: int) -> None:
    ports = container.get("ports") or []
    if all(known["containerPort"] != port for known in ports):
        container["ports"] = [*ports, {"name": name, "containerPort": port}]


def _svc(job: Object, task: Object, index: int, pod: Object) -> None:
    spec, config = pod["spec"], f"{job['metadata']['name']}-svc"
    spec.setdefault("hostname", pod["metadata"]["name"])
    spec.setdefault("subdomain", job["metadata"]["name"])
    mount(spec, {"name": config, "configMap": {"name": config}}, _HOSTS_FOLDER)
    keys = [key for key in hosts_data(job) if key.startswith("VC_")]
    source = [
        {"name": k, "valueFrom": {"configMapKeyRef": {"name": config, "key": k}}} for k in keys
    ]
    _add_env(pod, source)


def _env(job: Object, task: Object, index: int, pod: Object) -> None:
    _add_env(pod, [{"name": n, "value": str(index)} for n in ("VK_TASK_INDEX", "VC_TASK_INDEX")])


def _ssh(job: Object, task: Object, index: int, pod: Object) -> None:
    name = f"{job['metadata']['name']}-ssh"
    path = _arguments(job, "ssh").get("ssh-key-file-path", _KEYS_FOLDER)
    files = ("id_rsa", "id_rsa.pub", "authorized_keys", "config")
    secret = {
        "secretName": name,
        "items": [{"key": file, "path": f".ssh/{file}"} for file in files],
        "defaultMode": 0o600 if path == _KEYS_FOLDER else 0o755,
    }
    mount(pod["spec"], {"name": name, "secret": secret}, path, subPath=".ssh")


def _pytorch(job: Object, task: Object, index: int, pod: Object) -> None:
    tasks, arguments = _tasks(job), _arguments(job, "pytorch")
    master = tasks.get(arguments.get("master", "master"))
    worker = tasks.get(arguments.get("worker", "worker"))
    if master is None:
        return
    port = arguments.get("port", "23456")
    world = master["replicas"] + (worker["replicas"] if worker else 0)
    rank = index if task["name"] == master["name"] else index + master["replicas"]
    values = {
        "MASTER_ADDR": _hosts(job, master)[0],
        "MASTER_PORT": port,
        "WORLD_SIZE": str(world),
        "RANK": str(rank),
    }
    _add_env(pod, [{"name": name, "value": value} for name, value in values.items()])
    for container in pod["spec"]["containers"]:
        _add_port(container, "pytorchjob-port", int(port))


def _tensorflow(job: Object, task: Object, index: int, pod: Object) -> None:
    tasks, arguments = _tasks(job), _arguments(job, "tensorflow")
    if len(tasks) == 1 and task.get("replicas", 0) == 1:
        return
    roles = {arguments.get(role, role): role for role in ("ps", "worker", "chief", "evaluator")}
    port = arguments.get("port", "2222")
    cluster = {
        roles[name]: [f"{host}:{port}" for host in _hosts(job, value)]
        for name, value in tasks.items()
        if name in roles
    }
    own = {"type": roles.get(task["name"], task["name"]), "index": index}
    config = json.dumps({"cluster": cluster, "task": own}, separators=(",", ":"))
    _add_env(pod, [{"name": "TF_CONFIG", "value": config}], inits=False)


def _mpi(job: Object, task: Object, index: int, pod: Object) -> None:
    tasks, arguments = _tasks(job), _arguments(job, "mpi")
    worker = tasks.get(arguments.get("worker", "worker"))
    if task["name"] == arguments.get("master", "master") and worker is not None:
        _add_env(pod, [{"name": "MPI_HOST", "value": ",".join(_hosts(job, worker))}])
    for container in (*pod["spec"]["containers"], *(pod["spec"].get("initContainers") or [])):
        _add_port(container, "mpijob-port", int(arguments.get("port", "22")))


def _ray(job: Object, task: Object, index: int, pod: Object) -> None:
    tasks, arguments, ports = _tasks(job), _arguments(job, "ray"), _ray_ports(job)
    head = tasks.get(arguments.get("head", "head"))
    if head is None:
        return
    roles = {
        (head["name"], arguments.get("headContainer", "head")): (
            "ray start --head --block --dashboard-host=0.0.0.0"
            f" --port={ports['gcs']} --dashboard-port={ports['dashboard']}"
            f" --ray-client-server-port={ports['client-server']}"
        ),
        (arguments.get("worker", "worker"), arguments.get("workerContainer", "worker")): (
            f"ray start --block --address={_hosts(job, head)[0]}:{ports['gcs']}"
        ),
    }
    for container in pod["spec"]["containers"]:
        if command := roles.get((task["name"], container["name"])):
            container["command"] = ["sh", "-c", command]
            if task["name"] == head["name"]:
                for name, port in ports.items():
                    _add_port(container, name, port)


def _ray_ports(job: Object) -> dict[str, int]:
    arguments = _arguments(job, "ray")
    flags = {"gcs": "port", "dashboard": "dashboardPort", "client-server": "clientPort"}
    return {n: int(arguments.get(flags[n], default)) for n, default in _RAY_PORTS.items()}


Change = Callable[[Object, Object, int, Object], None]
ON_POD: Final[Mapping[str, Change]] = {
    "env": _env,
    "mpi": _mpi,
    "pytorch": _pytorch,
    "ray": _ray,
    "ssh": _ssh,
    "svc": _svc,
    "tensorflow": _tensorflow,
}
