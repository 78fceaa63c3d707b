"""Limits the bandwidth of each replica, in bits per second."""

from __future__ import annotations

from typing import ClassVar, Final

from controller.jobs.pipeline.builder import JobBuilder
from controller.jobs.pipeline.plugin import JobPlugin
from controller.jobs.spec.model import Job
from controller.volcano.quantities import Quantity

ANNOTATIONS: Final = {
    "ingress": "kubernetes.io/ingress-bandwidth",
    "egress": "kubernetes.io/egress-bandwidth",
}
"""The annotations of the cluster network's bandwidth plugin; without that plugin there is no
limit.
"""


class NetworkLimitPlugin(JobPlugin):
    """Gives each pod the bandwidth of its product, or less if the job requests less."""

    name: ClassVar[str] = "network_limit"
    # This plugin annotates the pods of the tasks.
    after: ClassVar[tuple[str, ...]] = ("task",)
    fields: ClassVar[frozenset[str]] = frozenset({"network"})

    async def on_create(self, job: Job, builder: JobBuilder) -> None:
        """Annotate the pods."""
        product = self.context.jobs.pods.catalogue.find(job.product)
        for direction, annotation in ANNOTATIONS.items():
            wanted: Quantity | None = getattr(job.network, direction)
            most: Quantity | None = getattr(product.network, direction) if product else None
            if wanted is not None and most is not None and wanted > most:
                builder.refuse(f"network.{direction}", f"the product has only {most.decimal()}")
                continue
            limit = wanted if wanted is not None else most
            if limit is None:
                continue
            for task in builder.volcano_job.tasks:
                task.template.annotations[annotation] = limit.decimal()
