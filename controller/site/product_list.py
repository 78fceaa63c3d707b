"""What the deployment offers, by name: from a file that operators write in YAML or JSON.

docs/plugins/task.md describes it. Every mistake in it is told with its path.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from controller.jobs.spec.field_types import Cpu, Memory
from controller.jobs.spec.model import Name, NetworkLimits, SiteName
from controller.jobs.spec.parameters import Strict
from controller.site.yaml_file import read_declared

_QUALIFIED: Final = (
    r"^([a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$"
)
_LABEL_VALUE: Final = r"^([A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?$"
_PRICE: Final = r"^[0-9]{1,12}(\.[0-9]{1,12})?$"

Feature = Literal["web", "vnc", "terminal", "logs", "peers", "extend", "utilization", "batch"]
QualifiedName = Annotated[str, Field(pattern=_QUALIFIED)]


def _decimal(raw: str) -> str:
    try:
        Decimal(raw)
    except InvalidOperation:
        raise ValueError("not a decimal number") from None
    return raw


class Toleration(Strict):
    """A taint of nodes that pods of the product bear."""

    key: QualifiedName
    value: Annotated[str, Field(pattern=_LABEL_VALUE)] | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None

    def manifest(self) -> dict[str, str]:
        """Return the JSON."""
        found = {"key": self.key, "operator": "Exists" if self.value is None else "Equal"}
        if self.value is not None:
            found["value"] = self.value
        return found if self.effect is None else {**found, "effect": self.effect}


class Price(Strict):
    """What a replica costs: ``amount`` of ``unit`` for each ``per_seconds``. Text, to be exact."""

    amount: Annotated[str, Field(pattern=_PRICE), AfterValidator(_decimal)]
    unit: Annotated[str, Field(min_length=1, max_length=32)]
    per_seconds: Annotated[int, Field(ge=1, le=10**8)] = 3600


class Features(Strict):
    """What may be done with a job of the product.

    ``batch`` is a job that nobody reaches into by an endpoint. ``kinds`` are those that a job may
    say; without them, any. ``utilization`` is whether it is told how full the product's nodes are.
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
    """What a pod's runtime needs for itself: taken from what the replica gets."""

    cpu: Cpu | None = None
    memory: Memory | None = None


class Product(Strict):
    """What one replica gets at most, where it runs, and what that costs.

    ``node_labels`` are what its nodes must be labelled with; of a label with several values, any.
    """

    title: Name | None = None
    cpu: Cpu
    memory: Memory
    gpu: Annotated[int, Field(ge=0, le=1024)] = 0
    gpu_resource: QualifiedName | None = None
    node_labels: dict[
        QualifiedName,
        Annotated[str, Field(pattern=_LABEL_VALUE)]
        | Annotated[
            list[Annotated[str, Field(pattern=_LABEL_VALUE)]], Field(min_length=1, max_length=64)
        ],
    ] = Field(default_factory=dict)
    tolerations: Annotated[list[Toleration], Field(max_length=64)] = Field(default_factory=list)
    runtime: SiteName | None = None
    overhead: Overhead = Overhead()
    network: NetworkLimits = NetworkLimits()
    price: Price | None = None
    features: Features = Features()

    def affinity(self) -> dict[str, Any] | None:
        """Return the node affinity; None where any node will do."""
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
        """Say whether a node with these labels is one of its own."""
        return all(
            labels.get(name) in ([value] if isinstance(value, str) else value)
            for name, value in self.node_labels.items()
        )

    def node_selector(self) -> dict[str, str]:
        """Return the labels that nodes must have with exactly one value."""
        labels = sorted(self.node_labels.items())
        return {name: value for name, value in labels if isinstance(value, str)}


class Catalogue(Strict):
    """All products; ``default`` is that of a job that names none, ``required`` refuses it."""

    products: dict[SiteName, Product] = Field(default_factory=dict, max_length=1000)
    default: SiteName | None = None
    required: bool = False

    @model_validator(mode="after")
    def _default_is_there(self) -> Self:
        if self.default is not None and self.default not in self.products:
            raise ValueError(f"there is no product {self.default} to be the default")
        return self

    def find(self, name: str | None) -> Product | None:
        """Return the product *name*, or the default one; None where there is none such."""
        wanted = name or self.default
        return None if wanted is None else self.products.get(wanted)

    def offers(self, name: str | None, feature: Feature) -> bool:
        """Say whether the product *name* has the feature; what is of no product has all of them."""
        product = self.find(name)
        return product is None or bool(getattr(product.features, feature))


def read_catalogue(raw: str) -> Catalogue:
    """Return the catalogue that is in the file *raw*.

    Raises:
        ValueError: With everything that is wrong with it.
    """
    return read_declared(Path(raw), Catalogue)
