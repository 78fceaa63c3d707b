"""What Volcano's webhooks fill in and refuse. No I/O."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from deploy.local.cluster.quantities import quantity
from deploy.local.cluster.volcano.definitions import EVENTS

Object = dict[str, Any]
ACTIONS: Final = (
    "AbortJob",
    "RestartJob",
    "RestartTask",
    "RestartPod",
    "RestartPartition",
    "TerminateJob",
    "CompleteJob",
    "ResumeJob",
)
_INTERNAL_EVENTS: Final = ("OutOfSync", "CommandIssued", "PodRunning")
_PLUGINS: Final = (
    "env",
    "svc",
    "ssh",
    "tensorflow",
    "mpi",
    "pytorch",
    "ray",
    "hcclrank",
)
_NEEDS: Final = {
    "tensorflow": ("svc",),
    "pytorch": ("svc",),
    "ray": ("svc",),
    "mpi": ("svc", "ssh"),
}
_QUALIFIED: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_DEFAULT_RETRIES: Final = 3


def completed_job(job: Object) -> Object:
    """Return *job* with what the mutating webhook fills in."""
    spec = {**job["spec"]}
    spec.setdefault("schedulerName", "volcano")
    spec.setdefault("queue", "default")
    spec["maxRetry"] = spec.get("maxRetry") or _DEFAULT_RETRIES
    spec["tasks"] = [_completed_task(task, i) for i, task in enumerate(spec.get("tasks") or [])]
    if not spec.get("minAvailable"):
        spec["minAvailable"] = sum(task["minAvailable"] for task in spec["tasks"])
    plugins = dict(spec.get("plugins") or {})
    for name in list(plugins):
        for needed in _NEEDS.get(name, ()):
            plugins.setdefault(needed, [])
    if plugins:
        spec["plugins"] = plugins
    return {**job, "spec": spec}


def _completed_task(task: Object, position: int) -> Object:
    replicas = task.get("replicas", 1)
    return {
        **task,
        "name": task.get("name") or f"default{position}",
        "replicas": replicas,
        "minAvailable": task.get("minAvailable", replicas),
        "maxRetry": task.get("maxRetry") or _DEFAULT_RETRIES,
    }


def job_denial(job: Object, queues: Mapping[str, Object]) -> str | None:
    """Return why the validating webhook refuses a new *job*, or None."""
    return "; ".join(_job_problems(job, queues)) or None


def _job_problems(job: Object, queues: Mapping[str, Object]) -> Iterator[str]:
    spec, name = job["spec"], job["metadata"]["name"]
    tasks = spec.get("tasks") or []
    if not tasks:
        yield "No task specified in job spec"
        return
    if not _QUALIFIED.fullmatch(name):
        yield f"create job with name {name} validate failed"
    names: set[str] = set()
    for position, task in enumerate(tasks):
        if task["name"] in names:
            yield f"duplicated task name {task['name']}"
        names.add(task["name"])
        yield from _task_problems(task, position, name)
    replicas = sum(task["replicas"] for task in tasks)
    if spec["minAvailable"] > replicas:
        yield "job 'minAvailable' should not be greater than total replicas in tasks"
    yield from _policy_problems(spec.get("policies") or [], "spec.policies")
    for plugin in spec.get("plugins") or {}:
        if plugin not in _PLUGINS:
            yield f"unable to find job plugin: {plugin}"
    yield from _volume_problems(spec.get("volumes") or [])
    yield from _dependency_problems(tasks, names)
    yield from _queue_problems(spec["queue"], queues)


def _task_problems(task: Object, position: int, job: str) -> Iterator[str]:
    if task["minAvailable"] > task["replicas"]:
        yield f"'minAvailable' is greater than 'replicas' in task: {task['name']}, job: {job}"
    # Volcano builds the name with the task's own position, so that many replicas slip through.
    pod = f"{job}-{task['name']}-{position}"
    if not _QUALIFIED.fullmatch(pod):
        yield f"create pod with name {pod} validate failed: must be no more than 63 characters"
    yield from _policy_problems(task.get("policies") or [], f"spec.tasks[{position}].policies")
    containers = ((task.get("template") or {}).get("spec") or {}).get("containers")
    if not containers:
        yield f"spec.task[{position}].template.spec.containers: Required value"
    for number, container in enumerate(containers or []):
        for field in ("name", "image"):
            if not container.get(field):
                path = f"spec.task[{position}].template.spec.containers[{number}].{field}"
                yield f"{path}: Required value"
    yield from _topology_problems(task, position)


def _topology_problems(task: Object, position: int) -> Iterator[str]:
    if task.get("topologyPolicy") in (None, "", "none"):
        return
    spec = (task.get("template") or {}).get("spec") or {}
    everyone = [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]
    for number, container in enumerate(everyone):
        amounts = container.get("resources") or {}
        wanted = amounts.get("requests") or amounts.get("limits") or {}
        cpu = quantity(str(wanted.get("cpu", 0)))
        if not cpu or cpu % 1:
            place = f"spec.task[{position}] container[{number}]"
            yield f"the cpu request isn't an integer in {place}."
            return


def _policy_problems(policies: list[Object], path: str) -> Iterator[str]:
    events: list[str] = []
    codes: list[int] = []
    for policy in policies:
        own = [*([policy["event"]] if policy.get("event") else []), *(policy.get("events") or [])]
        code = policy.get("exitCode")
        if own and code is not None:
            yield f"{path}: must not specify event and exitCode simultaneously"
        if not own and code is None:
            yield f"{path}: either event and exitCode should be specified"
        for event in own:
            if event in _INTERNAL_EVENTS or event not in EVENTS:
                yield f"{path}.event: invalid policy event {event}"
        if policy.get("action") not in ACTIONS:
            yield f"{path}.action: invalid policy action {policy.get('action')}"
        if code == 0:
            yield f"{path}.exitCode: 0 is not a valid error code"
        events += own
        codes += [] if code is None else [code]
    if len(set(events)) < len(events) or len(set(codes)) < len(codes):
        yield f"{path}: duplicate event or exitCode across different policies"
    if "*" in events and len(events) > 1:
        yield f"{path}: if there's * here, no other policy should be here"


def _volume_problems(volumes: list[Object]) -> Iterator[str]:
    seen: set[str] = set()
    for volume in volumes:
        path = volume["mountPath"]
        if path in seen:
            yield f"duplicated mountPath: {path}"
        seen.add(path)
        if bool(volume.get("volumeClaim")) == bool(volume.get("volumeClaimName")):
            yield f"either VolumeClaim or VolumeClaimName must be specified for {path}, not both"


def _dependency_problems(tasks: list[Object], names: set[str]) -> Iterator[str]:
    needs = {task["name"]: (task.get("dependsOn") or {}).get("name") or [] for task in tasks}
    for task, needed in needs.items():
        for name in needed:
            if name not in names:
                yield f"task {task} depends on a task that does not exist: {name}"
    left = {task: set(needed) & names for task, needed in needs.items()}
    while ready := [task for task, needed in left.items() if not needed]:
        left = {t: needed - set(ready) for t, needed in left.items() if t not in ready}
    if left:
        yield "job has dependencies between tasks, but doesn't form a directed acyclic graph(DAG)"


def _queue_problems(name: str, queues: Mapping[str, Object]) -> Iterator[str]:
    queue = queues.get(name)
    if queue is None:
        yield f'unable to find job queue: queues.scheduling.volcano.sh "{name}" not found'
    elif name == "root":
        yield "can not submit job to root queue"
    elif (state := (queue.get("status") or {}).get("state", "")) != "Open":
        yield (
            f"can only submit job to queue with state `Open`, queue `{name}` status is `{state}`"
        )
    elif any((q.get("spec") or {}).get("parent") == name for q in queues.values()):
        yield f"can only submit job to leaf queue, queue `{name}` has child queues"


def update_denial(old: Object, new: Object) -> str | None:
    """Return why the webhook refuses to make *new* of the job *old*, or None."""
    if _frozen(old) != _frozen(new):
        return (
            "job updates may not change fields other than `minAvailable`, `tasks[*].replicas`, "
            "`tasks[*].minAvailable` under spec"
        )
    tasks = new["spec"]["tasks"]
    for task in tasks:
        if task.get("minAvailable", 0) > task["replicas"]:
            return f"'minAvailable' must be <= 'replicas' in task: {task['name']}"
    if new["spec"]["minAvailable"] > sum(task["replicas"] for task in tasks):
        return "job 'minAvailable' must not be greater than total replicas"
    return None


def _frozen(job: Object) -> Object:
    changeable = ("minAvailable", "priorityClassName")
    spec = {name: value for name, value in job["spec"].items() if name not in changeable}
    spec["tasks"] = [
        {name: value for name, value in task.items() if name not in ("replicas", "minAvailable")}
        for task in job["spec"]["tasks"]
    ]
    return spec


def queue_denial(queue: Object) -> str | None:
    """Return why a Queue is refused, or None."""
    state = (queue.get("spec") or {}).get("state") or (queue.get("status") or {}).get("state")
    if state not in (None, "", "Open", "Closed", "Closing", "Unknown"):
        return f"queue state must be in [Open, Closed], got {state}"
    return None


def queue_deletion_denial(name: str, queues: Mapping[str, Object]) -> str | None:
    """Return why the Queue *name* may not be deleted, or None."""
    if name in ("default", "root"):
        return f"`{name}` queue can not be deleted"
    children = [q for q, value in queues.items() if (value.get("spec") or {}).get("parent") == name]
    if children:
        return f"queue {name} can not be deleted because it has {len(children)} child queues"
    return None
