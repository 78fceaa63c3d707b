"""The rules of Volcano's webhooks: defaults and refusals. No I/O."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from deploy.local.cluster.quantities import NOT_A_QUANTITY, quantity
from deploy.local.cluster.volcano.definitions import EVENTS
from deploy.local.cluster.volcano.templates import KEY_RULE, pod_problems
from deploy.local.cluster.volcano.types import are_quantities

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
_LONGEST_NAME: Final = 63
_VALID: Final = (
    f" valid events are [{' '.join(e for e in EVENTS if e not in _INTERNAL_EVENTS)}], valid "
    f"actions are [{' '.join(ACTIONS)}]"
)


def completed_job(job: Object) -> Object:
    """Return *job* with the defaults of the mutating webhook."""
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
    completed = {
        **task,
        "name": task.get("name") or f"default{position}",
        "minAvailable": task.get("minAvailable", task.get("replicas", 0)),
        "maxRetry": task.get("maxRetry") or _DEFAULT_RETRIES,
    }
    if "template" in task:
        completed["template"] = _completed_template(task["template"])
    return completed


def _completed_template(template: Object) -> Object:
    """Return *template* as Go writes it: with all fields that are not ``omitempty``."""
    spec = template.get("spec") or {}
    containers = spec.get("containers")
    if containers is not None:
        containers = [_completed_container(container) for container in containers]
    spec = {**spec, "containers": containers}
    if spec.get("initContainers"):
        spec["initContainers"] = [_completed_container(c) for c in spec["initContainers"]]
    return {**template, "metadata": template.get("metadata") or {}, "spec": spec}


def _completed_container(container: Object) -> Object:
    completed = {**container, "resources": container.get("resources") or {}}
    if "ports" in completed:
        ports = completed["ports"] or []
        completed["ports"] = [{"protocol": "TCP", **port} for port in ports]
    return completed


def job_denial(job: Object, queues: Mapping[str, Object]) -> str | None:
    """Return why the validating webhook refuses a new *job*, or None."""
    if "mpi" in (job["spec"].get("plugins") or {}) and not _has_mpi_master(job["spec"]):
        return "The specified mpi master task was not found"
    problems = list(_job_problems(job, queues))
    # Volcano ends each message with a semicolon, but a pod template's with a full stop.
    return " ".join(p if p.endswith(".") else f"{p};" for p in problems) or None


def _has_mpi_master(spec: Object) -> bool:
    arguments = spec["plugins"]["mpi"] or []
    asked = (a.partition("=")[2] for a in arguments if a.startswith("--master="))
    return next(asked, "master") in [task["name"] for task in spec["tasks"]]


def _job_problems(job: Object, queues: Mapping[str, Object]) -> Iterator[str]:
    spec, name = job["spec"], job["metadata"]["name"]
    tasks = spec.get("tasks") or []
    if not tasks:
        yield "No task specified in job spec"
        return
    names: set[str] = set()
    for position, task in enumerate(tasks):
        if task["name"] in names:
            yield f"duplicated task name {task['name']}"
        names.add(task["name"])
        yield from _task_problems(task, position, name)
    if why := _name_problem(name):
        yield f"create job with name {name} validate failed [{why}]"
    replicas = sum(task.get("replicas", 0) for task in tasks)
    if spec["minAvailable"] > replicas:
        yield "job 'minAvailable' should not be greater than total replicas in tasks"
    yield from _policy_problems(spec.get("policies") or [], "spec.policies")
    for plugin in spec.get("plugins") or {}:
        if plugin not in _PLUGINS:
            yield f"unable to find job plugin: {plugin}"
    yield from _volume_problems(spec.get("volumes") or [])
    yield from _dependency_problems(tasks)
    yield from _queue_problems(spec["queue"], queues)


def _task_problems(task: Object, position: int, job: str) -> Iterator[str]:
    if task["minAvailable"] > task.get("replicas", 0):
        yield f"'minAvailable' is greater than 'replicas' in task: {task['name']}, job: {job}"
    # Volcano builds the name with the task's own position, so it admits names that become too long
    # with many replicas.
    pod = f"{job}-{task['name']}-{position}"
    if why := _name_problem(pod):
        yield f"create pod with name {pod} validate failed [{why}]"
    yield from _policy_problems(task.get("policies") or [], f"spec.tasks[{position}].policies")
    template = task.get("template") or {}
    yield from pod_problems(template.get("spec") or {}, position)
    yield from _topology_problems(task, position)


def _name_problem(name: str) -> str:
    if len(name) > _LONGEST_NAME:
        return f"name part must be no more than {_LONGEST_NAME} bytes"
    return "" if _QUALIFIED.fullmatch(name) else KEY_RULE


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
    problems = list(_wrong_policies(policies, path))
    if problems:
        number, plural = len(problems), "" if len(problems) == 1 else "s"
        listed = "".join(f"\n\t* {problem}" for problem in problems)
        yield f"{number} error{plural} occurred:{listed}\n\n{_VALID}"


def _wrong_policies(policies: list[Object], path: str) -> Iterator[str]:
    seen: set[object] = set()
    for policy in policies:
        own = [*([policy["event"]] if policy.get("event") else []), *(policy.get("events") or [])]
        code = policy.get("exitCode")
        if bool(own) == (code is not None):
            both = "must not specify event and exitCode simultaneously"
            yield both if own else "either event and exitCode should be specified"
            return
        yield from _wrong_events(own, seen, path)
        if policy.get("action") not in ACTIONS:
            yield f'{path}: Invalid value: "{policy.get("action", "")}": invalid policy action'
        if code == 0:
            yield "0 is not a valid error code"
        elif code is not None and code in seen:
            yield f"duplicate exitCode {code}"
        seen |= {*own, *([] if code is None else [code])}
    if "*" in seen and len(seen) > 1:
        yield "if there's * here, no other policy should be here"


def _wrong_events(events: list[str], seen: set[object], path: str) -> Iterator[str]:
    for event in events:
        if event in _INTERNAL_EVENTS or event not in EVENTS:
            yield f'{path}: Invalid value: "{event}": invalid policy event'
        elif event in seen or events.count(event) > 1:
            yield f"duplicate event {event}  across different policy"
            return


def _volume_problems(volumes: list[Object]) -> Iterator[str]:
    seen: set[str] = set()
    for volume in volumes:
        path = volume["mountPath"]
        if path in seen:
            yield f"duplicated mountPath: {path}"
        seen.add(path)
        if bool(volume.get("volumeClaim")) == bool(volume.get("volumeClaimName")):
            yield "either VolumeClaim or VolumeClaimName must be specified"


def _dependency_problems(tasks: list[Object]) -> Iterator[str]:
    needs = {task["name"]: (task.get("dependsOn") or {}).get("name") or [] for task in tasks}
    left = {task: set(needed) for task, needed in needs.items()}  # an unknown name stays for ever
    while ready := [task for task, needed in left.items() if not needed]:
        left = {t: needed - set(ready) for t, needed in left.items() if t not in ready}
    if left:
        yield "job has dependencies between tasks, but doesn't form a directed acyclic graph(DAG)"


def _queue_problems(name: str, queues: Mapping[str, Object]) -> Iterator[str]:
    queue = queues.get(name)
    if queue is None:
        yield f'unable to find job queue: queue.scheduling.volcano.sh "{name}" not found'
    elif name == "root":
        yield "can not submit job to root queue"
    elif (state := (queue.get("status") or {}).get("state", "")) != "Open":
        yield (
            f"can only submit job to queue with state `Open`, queue `{name}` status is `{state}`"
        )
    elif any((q.get("spec") or {}).get("parent") == name for q in queues.values()):
        yield f"can only submit job to leaf queue, queue `{name}` has child queues"


def update_denial(old: Object, new: Object) -> str | None:
    """Return why the webhook refuses to change the job *old* into *new*, or None."""
    if len(old["spec"]["tasks"]) != len(new["spec"]["tasks"]):
        return "job updates may not add or remove tasks"
    if _frozen(old) != _frozen(new):
        return (
            "job updates may not change fields other than `minAvailable`, `tasks[*].replicas under "
            "spec` and `PriorityClassName`"
        )
    tasks = new["spec"]["tasks"]
    for task in tasks:
        if task.get("minAvailable", 0) > task.get("replicas", 0):
            return f"'minAvailable' must be <= 'replicas' in task: {task['name']}"
    if new["spec"]["minAvailable"] > sum(task.get("replicas", 0) for task in tasks):
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


def completed_queue(queue: Object) -> Object:
    """Return *queue* with the defaults of the mutating webhook."""
    spec = {"reclaimable": True, **(queue.get("spec") or {})}
    spec["weight"] = spec.get("weight") or 1
    return {**queue, "spec": spec}


def unreadable_queue(queue: Object) -> str | None:
    """Return why Go could not read *queue*, or None."""
    spec = queue.get("spec") or {}
    guarantee = (spec.get("guarantee") or {}).get("resource") or {}
    amounts = (spec.get("capability") or {}, spec.get("deserved") or {}, guarantee)
    return None if all(map(are_quantities, amounts)) else NOT_A_QUANTITY


def queue_denial(queue: Object, queues: Mapping[str, Object]) -> str | None:
    """Return why a Queue is refused, or None."""
    spec = queue.get("spec") or {}
    state = spec.get("state") or (queue.get("status") or {}).get("state")
    if state not in (None, "", "Open", "Closed", "Closing", "Unknown"):
        return f"queue state must be in [Open, Closed], got {state}"
    parent, name = spec.get("parent"), queue["metadata"]["name"]
    if parent and parent not in queues:
        return (
            f"failed to get parent queue {parent} of queue {name}: "
            f'queue.scheduling.volcano.sh "{parent}" not found'
        )
    return next(_amount_problems(spec), None)


def _amount_problems(spec: Object) -> Iterator[str]:
    """Yield each resource for which guarantee <= deserved <= capability does not hold."""
    most, deserved = spec.get("capability") or {}, spec.get("deserved") or {}
    least = (spec.get("guarantee") or {}).get("resource") or {}
    for name, amount in deserved.items():
        if name in most and quantity(str(amount)) > quantity(str(most[name])):
            why = f"deserved[{name}]={amount} must be <= capability[{name}]={most[name]}"
            yield f'requestBody.spec.deserved.{name}: Invalid value: "{amount}": {why}'
    for name, amount in least.items():
        given = deserved.get(name)
        if given is None or quantity(str(given)) < quantity(str(amount)):
            why = f"deserved[{name}] must be >= guarantee[{name}]={amount}"
            shown = "<nil>" if given is None else given
            yield f'requestBody.spec.deserved.{name}: Invalid value: "{shown}": {why}'


def queue_deletion_denial(name: str, queues: Mapping[str, Object]) -> str | None:
    """Return why the Queue *name* may not be deleted, or None."""
    if name in ("default", "root"):
        return f"`{name}` queue can not be deleted"
    children = [q for q, value in queues.items() if (value.get("spec") or {}).get("parent") == name]
    if children:
        return f"queue {name} can not be deleted because it has {len(children)} child queues"
    return None
