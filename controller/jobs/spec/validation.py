"""Checks of a job's tasks, policies and product, and the resources of a replica. No I/O.

A finding on the VolcanoJob of a job is reported with the part of the job that causes it: an
orchestrator knows only the job.

Volcano names a pod ``<VolcanoJob>-<task>-<index>``, and identifiers and tasks may have hyphens. So
the task ``train-main`` of the job ``exp`` has pods with the same names as the task ``main`` of the
job ``exp-train``. Volcano takes an existing pod for its own, and the second job would wait
silently.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from controller.jobs.spec.field_types import ID_PATTERN, TASK_PATTERN
from controller.jobs.spec.model import DEFAULT_TASK, EffectiveTask, Job, Policy, Resources
from controller.jobs.spec.problems import Problem
from controller.site.product_list import Catalogue, Features, Product
from controller.volcano.frameworks import FRAMEWORKS, Framework
from controller.volcano.names import pod_name
from controller.volcano.policies import RESTARTS, Rule, carried_out_here, problems_of
from controller.volcano.quantities import Quantity
from shared.text import whole_number

if TYPE_CHECKING:
    from controller.site.job_defaults import JobDefaults


Found = tuple[str, str]
"""A path within the job, and the problem there."""

_LONGEST_HOST_NAME: Final = 63
_WHOLE: Final = 1000
_OF_A_PART: Final = RESTARTS - {"RestartJob"}


def task_problems(job: Job) -> Iterator[Found]:
    """Find problems of the tasks in combination."""
    tasks = job.effective_tasks
    times = Counter(task.name for task in tasks)
    for task in tasks:
        if times[task.name] > 1:
            yield task.at("name"), "another task has this name"
        if task.min_available > task.replicas:
            yield task.at("min_available"), f"there are only {task.replicas} replicas"
        last = pod_name(job.id, task.name, task.replicas - 1)
        if len(last) > _LONGEST_HOST_NAME:
            yield task.at("replicas"), f"{last}, its last pod's name, is no host name: too long"
        yield from _dependency_problems(task, job)
    if job.min_success is not None and job.min_success > job.ranks:
        yield "min_success", f"there are only {job.ranks} replicas"
    if job.topology.numa not in (None, "none"):
        yield from _numa_problems(job)
    if job.framework is not None:
        yield from _framework_problems(job, FRAMEWORKS[job.framework])


def _dependency_problems(task: EffectiveTask, job: Job) -> Iterator[Found]:
    names = {one.name: one for one in job.effective_tasks}
    for index, other in enumerate(task.depends_on):
        path = f"{task.at('depends_on')}[{index}]"
        if other not in names:
            yield path, "there is no such task"
        elif other in task.depends_on[:index]:
            yield path, "is listed twice"
        elif _leads_to(other, task.name, names):
            yield path, f"{other} waits for {task.name} itself"


def _leads_to(start: str, end: str, tasks: dict[str, EffectiveTask]) -> bool:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        name = waiting.pop()
        if name == end:
            return True
        if name in tasks and name not in seen:
            seen.add(name)
            waiting.extend(tasks[name].depends_on)
    return False


def _numa_problems(job: Job) -> Iterator[Found]:
    for task in job.effective_tasks:
        cpu = task.resources.cpu
        if cpu is not None and cpu.milli % _WHOLE:
            yield task.at("resources.cpu"), "topology.numa needs whole processors"


def _framework_problems(job: Job, framework: Framework) -> Iterator[Found]:
    tasks = {task.name: task for task in job.effective_tasks}
    for choice in framework.needs:
        if not tasks.keys() & set(choice):
            yield "tasks", f"{job.framework} needs a task {' or '.join(choice)}"
    for task in tasks.values():
        yield from _role_problems(job.framework or "", framework, task)
    yield from _port_problems(job, framework)
    if framework.ssh:
        # A restart of some pods creates new keys, but the other pods keep the old ones.
        for path, policy in _policies(job):
            if policy.action in _OF_A_PART:
                yield f"{path}.action", f"{job.framework} needs RestartJob: its keys change"


def _role_problems(name: str, framework: Framework, task: EffectiveTask) -> Iterator[Found]:
    most = framework.tasks.get(task.name)
    if most is None and not framework.others:
        yield task.at("name"), f"{name} knows only tasks {', '.join(framework.tasks)}"
    if most is not None and task.replicas > most:
        yield task.at("replicas"), f"{name} has only {most} {task.name}"
    if task.name in framework.own_command and task.invocation.command:
        yield task.at("invocation.command"), f"{name} starts its {task.name} itself"
    for variable in sorted(framework.variables & task.invocation.environment.keys()):
        yield task.at(f"invocation.environment.{variable}"), f"is set by {name}"


def _port_problems(job: Job, framework: Framework) -> Iterator[Found]:
    for name, endpoint in job.interactive.items():
        if framework.ports_in not in (None, endpoint.task) and endpoint.task is not None:
            continue
        wanted = framework.ports.get(name)
        if wanted is not None and wanted != endpoint.port:
            yield f"interactive.{name}", f"{job.framework} calls its port {wanted} so"
        for own, port in framework.ports.items():
            if port == endpoint.port and own != name:
                yield f"interactive.{name}.port", f"{job.framework} calls this port {own}"


_INSTEAD: Final = "RestartJob can"


def policy_problems(job: Job) -> Iterator[Found]:
    """Find problems that Volcano refuses in the policies of the job and of its tasks."""
    for index, message in problems_of([policy.rule() for policy in job.policies]):
        yield f"policies[{index}]", message
    for task in job.effective_tasks:
        for index, message in problems_of([policy.rule() for policy in task.policies]):
            yield f"{task.at('policies')}[{index}]", message


def rules_of(job: Job) -> list[list[Rule]]:
    """Return the policies in the form that Volcano has: those of each task, then the job's."""
    of_tasks = [[policy.rule() for policy in task.policies] for task in job.effective_tasks]
    return [*of_tasks, [policy.rule() for policy in job.policies]]


