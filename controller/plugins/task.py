"""The job's tasks: their pods, resources, placement, and policies; what Volcano could not run.

Volcano's ``svc`` gives the pods names, and ``env`` their index. No pod is restarted on its own:
users must see that an image fails, or the job's policies restart it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import ClassVar, Final

from controller.jobs.pipeline.builder import JobBuilder
from controller.jobs.pipeline.plugin import JobPlugin
from controller.jobs.spec.model import EffectiveTask, Job
from controller.jobs.spec.problems import Found
from controller.site.product_list import Product, product_problems
from controller.volcano.frameworks import FRAMEWORKS, Framework
from controller.volcano.manifest import Container, PodTemplate, Task, VolcanoJob
from controller.volcano.names import JOB_CONTAINER, KIND_LABEL, PRODUCT_LABEL, pod_name
from controller.volcano.policies import (
    RESTARTS,
    Rule,
    carried_out_here,
    is_among,
    problems_of,
    volcano_max_retry,
)

_LONGEST_HOST_NAME: Final = 63
_WHOLE: Final = 1000
_OF_A_PART: Final = RESTARTS - {"RestartJob"}
_INSTEAD: Final = "RestartJob can"


class TaskPlugin(JobPlugin):
    """Creates one pod a replica, with requests equal to limits, scheduled as a gang."""

    name: ClassVar[str] = "task"
    fields: ClassVar[frozenset[str]] = frozenset(
        {
            "image",
            "pull_credential",
            "resources",
            "replicas",
            "tasks",
            "product",
            "kind",
            "framework",
            "queue",
            "priority",
            "topology",
            "policies",
            "max_retry",
            "min_success",
        }
    )

    async def on_create(self, job: Job, builder: JobBuilder) -> None:
        """Add the tasks, and refuse what Volcano could not run."""
        # A value that several tasks inherit from the job is reported once.
        for path, message in dict.fromkeys(self._problems(job)):
            builder.refuse(path, message)
        if job.has_policies and builder.accepted_in is None:
            # A job that an older version accepted continues: the policy becomes a restart of the
            # whole job.
            for path, message in _delayed_problems(job):
                builder.refuse(path, message)
        product = self.context.jobs.pods.catalogue.find(job.product)
        self._shape_job(job, builder.volcano_job)
        for task in job.effective_tasks:
            builder.volcano_job.tasks.append(
                self._task(job, task, product, builder.volcano_job.labels)
            )
        if job.has_policies:
            _give_policies(job, builder.volcano_job)

    def _problems(self, job: Job) -> Iterator[Found]:
        pods = self.context.jobs.pods
        yield from _task_problems(job)
        if job.has_policies:
            yield from _policy_problems(job)
        yield from product_problems(job, pods.catalogue)
        if job.priority is not None and job.priority not in pods.priorities:
            there = ", ".join(sorted(pods.priorities)) or "none"
            yield "priority", f"the deployment has no such priority; it has: {there}"
        if job.pull_credential is not None and self._pull_secret(job) is None:
            yield "pull_credential", "the deployment has no such credential"
        if job.queue == "root":
            yield "queue", "is Volcano's own"

    def _shape_job(self, job: Job, volcano_job: VolcanoJob) -> None:
        defaults, network = self.context.jobs, job.topology.network
        volcano_job.queue = job.queue or defaults.queue
        # A gang: either this number of pods is placed, or none occupies a node. A task that waits
        # for another one is no part of the gang, or neither would ever start.
        volcano_job.min_available = sum(
            task.min_available for task in job.effective_tasks if not task.depends_on
        )
        if job.has_policies or job.max_retry is not None:
            volcano_job.max_retry = volcano_max_retry(
                job.max_retry, chain.from_iterable(job.rules())
            )
        volcano_job.min_success = job.min_success
        volcano_job.priority_class = defaults.pods.priorities.get(job.priority or "")
        volcano_job.retention_seconds = defaults.retention_seconds
        volcano_job.plugins = self._volcano_plugins(job)
        if network is not None:
            volcano_job.network_topology = {"mode": network.mode}
            if network.tier is not None:
                volcano_job.network_topology["highestTierAllowed"] = network.tier
        if job.kind is not None:
            volcano_job.labels[KIND_LABEL] = job.kind
        if (product := job.product or defaults.pods.catalogue.default) is not None:
            volcano_job.labels[PRODUCT_LABEL] = product

    def _volcano_plugins(self, job: Job) -> dict[str, list[str]]:
        plugins: dict[str, list[str]] = {"env": [], "svc": [_NAMES_AT_ONCE]}
        if job.framework is None:
            return plugins
        framework, pods = FRAMEWORKS[job.framework], self.context.jobs.pods
        plugins[job.framework] = list(framework.arguments)
        if framework.ssh:
            plugins[job.framework].append(f"--port={pods.ssh_port}")
            plugins["ssh"] = [f"--ssh-key-file-path={pods.ssh_folder}"]
        return plugins

    def _pull_secret(self, job: Job) -> str | None:
        """Return the Secret of the job's credential, which is in each owner's namespace."""
        share = self.context.jobs.fair_share
        known = dict(self.context.jobs.pods.pull_credentials)
        if share is not None:
            known |= {name: name for name in share.pull_secrets}
        return known.get(job.pull_credential or "")

    def _task(
        self, job: Job, task: EffectiveTask, product: Product | None, labels: dict[str, str]
    ) -> Task:
        container = Container(
            name=JOB_CONTAINER,
            image=task.image,
            resources=self.context.jobs.amounts_of(task.resources, product),
            # The status of a failed pod then has the last lines of the log, also once the log is
            # gone.
            more={"terminationMessagePolicy": "FallbackToLogsOnError"},
        )
        template = PodTemplate(containers=[container], labels=dict(labels))
        if (secret := self._pull_secret(job)) is not None:
            template.more["imagePullSecrets"] = [{"name": secret}]
        if product is not None:
            _place(template, product)
        return Task(
            name=task.name,
            replicas=task.replicas,
            template=template,
            min_available=task.min_available,
            depends_on=task.depends_on,
            topology_policy=job.topology.numa,
        )


_NAMES_AT_ONCE: Final = "--publish-not-ready-addresses=true"
"""Without it a pod has a name only once it is ready. Ranks that wait for the names of others before
they are ready would wait for ever (Kubernetes, "DNS for Services and Pods").
"""


def _give_policies(job: Job, volcano_job: VolcanoJob) -> None:
    """Give Volcano the policies that it carries out itself."""
    lists = job.rules()
    kept = carried_out_here(lists)
    *of_tasks, of_job = [tuple(one for one in rules if not is_among(one, kept)) for rules in lists]
    for task, rules in zip(volcano_job.tasks, of_tasks, strict=True):
        task.policies = rules
    volcano_job.policies = of_job


def _place(template: PodTemplate, product: Product) -> None:
    placed = {
        "nodeSelector": product.node_selector(),
        "affinity": product.affinity(),
        "tolerations": [one.manifest() for one in product.tolerations],
    }
    template.more |= {name: value for name, value in placed.items() if value}


# What Volcano could not run


def _task_problems(job: Job) -> Iterator[Found]:
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
        for path, rules in _policies(job):
            for index, rule in enumerate(rules):
                if rule.action in _OF_A_PART:
                    message = f"{job.framework} needs RestartJob: its keys change"
                    yield f"{path}[{index}].action", message


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


def _policy_problems(job: Job) -> Iterator[Found]:
    """Find problems that Volcano refuses in the policies of the job and of its tasks."""
    for path, rules in _policies(job):
        for index, message in problems_of(rules):
            yield f"{path}[{index}]", message


def _delayed_problems(job: Job) -> Iterator[Found]:
    """Find policies that neither Volcano nor this controller can carry out.

    This controller carries out policies with a timeout, and those that follow one for the same
    event. It restarts whole jobs only, and no tasks or pods.
    """
    lists = _policies(job)
    ours = carried_out_here([rules for _, rules in lists])
    for path, rules in lists:
        for index, rule in enumerate(rules):
            if rule.action not in _OF_A_PART or not is_among(rule, ours):
                continue
            if rule.timeout_seconds is not None:
                yield f"{path}[{index}]", f"{rule.action} cannot have timeout_seconds: {_INSTEAD}"
            else:
                why = "stands behind a policy with timeout_seconds for the same event"
                yield f"{path}[{index}]", f"{rule.action} {why}: {_INSTEAD}"


def _policies(job: Job) -> list[tuple[str, list[Rule]]]:
    """Return the policies of each task, then the job's, with the paths of the lists."""
    paths = [*(task.at("policies") for task in job.effective_tasks), "policies"]
    return list(zip(paths, job.rules(), strict=True))
