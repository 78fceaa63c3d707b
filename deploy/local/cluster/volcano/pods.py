"""The objects that a job is made into: its PodGroup, its pods, and its plugins' companions.

No I/O.
"""

import math
from collections.abc import Iterator
from typing import Any, Final

from deploy.local.cluster.client import CONFIG_MAPS, NETWORK_POLICIES, SERVICES, Resource
from deploy.local.cluster.quantities import quantity
from deploy.local.cluster.volcano.definitions import BATCH, SCHEDULING
from deploy.local.cluster.volcano.states import count, task_of

Object = dict[str, Any]
GROUP_ANNOTATION: Final = "scheduling.k8s.io/group-name"
JOB_LABEL: Final = "volcano.sh/job-name"
_PROPAGATED: Final = tuple(
    f"volcano.sh/{name}"
    for name in (
        "preemptable",
        "cooldown-time",
        "revocable-zone",
        "jdb-min-available",
        "jdb-max-unavailable",
    )
)
_HOSTS_FOLDER: Final = "/etc/volcano"
_PYTORCH_PORT: Final = "23456"


def group_name(job: Object) -> str:
    """Return the name of the job's PodGroup."""
    metadata = job["metadata"]
    return f"{metadata['name']}-{metadata['uid']}"


def pod_name(job: Object, task: Object, index: int) -> str:
    """Return the name of one of the job's pods."""
    return f"{job['metadata']['name']}-{task['name']}-{index}"


def make_group(job: Object) -> Object:
    """Return the PodGroup that the scheduler decides about."""
    spec = job["spec"]
    group: Object = {
        "minMember": spec["minAvailable"],
        "minTaskMember": {task["name"]: task["minAvailable"] for task in spec["tasks"]},
        "queue": spec["queue"],
        "minResources": _minimum(job),
    }
    for name in ("priorityClassName", "networkTopology"):
        if name in spec:
            group[name] = spec[name]
    metadata = {**_owned(job, group_name(job)), "annotations": _propagated(job)}
    return {
        "apiVersion": SCHEDULING,
        "kind": "PodGroup",
        "metadata": metadata,
        "spec": group,
        "status": {"phase": "Pending"},
    }


def make_pods(job: Object, there: dict[str, Object]) -> Iterator[Object]:
    """Yield the pods that the job wants and that are not *there*."""
    for task in job["spec"]["tasks"]:
        if not _may_start(job, task, list(there.values())):
            continue
        for index in range(task["replicas"]):
            if pod_name(job, task, index) not in there:
                yield make_pod(job, task, index)


def surplus(job: Object, there: dict[str, Object]) -> list[str]:
    """Return the names of pods beyond what the job wants, as after scaling it down."""
    tasks = job["spec"]["tasks"]
    wanted = {pod_name(job, task, i) for task in tasks for i in range(task["replicas"])}
    return [n for n, p in there.items() if n not in wanted and not _going(p)]


def make_pod(job: Object, task: Object, index: int) -> Object:
    """Return the pod of *task* with *index*."""
    metadata, template = job["metadata"], task.get("template") or {}
    own = template.get("metadata") or {}
    queue, status = job["spec"]["queue"], job.get("status") or {}
    name = pod_name(job, task, index)
    annotations = {
        "volcano.sh/task-index": str(index),
        "volcano.sh/task-spec": task["name"],
        "volcano.sh/job-name": metadata["name"],
        "volcano.sh/queue-name": queue,
        "volcano.sh/job-version": str(status.get("version", 0)),
        "volcano.sh/template-uid": f"{metadata['uid']}-{task['name']}",
        "volcano.sh/job-retry-count": str(status.get("retryCount", 0)),
        GROUP_ANNOTATION: group_name(job),
    }
    labels = {
        JOB_LABEL: metadata["name"],
        "volcano.sh/job-namespace": metadata["namespace"],
        "volcano.sh/task-spec": task["name"],
        "volcano.sh/task-index": str(index),
        "volcano.sh/queue-name": queue,
    }
    pod: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **_owned(job, name),
            "annotations": {**(own.get("annotations") or {}), **_propagated(job), **annotations},
            "labels": {**(own.get("labels") or {}), **labels},
        },
        "spec": _pod_spec(job, template.get("spec") or {}),
    }
    for plugin in sorted(job["spec"].get("plugins") or {}):
        if change := _ON_POD.get(plugin):
            change(job, task, index, pod)
    return pod