def delayed_problems(job: Job) -> Iterator[Found]:
    """Find policies that neither Volcano nor this controller can carry out.

    This controller carries out policies with a timeout, and those that follow one for the same
    event. It restarts whole jobs only, and no tasks or pods.
    """
    paths = [f"{task.at('policies')}" for task in job.effective_tasks] + ["policies"]
    every = rules_of(job)
    *of_tasks, of_job = every
    for path, rules, ours in zip(paths, every, carried_out_here(of_tasks, of_job), strict=True):
        for index, rule in enumerate(rules):
            if rule.action not in _OF_A_PART or not any(rule is one for one in ours):
                continue
            if rule.timeout_seconds is not None:
                yield f"{path}[{index}]", f"{rule.action} cannot have timeout_seconds: {_INSTEAD}"
            else:
                why = "stands behind a policy with timeout_seconds for the same event"
                yield f"{path}[{index}]", f"{rule.action} {why}: {_INSTEAD}"


def _policies(job: Job) -> Iterator[tuple[str, Policy]]:
    for index, policy in enumerate(job.policies):
        yield f"policies[{index}]", policy
    for task in job.effective_tasks:
        for index, policy in enumerate(task.policies):
            yield f"{task.at('policies')}[{index}]", policy


def product_problems(job: Job, catalogue: Catalogue) -> Iterator[Found]:
    """Find requests of the job that its product does not offer."""
    product = catalogue.find(job.product)
    if product is None:
        if job.product is not None:
            yield "product", "there is no such product"
        elif catalogue.required:
            yield "product", "is missing: " + ", ".join(sorted(catalogue.products))
        return
    for task in job.effective_tasks:
        yield from _more_than(task, product)
    yield from _feature_problems(job, product.features)


def _feature_problems(job: Job, features: Features) -> Iterator[Found]:
    for name, endpoint in job.interactive.items():
        if not getattr(features, endpoint.kind):
            yield f"interactive.{name}.kind", f"the product offers no {endpoint.kind}"
    if not features.batch and not job.interactive:
        yield "interactive", "is missing: the product is for jobs that people reach into"
    peers = [name for name, one in job.parameters.items() if one.type == "peer"]
    if not features.peers:
        yield from ((f"parameters.{name}", "the product offers no peers") for name in peers)
    if features.kinds is not None and job.kind is not None and job.kind not in features.kinds:
        yield "kind", "must be one of " + ", ".join(features.kinds)


