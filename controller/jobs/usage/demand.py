"""What a job takes of the cluster, and what it is charged by. No I/O."""

from __future__ import annotations

from typing import Any

from controller.jobs.spec.model import Job
from controller.jobs.spec.validation import amounts_of
from controller.settings import JobDefaults
from controller.volcano.quantity import Quantity


def charged_by(job: Job, defaults: JobDefaults) -> dict[str, Any]:
    """Return a record's fields of what the job is charged by, and takes, as things are now."""
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
    """Return what each replica of the rank's task gets, by the names that Kubernetes has."""
    product = defaults.pods.catalogue.find(job.product)
    for task in job.effective_tasks:
        if task.first <= rank < task.first + task.replicas:
            amounts = amounts_of(task.resources, product, defaults)
            return {name: str(amount) for name, amount in amounts.items()}
    return {}


def _number(amount: Quantity) -> float:
    return amount.milli / 1000
