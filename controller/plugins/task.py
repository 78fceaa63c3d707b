"""The job's tasks: their pods, resources, placement, and failure policies.

Volcano's ``svc`` gives the pods names, and ``env`` their index. No pod is restarted on its own:
users must see that an image fails, or the job's policies restart it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

from controller.jobs.pipeline.builder import JobBuilder
from controller.jobs.pipeline.plugin import JobPlugin
from controller.jobs.spec.model import EffectiveTask, Job
from controller.jobs.spec.validation import (
    Found,
    amounts_of,
    delayed_problems,
    policy_problems,
    product_problems,
    rules_of,
    task_problems,
)
from controller.site.product_list import Product
from controller.volcano.frameworks import FRAMEWORKS
from controller.volcano.manifest import Container, PodTemplate, Task, VolcanoJob
from controller.volcano.names import JOB_CONTAINER, KIND_LABEL, PRODUCT_LABEL
from controller.volcano.policies import Rule, carried_out_here, volcano_max_retry


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
        if builder.accepted_in is None:
            # A job that an older version accepted continues: the policy becomes a restart of the
            # whole job.
            for path, message in delayed_problems(job):
                builder.refuse(path, message)
        product = self.context.jobs.pods.catalogue.find(job.product)
        self._shape_job(job, builder.volcano_job)
        for task in job.effective_tasks:
            builder.volcano_job.tasks.append(
                self._task(job, task, product, builder.volcano_job.labels)
            )
        _give_policies(job, builder.volcano_job)

    def _problems(self, job: Job) -> Iterator[Found]:
        pods = self.context.jobs.pods
        yield from task_problems(job)
        yield from policy_problems(job)
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
        of_tasks = [policy for task in job.effective_tasks for policy in task.policies]
        volcano_job.queue = job.queue or defaults.queue
        # A gang: either this number of pods is placed, or none occupies a node. A task that waits
        # for another one is no part of the gang, or neither would ever start.
        volcano_job.min_available = sum(
            task.min_available for task in job.effective_tasks if not task.depends_on
        )
        volcano_job.max_retry = volcano_max_retry(
            job.max_retry, [policy.rule() for policy in (*job.policies, *of_tasks)]
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
            resources=amounts_of(task.resources, product, self.context.jobs),
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
    *of_tasks, of_job = rules_of(job)
    *kept_of_tasks, kept_of_job = carried_out_here(of_tasks, of_job)
    for task, rules, kept in zip(volcano_job.tasks, of_tasks, kept_of_tasks, strict=True):
        task.policies = tuple(rule for rule in rules if not _is_among(rule, kept))
    volcano_job.policies = tuple(rule for rule in of_job if not _is_among(rule, kept_of_job))


def _is_among(rule: Rule, rules: Sequence[Rule]) -> bool:
    # By identity: an equal policy in another list may be one that Volcano carries out.
    return any(rule is one for one in rules)


def _place(template: PodTemplate, product: Product) -> None:
    placed = {
        "nodeSelector": product.node_selector(),
        "affinity": product.affinity(),
        "tolerations": [one.manifest() for one in product.tolerations],
    }
    template.more |= {name: value for name, value in placed.items() if value}
