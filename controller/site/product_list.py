"""The product catalogue, and what a job gets of it.

Operators write it in YAML or JSON; docs/plugins/task.md describes it. Every problem of the file is
reported with its path.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from controller.jobs.spec.field_types import QUALIFIED_NAME, Cpu, Memory, Name, SiteName
from controller.jobs.spec.model import EffectiveTask, Job
from controller.jobs.spec.parameters import Strict, how_many
from controller.jobs.spec.problems import Found
from controller.jobs.spec.scheduling import NetworkLimits, Resources
from controller.site.yaml_file import read_declared
from controller.volcano.quantities import Quantity, parse_cpu, parse_memory
from shared.settings import setting

_LABEL_VALUE: Final = r"^([A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?$"
_WHOLE: Final = 1000
_PRICE: Final = r"^[0-9]{1,12}(\.[0-9]{1,12})?$"

Feature = Literal["web", "vnc", "terminal", "logs", "peers", "extend", "utilization", "batch"]
QualifiedName = Annotated[str, Field(pattern=QUALIFIED_NAME)]
LabelValue = Annotated[str, Field(pattern=_LABEL_VALUE)]


def _decimal(raw: str) -> str:
    try:
        Decimal(raw)
    except InvalidOperation:
        raise ValueError("not a decimal number") from None
    return raw


class Toleration(Strict):
    """A taint of nodes that pods of the product tolerate."""

    key: QualifiedName
    value: LabelValue | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None

    def manifest(self) -> dict[str, str]:
        """Return the toleration's manifest."""
        found = {"key": self.key, "operator": "Exists" if self.value is None else "Equal"}
        if self.value is not None:
            found["value"] = self.value
        return found if self.effect is None else {**found, "effect": self.effect}


class Price(Strict):
    """The price of a replica: ``amount`` of ``unit`` per ``per_seconds``; a string, to be exact."""

    amount: Annotated[str, Field(pattern=_PRICE), AfterValidator(_decimal)]
    unit: Annotated[str, Field(min_length=1, max_length=32)]
    per_seconds: Annotated[int, Field(ge=1, le=10**8)] = 3600


class Features(Strict):
    """The features of jobs of the product.

    - ``batch``: jobs without an endpoint. ``kinds``: the allowed kinds; None: any.
    - ``utilization``: whether the utilization of the product's nodes is shown.
    """

    web: bool = True
    vnc: bool = True
    terminal: bool = True
    logs: bool = True
    peers: bool = True
    extend: bool = True
    utilization: bool = True
    batch: bool = True
    kinds: Annotated[list[SiteName], Field(max_length=64)] | None = None


class Overhead(Strict):
    """The overhead of a pod's runtime, which is taken from the replica's resources."""

    cpu: Cpu | None = None
    memory: Memory | None = None


class Product(Strict):
    """The resources of one replica, the nodes that it runs on, and its price.

    ``node_labels`` are labels of its nodes; a label with several values may have any of them.
    """

    title: Name | None = None
    cpu: Cpu
    memory: Memory
    gpu: Annotated[int, Field(ge=0, le=1024)] = 0
    gpu_resource: QualifiedName | None = None
    node_labels: dict[
        QualifiedName,
        Annotated[
            Annotated[LabelValue, Tag("~one")]
            | Annotated[list[LabelValue], Field(min_length=1, max_length=64), Tag("~many")],
            Discriminator(how_many),
        ],
    ] = Field(default_factory=dict)
    tolerations: Annotated[list[Toleration], Field(max_length=64)] = Field(default_factory=list)
    runtime: SiteName | None = None
    overhead: Overhead = Overhead()
    network: NetworkLimits = NetworkLimits()
    price: Price | None = None
    features: Features = Features()

    def affinity(self) -> dict[str, Any] | None:
        """Return the node affinity; None if any node matches."""
        several = [
            {"key": name, "operator": "In", "values": list(values)}
            for name, values in sorted(self.node_labels.items())
            if isinstance(values, list)
        ]
        if not several:
            return None
        required = {"nodeSelectorTerms": [{"matchExpressions": several}]}
        return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}

    def accepts(self, labels: Mapping[str, str]) -> bool:
        """Return whether a node with these labels belongs to the product."""
        return all(
            labels.get(name) in ([value] if isinstance(value, str) else value)
            for name, value in self.node_labels.items()
        )

    def node_selector(self) -> dict[str, str]:
        """Return the node labels with exactly one allowed value."""
        labels = sorted(self.node_labels.items())
        return {name: value for name, value in labels if isinstance(value, str)}


