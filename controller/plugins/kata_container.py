"""Runs a job in a virtual machine of its own, by a RuntimeClass such as Kata Containers."""

from __future__ import annotations

from typing import ClassVar

from controller.jobs.pipeline.builder import JobBuilder
from controller.jobs.pipeline.plugin import JobPlugin
from controller.jobs.spec.model import EffectiveTask, Job
from controller.site.product_list import Overhead, Product
from controller.volcano.quantities import Quantity


class KataContainerPlugin(JobPlugin):
    """Sets the RuntimeClass, and subtracts the machine's overhead from the replica's resources.

    Kubernetes adds the overhead of a RuntimeClass to a pod's requests. So job and machine together
    take what the job requested and is charged for.
    """

    name: ClassVar[str] = "kata_container"
    # It subtracts the overhead from the resources of the tasks' containers.
    after: ClassVar[tuple[str, ...]] = ("task",)
    fields: ClassVar[frozenset[str]] = frozenset({"runtime"})

    async def on_create(self, job: Job, builder: JobBuilder) -> None:
        """Change every task, if the job or its product names a runtime."""
        product = self.context.jobs.pods.catalogue.find(job.product)
        runtime_class = self._runtime_class(job, product, builder)
        if runtime_class is None:
            return
        for task in job.effective_tasks:
            self._make_room(task, product, builder)
            builder.task(task.name).template.more["runtimeClassName"] = runtime_class

    def _runtime_class(self, job: Job, product: Product | None, builder: JobBuilder) -> str | None:
        of_product = product.runtime if product is not None else None
        if None not in (job.runtime, of_product) and job.runtime != of_product:
            builder.refuse("runtime", f"the product runs in {of_product}")
        wanted = job.runtime or of_product
        if wanted is None:
            return None
        found = self.context.jobs.pods.kata.runtimes.get(wanted)
        if found is None:
            # A wrong product is the deployment's mistake, but the job cannot run either way.
            path = "product" if job.runtime is None else "runtime"
            builder.refuse(path, f"the deployment has no runtime {wanted}")
        return found

    def _make_room(self, task: EffectiveTask, product: Product | None, builder: JobBuilder) -> None:
        kata = self.context.jobs.pods.kata
        own = product.overhead if product is not None else Overhead()
        resources = builder.container(task.name).resources
        for name, taken, least in (
            ("cpu", own.cpu or kata.cpu, kata.least_cpu),
            ("memory", own.memory or kata.memory, kata.least_memory),
        ):
            needed = Quantity(taken.milli + least.milli)
            if resources[name] < needed:
                text = f"a runtime needs {needed} at least: {taken} for itself, and {least}"
                builder.refuse(task.at(f"resources.{name}"), text)
            resources[name] = Quantity(max(resources[name].milli - taken.milli, 0))