def _more_than(task: EffectiveTask, product: Product) -> Iterator[Found]:
    most = {"cpu": product.cpu, "memory": product.memory}
    for name, limit in most.items():
        wanted = getattr(task.resources, name)
        if wanted is not None and wanted > limit:
            yield task.at(f"resources.{name}"), f"the product has only {limit}"
    if (task.resources.gpu or 0) > product.gpu:
        yield task.at("resources.gpu"), f"the product has only {product.gpu}"


# Resources and price of a replica


def amounts_of(
    wanted: Resources, product: Product | None, defaults: JobDefaults
) -> dict[str, Quantity]:
    """Return the resources of a replica: its own, those of the product, or the default."""
    gpus = wanted.gpu if wanted.gpu is not None else (product.gpu if product else 0)
    amounts = {
        "cpu": wanted.cpu or (product.cpu if product else defaults.cpu),
        "memory": wanted.memory or (product.memory if product else defaults.memory),
    }
    if gpus:
        resource = (product.gpu_resource if product else None) or defaults.gpu_resource
        amounts[resource] = Quantity(gpus * _WHOLE)
    return amounts


def charged_by(job: Job, defaults: JobDefaults) -> dict[str, Any]:
    """Return the fields of a job's record that it is charged by, as of now."""
    catalogue = defaults.pods.catalogue
    product = catalogue.find(job.product)
    price = None if product is None or product.price is None else product.price.model_dump()
    whole = {"cpu": 0.0, "memory": 0.0, "gpu": 0.0}
    for task in job.effective_tasks:
        amounts = amounts_of(task.resources, product, defaults)
        for name, amount in amounts.items():
            known = name if name in whole else "gpu"
            whole[known] += _number(amount) * task.replicas
    return {"product": job.product or catalogue.default, "price": price, **whole}


def replica_resources(job: Job, rank: int, defaults: JobDefaults) -> dict[str, str]:
    """Return the resources of each replica of the rank's task, by Kubernetes' names."""
    product = defaults.pods.catalogue.find(job.product)
    for task in job.effective_tasks:
        if task.first <= rank < task.first + task.replicas:
            amounts = amounts_of(task.resources, product, defaults)
            return {name: str(amount) for name, amount in amounts.items()}
    return {}


def _number(amount: Quantity) -> float:
    return amount.milli / 1000


# From paths in the VolcanoJob to paths in the job


_TASK: Final = re.compile(r"^spec\.tasks?\[([^\]]*)\]\.?(.*)$", re.DOTALL)

_ANY_TASK: Final = re.compile(r"^spec\.tasks?\.(.+)$", re.DOTALL)
"""Go names a field that it cannot decode without the index."""