class Catalogue(Strict):
    """All products; jobs without one get the ``default``, or are refused if it is ``required``."""

    products: dict[SiteName, Product] = Field(default_factory=dict, max_length=1000)
    default: SiteName | None = None
    required: bool = False

    @model_validator(mode="after")
    def _default_is_there(self) -> Self:
        if self.default is not None and self.default not in self.products:
            raise ValueError(f"the default product {self.default} does not exist")
        return self

    def find(self, name: str | None) -> Product | None:
        """Return the product *name*, or the default one, if it exists."""
        wanted = name or self.default
        return None if wanted is None else self.products.get(wanted)

    def offers(self, name: str | None, feature: Feature) -> bool:
        """Return whether the product *name* has the feature; jobs without a product have all."""
        product = self.find(name)
        return product is None or bool(getattr(product.features, feature))


def read_catalogue(raw: str) -> Catalogue:
    """Return the catalogue in the file *raw*.

    Raises:
        ValueError: With every problem of the file.
    """
    return read_declared(Path(raw), Catalogue)


# A job and its product


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


def _resource_name(raw: str) -> str:
    if not re.fullmatch(QUALIFIED_NAME, raw, re.ASCII):
        raise ValueError("not the name of a resource, such as nvidia.com/gpu")
    return raw


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaDefaults:
    """The resources of a replica for which neither its job nor a product says anything."""

    cpu: Quantity = setting("FUMAROLE_CONTROLLER_DEFAULT_CPU", parse_cpu, parse_cpu("1"))
    memory: Quantity = setting(
        "FUMAROLE_CONTROLLER_DEFAULT_MEMORY", parse_memory, parse_memory("1Gi")
    )
    gpu_resource: str = setting(
        "FUMAROLE_CONTROLLER_GPU_RESOURCE", _resource_name, "nvidia.com/gpu"
    )

    def amounts_of(self, wanted: Resources, product: Product | None) -> dict[str, Quantity]:
        """Return the resources of a replica: its own, those of the product, or the default."""
        gpus = wanted.gpu if wanted.gpu is not None else (product.gpu if product else 0)
        amounts = {
            "cpu": wanted.cpu or (product.cpu if product else self.cpu),
            "memory": wanted.memory or (product.memory if product else self.memory),
        }
        if gpus:
            resource = (product.gpu_resource if product else None) or self.gpu_resource
            amounts[resource] = Quantity(gpus * _WHOLE)
        return amounts

    def charged_by(self, job: Job, catalogue: Catalogue) -> dict[str, Any]:
        """Return the fields of a job's record that it is charged by, as of now."""
        product = catalogue.find(job.product)
        price = None if product is None or product.price is None else product.price.model_dump()
        whole = {"cpu": 0.0, "memory": 0.0, "gpu": 0.0}
        for task in job.effective_tasks:
            for name, amount in self.amounts_of(task.resources, product).items():
                known = name if name in whole else "gpu"
                whole[known] += amount.milli / _WHOLE * task.replicas
        return {"product": job.product or catalogue.default, "price": price, **whole}

    def replica_resources(self, job: Job, rank: int, catalogue: Catalogue) -> dict[str, str]:
        """Return the resources of each replica of the rank's task, by Kubernetes' names."""
        product = catalogue.find(job.product)
        for task in job.effective_tasks:
            if task.first <= rank < task.first + task.replicas:
                amounts = self.amounts_of(task.resources, product)
                return {name: str(amount) for name, amount in amounts.items()}
        return {}