def _pod_spec(job: Object, template: Object) -> Object:
    """Return a copy of the template's spec with what the job gives to all its pods."""
    spec: Object = {**template, "containers": [dict(c) for c in template["containers"]]}
    spec.setdefault("schedulerName", job["spec"]["schedulerName"])
    if "priorityClassName" in job["spec"]:
        spec.setdefault("priorityClassName", job["spec"]["priorityClassName"])
    for number, volume in enumerate(job["spec"].get("volumes") or []):
        claim = volume.get("volumeClaimName")
        if claim:
            name = f"job-volume-{number}"
            source = {"name": name, "persistentVolumeClaim": {"claimName": claim}}
            _mount(spec, source, volume["mountPath"])
    return spec


def _may_start(job: Object, task: Object, pods: list[Object]) -> bool:
    """Whether what *task* depends on has come up far enough."""
    depends = task.get("dependsOn") or {}
    tasks = {t["name"]: t for t in job["spec"]["tasks"]}
    ready = []
    for name in depends.get("name") or []:
        own = [pod for pod in pods if task_of(pod) == name]
        up = sum(_is_ready(pod) for pod in own) + count(own)["succeeded"]
        ready.append(up >= tasks[name]["minAvailable"])
    return any(ready) if depends.get("iteration") == "any" and ready else all(ready)


def _is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return not _going(pod) and any(
        c["type"] == "Ready" and c["status"] == "True" for c in conditions
    )


def _going(pod: Object) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def _minimum(job: Object) -> dict[str, str]:
    """Return what the smallest number of pods with which the job starts asks for."""
    left = job["spec"]["minAvailable"]
    total: dict[str, float] = {}
    for task in job["spec"]["tasks"]:
        pods = min(task["minAvailable"], left)
        left -= pods
        for name, amount in requests((task.get("template") or {}).get("spec") or {}).items():
            total[name] = total.get(name, 0.0) + pods * amount
    return {name: _shown(amount) for name, amount in total.items()}


def requests(spec: Object) -> dict[str, float]:
    """Return what a pod of *spec* asks a node for."""
    total: dict[str, float] = {}
    for container in spec.get("containers") or []:
        resources = container.get("resources") or {}
        asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        for name, amount in asked.items():
            total[name] = total.get(name, 0.0) + quantity(str(amount))
    for name, amount in (spec.get("overhead") or {}).items():
        total[name] = total.get(name, 0.0) + quantity(str(amount))
    return total


def _shown(amount: float) -> str:
    return str(int(amount)) if amount == int(amount) else f"{math.ceil(amount * 1000)}m"


def _owned(job: Object, name: str) -> Object:
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


def _propagated(job: Object) -> dict[str, str]:
    annotations = job["metadata"].get("annotations") or {}
    return {name: annotations[name] for name in _PROPAGATED if name in annotations}


def _mount(spec: Object, volume: Object, path: str) -> None:
    spec["volumes"] = [*(spec.get("volumes") or []), volume]
    for container in spec["containers"]:
        mounts = container.get("volumeMounts") or []
        container["volumeMounts"] = [*mounts, {"name": volume["name"], "mountPath": path}]


# --- the plugins svc, env and pytorch ---