_OF_JOB: Final[tuple[tuple[str, str], ...]] = (
    (r"metadata\.namespace", "owner"),
    (r"metadata\.name", "id"),
    (r"metadata\.labels", "labels"),
    (r"metadata\.annotations", ""),
    (r"spec\.queue", "queue"),
    (r"spec\.priorityClassName", "priority"),
    (r"spec\.minAvailable", "replicas"),
    (r"spec\.minSuccess", "min_success"),
    (r"spec\.maxRetry", "max_retry"),
    (r"spec\.networkTopology\.mode", "topology.network.mode"),
    (r"spec\.networkTopology\.highestTier\w*", "topology.network.tier"),
    (r"spec\.networkTopology", "topology.network"),
    (r"spec\.policies(\[\d+\])?(?:\.(\w+))?", "policies{0}"),
    (r"spec\.plugins\.\w+", "framework"),
    (r"spec\.tasks", "tasks"),
)
_OF_TASK: Final[tuple[tuple[str, str], ...]] = (
    (r"name", "name"),
    (r"replicas", "replicas"),
    (r"minAvailable", "min_available"),
    (r"dependsOn\.name(\[\d+\])?", "depends_on{0}"),
    (r"dependsOn", "depends_on"),
    (r"policies(\[\d+\])?", "policies{0}"),
    (r".*\.resources\.(?:limits|requests)\.(cpu|memory)", "resources.{0}"),
    (r".*\.resources\.(cpu|memory)", "resources.{0}"),
    (r".*\.resources", "resources"),
    (r".*\.image", "image"),
    (r".*\.env\b", "invocation.environment"),
    (r".*\.command", "invocation.command"),
)
_OF_ALL: Final[tuple[tuple[str, str], ...]] = (
    (r"topologyPolicy", "topology.numa"),
    (r".*\.ports\[([^\]]*)\]", "interactive.{0}"),
    (r".*\.ports", "interactive"),
    (r".*\.volumeMounts", "parameters"),
    (r".*\.runtimeClassName", "runtime"),
    (r".*\.(?:nodeSelector|affinity|tolerations)", "product"),
)
"""Fields of a task that the job sets for all tasks."""


def problems_with(job: Job, findings: Iterable[tuple[str, str]]) -> list[Problem]:
    """Return the problems of *job*, given the findings on its VolcanoJob.

    If no part of the job causes a finding, the path is empty and the message names the
    VolcanoJob's.
    """
    problems = [_problem(job, path, message) for path, message in findings]
    return list(dict.fromkeys(problems))


def _problem(job: Job, path: str, message: str) -> Problem:
    found = _origin(job, path)
    if found is not None:
        return Problem(found, message)
    return Problem("", f"{path}: {message}" if path else message)


def _origin(job: Job, path: str) -> str | None:
    if match := _TASK.match(path):
        task = _find_task(job, match[1])
        if task is not None:
            return _of_task(task, match[2])
    if (match := _ANY_TASK.match(path)) and len(job.effective_tasks) == 1:
        return _of_task(job.effective_tasks[0], match[1])
    return _first(_OF_JOB, path)


def _of_task(task: EffectiveTask, rest: str) -> str | None:
    if not rest:
        return task.path
    own = _first(_OF_TASK, rest)
    return task.at(own) if own is not None else _first(_OF_ALL, rest)


def _find_task(job: Job, which: str) -> EffectiveTask | None:
    tasks = job.effective_tasks
    index = whole_number(which, most=len(tasks) - 1)
    if index is not None:
        return tasks[index]
    return next((task for task in tasks if task.name == which), None)


def _first(table: tuple[tuple[str, str], ...], path: str) -> str | None:
    for pattern, target in table:
        if match := re.match(pattern, path):
            return target.format(*(group or "" for group in match.groups()))
    return None


_ID = re.compile(ID_PATTERN)
_TASK_NAME = re.compile(TASK_PATTERN)


def same_pod_names(job: Job) -> dict[str, frozenset[str]]:
    """Return tasks of possible jobs, by job id, whose pods would have the same names as *job*'s."""
    found = defaultdict[str, set[str]](set)
    for task in job.effective_tasks:
        for other, its_task in _read_as(f"{job.id}-{task.name}"):
            if other != job.id:
                found[other].add(its_task)
    return {other: frozenset(tasks) for other, tasks in found.items()}


def has_a_task(spec: object, names: Collection[str]) -> bool:
    """Return whether a job stored as *spec*, in whatever form, has one of the tasks."""
    tasks: object = spec.get("tasks") if isinstance(spec, Mapping) else ()
    if not tasks and isinstance(spec, Mapping):
        return DEFAULT_TASK in names
    given = [one for one in tasks if isinstance(one, Mapping)] if isinstance(tasks, list) else []
    return any(one.get("name") in list(names) for one in given)


def _read_as(stem: str) -> Iterator[tuple[str, str]]:
    for hyphen in re.finditer("-", stem):
        job_id, task = stem[: hyphen.start()], stem[hyphen.end() :]
        if _ID.match(job_id) and _TASK_NAME.match(task):
            yield job_id, task
