"""Makes the objects of a job: its PodGroup and its pods. No I/O."""

from collections.abc import Iterator
from typing import Any, Final

from deploy.local.cluster.quantities import quantity, shown_amount
from deploy.local.cluster.volcano.definitions import SCHEDULING
from deploy.local.cluster.volcano.plugins import JOB_LABEL, ON_POD, mount, owned, pod_name
from deploy.local.cluster.volcano.states import count, task_of

Object = dict[str, Any]
GROUP_ANNOTATION: Final = "scheduling.k8s.io/group-name"
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


def group_name(job: Object) -> str:
    """Return the name of the job's PodGroup."""
    metadata = job["metadata"]
    return f"{metadata['name']}-{metadata['uid']}"


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
    metadata = {**owned(job, group_name(job)), "annotations": _propagated(job)}
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
        for index in range(task.get("replicas", 0)):
            if pod_name(job, task, index) not in there:
                yield make_pod(job, task, index)


def surplus(job: Object, there: dict[str, Object]) -> list[str]:
    """Return the names of the pods that the job no longer wants, as after scaling it down."""
    tasks = job["spec"]["tasks"]
    wanted = {pod_name(job, task, i) for task in tasks for i in range(task.get("replicas", 0))}
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
        "volcano.sh/template-uid": f"{metadata['name']}-{task['name']}",
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
    if size := (task.get("partitionPolicy") or {}).get("partitionSize"):
        labels["volcano.sh/partition-id"] = str(index // size)
    pod: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **owned(job, name),
            "annotations": {**(own.get("annotations") or {}), **_propagated(job), **annotations},
            "labels": {**(own.get("labels") or {}), **labels},
        },
        "spec": _pod_spec(job, template.get("spec") or {}),
    }
    for plugin in sorted(job["spec"].get("plugins") or {}):
        if change := ON_POD.get(plugin):
            change(job, task, index, pod)
    return pod


def _pod_spec(job: Object, template: Object) -> Object:
    """Return a copy of the template's spec with what the job gives to all its pods."""
    spec: Object = {**template, "containers": [dict(c) for c in template["containers"]]}
    if inits := template.get("initContainers"):
        spec["initContainers"] = [dict(c) for c in inits]
    spec.setdefault("schedulerName", job["spec"]["schedulerName"])
    if "priorityClassName" in job["spec"]:
        spec.setdefault("priorityClassName", job["spec"]["priorityClassName"])
    for number, volume in enumerate(job["spec"].get("volumes") or []):
        claim = volume.get("volumeClaimName")
        if claim:
            name = f"job-volume-{number}"
            source = {"name": name, "persistentVolumeClaim": {"claimName": claim}}
            mount(spec, source, volume["mountPath"])
    return spec


def _may_start(job: Object, task: Object, pods: list[Object]) -> bool:
    """Whether enough pods of the tasks on which *task* depends are up."""
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
    """Return the resources of the smallest number of pods with which the job starts."""
    left = job["spec"]["minAvailable"]
    total: dict[str, float] = {}
    for task in job["spec"]["tasks"]:
        pods = min(task["minAvailable"], left)
        left -= pods
        for name in ("pods", "count/pods"):
            total[name] = total.get(name, 0.0) + pods
        for name, amount in requests((task.get("template") or {}).get("spec") or {}).items():
            total[name] = total.get(name, 0.0) + pods * amount
    return {name: shown_amount(amount) for name, amount in total.items()}


def requests(spec: Object) -> dict[str, float]:
    """Return the resources that a pod of *spec* needs: init containers run before the others."""
    total: dict[str, float] = {}
    for container in spec.get("containers") or []:
        for name, amount in _asked(container).items():
            total[name] = total.get(name, 0.0) + amount
    for container in spec.get("initContainers") or []:
        for name, amount in _asked(container).items():
            total[name] = max(total.get(name, 0.0), amount)
    for name, amount in (spec.get("overhead") or {}).items():
        total[name] = total.get(name, 0.0) + quantity(str(amount))
    return total


def _asked(container: Object) -> dict[str, float]:
    resources = container.get("resources") or {}
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: quantity(str(amount)) for name, amount in asked.items()}


def _propagated(job: Object) -> dict[str, str]:
    annotations = job["metadata"].get("annotations") or {}
    return {name: annotations[name] for name in _PROPAGATED if name in annotations}
