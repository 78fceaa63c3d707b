"""Runs a job in a virtual machine of its own, by a RuntimeClass such as that of Kata Containers."""

from __future__ import annotations

from typing import ClassVar

from controller.jobs.builder import JobBuilder
from controller.jobs.model import Job
from controller.jobs.plugin import JobPlugin
from controller.volcano.quantity import Quantity


class KataContainerPlugin(JobPlugin):
    """Sets the RuntimeClass, and takes what its machine needs from what the replica gets.

    Kubernetes adds a RuntimeClass' overhead to what a pod requests, so that job and machine
    together take what the job asked and is charged for, never more.
    """

    name: ClassVar[str] = "kata_container"
    fields: ClassVar[frozenset[str]] = frozenset({"runtime"})

    async def on_create(self, job: Job, builder: JobBuilder) -> None:
        """Change every task, where job or product name a runtime."""
        kata = self.context.jobs.pods.kata
        product = self.context.jobs.pods.catalogue.find(job.product)
        of_product = product.runtime if product is not None else None
        if None not in (job.runtime, of_product) and job.runtime != of_product:
            builder.refuse("runtime", f"the product runs in {of_product}")
        wanted = job.runtime or of_product
        if wanted is None:
            return
        runtime_class = kata.runtimes.get(wanted)
        if runtime_class is None:
            # The product's own mistake is the deployment's, but the job cannot run either way.
            path = "product" if job.runtime is None else "runtime"
            builder.refuse(path, f"the deployment has no runtime {wanted}")
            return
        of_its_own = product.overhead if product is not None else kata.overhead
        cpu, memory = of_its_own.cpu or kata.overhead.cpu, of_its_own.memory or kata.overhead.memory
        for task in job.effective_tasks:
            resources = builder.container(task.name).resources
            for name, taken, least in (
                ("cpu", cpu, kata.least_cpu),
                ("memory", memory, kata.least_memory),
            ):
                left = resources[name].milli - (taken.milli if taken is not None else 0)
                if left < least.milli:
                    needed = Quantity(least.milli + (taken.milli if taken is not None else 0))
                    builder.refuse(
                        task.at(f"resources.{name}"),
                        f"{wanted} needs {needed} at least: {taken} for itself, and {least}",
                    )
                resources[name] = Quantity(max(left, 0))
            builder.task(task.name).template.more["runtimeClassName"] = runtime_class