def companions(job: Object) -> list[tuple[Resource, Object]]:
    """Return what the job's plugins need beside its pods."""
    plugins, name = job["spec"].get("plugins") or {}, job["metadata"]["name"]
    if "svc" not in plugins:
        return []
    selector = {JOB_LABEL: name, "volcano.sh/job-namespace": job["metadata"]["namespace"]}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _owned(job, name),
        "spec": {
            "clusterIP": "None",
            "selector": selector,
            "publishNotReadyAddresses": "--publish-not-ready-addresses=true" in plugins["svc"],
        },
    }
    hosts = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _owned(job, f"{name}-svc"),
        "data": _hosts_data(job),
    }
    made = [(SERVICES, service), (CONFIG_MAPS, hosts)]
    if "--disable-network-policy=true" not in plugins["svc"]:
        policy = {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": _owned(job, name),
            "spec": {
                "podSelector": {"matchLabels": selector},
                "ingress": [{"from": [{"podSelector": {"matchLabels": selector}}]}],
                "policyTypes": ["Ingress"],
            },
        }
        made.append((NETWORK_POLICIES, policy))
    return made


def companion_names(job: Object) -> dict[str, str]:
    """Return ``status.controlledResources`` for the job's plugins."""
    return {f"plugin-{name}": name for name in job["spec"].get("plugins") or {}}


def _host(job: Object, task: Object, index: int) -> str:
    return f"{pod_name(job, task, index)}.{job['metadata']['name']}"


def _hosts_data(job: Object) -> dict[str, str]:
    data = {}
    for task in job["spec"]["tasks"]:
        hosts = [_host(job, task, index) for index in range(task["replicas"])]
        key = task["name"].upper().replace("-", "_")
        data[f"{task['name']}.host"] = "\n".join(hosts)
        data[f"VC_{key}_HOSTS"] = ",".join(hosts)
        data[f"VC_{key}_NUM"] = str(task["replicas"])
    return data


def _add_env(pod: Object, variables: list[Object]) -> None:
    for container in (*pod["spec"]["containers"], *(pod["spec"].get("initContainers") or [])):
        container["env"] = [*(container.get("env") or []), *variables]


def _svc(job: Object, task: Object, index: int, pod: Object) -> None:
    spec, config = pod["spec"], f"{job['metadata']['name']}-svc"
    spec.setdefault("hostname", pod["metadata"]["name"])
    spec.setdefault("subdomain", job["metadata"]["name"])
    _mount(spec, {"name": config, "configMap": {"name": config}}, _HOSTS_FOLDER)
    keys = [key for key in _hosts_data(job) if key.startswith("VC_")]
    source = [
        {"name": k, "valueFrom": {"configMapKeyRef": {"name": config, "key": k}}} for k in keys
    ]
    _add_env(pod, source)


def _env(job: Object, task: Object, index: int, pod: Object) -> None:
    _add_env(pod, [{"name": n, "value": str(index)} for n in ("VK_TASK_INDEX", "VC_TASK_INDEX")])


def _pytorch(job: Object, task: Object, index: int, pod: Object) -> None:
    tasks = {t["name"]: t for t in job["spec"]["tasks"]}
    arguments = dict(
        argument.lstrip("-").partition("=")[::2] for argument in job["spec"]["plugins"]["pytorch"]
    )
    master = tasks.get(arguments.get("master", "master"))
    worker = tasks.get(arguments.get("worker", "worker"))
    if master is None:
        return
    port = arguments.get("port", _PYTORCH_PORT)
    world = master["replicas"] + (worker["replicas"] if worker else 0)
    rank = index if task["name"] == master["name"] else index + master["replicas"]
    values = {
        "MASTER_ADDR": _host(job, master, 0),
        "MASTER_PORT": port,
        "WORLD_SIZE": str(world),
        "RANK": str(rank),
    }
    _add_env(pod, [{"name": name, "value": value} for name, value in values.items()])


_ON_POD: Final = {"env": _env, "pytorch": _pytorch, "svc": _svc}
