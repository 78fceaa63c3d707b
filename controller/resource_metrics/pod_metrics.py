"""CPU and memory, from the resource metrics API (``metrics.k8s.io``, PodMetrics)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, Final

from controller.kube.client import Kube
from controller.kube.decoding import FieldTransform
from controller.kube.errors import Forbidden, KubeError, NotFound, NotServed
from controller.kube.kinds import POD_METRICS
from controller.resource_metrics.sources import (
    MOST_PODS,
    Measured,
    Metric,
    Missing,
    PodKey,
    SourceFailed,
    Values,
)
from controller.volcano import fields
from controller.volcano.names import INSTANCE_LABEL
from controller.volcano.quantities import measured_amount

_COLUMNS: Final[tuple[tuple[str, Metric], ...]] = (("cpu", "cpu_cores"), ("memory", "memory_bytes"))


_POD_METRICS: Final = FieldTransform(fields.POD_METRICS)


class PodMetricsSource:
    """Lists the metrics of all pods of an instance, in one call.

    Args:
        instance: The instance.
        namespace: The namespace of all pods; None if owners have their own namespaces.
    """

    name: Final = "metrics.k8s.io"
    metrics: Final[tuple[Metric, ...]] = ("cpu_cores", "memory_bytes")

    def __init__(self, kube: Kube, *, instance: str, namespace: str | None) -> None:
        self._kube = kube
        self._labels = f"{INSTANCE_LABEL}={instance}"
        self._namespace = namespace

    async def read(self, into: Measured) -> Mapping[Metric, Missing]:
        """Add the usage of every pod: the sum of its containers, as ``kubectl top pods`` shows."""
        # Unpaged: metrics-server does not support pages.
        parts = self._kube.parts(
            POD_METRICS,
            self._namespace,
            labels=self._labels,
            transform=_POD_METRICS,
            paged=False,
        )
        found = 0
        try:
            async with aclosing(parts):
                async for part in parts:
                    for one in part.objects:
                        _read(one, into)
                    found += len(part.objects)
                    if found > MOST_PODS:
                        raise SourceFailed(
                            "unavailable", f"the response has more than {MOST_PODS} pods"
                        )
        except (NotFound, NotServed) as error:
            raise SourceFailed("not_installed", str(error)) from error
        except Forbidden as error:
            raise SourceFailed("forbidden", str(error)) from error
        except KubeError as error:
            raise SourceFailed("unavailable", str(error)) from error
        return {}


def _read(found: Mapping[str, Any], into: Measured) -> None:
    metadata, containers = found["metadata"], found.get("containers")
    namespace, name = metadata.get("namespace"), metadata.get("name")
    if not (isinstance(namespace, str) and isinstance(name, str) and isinstance(containers, list)):
        return
    values = Values()
    for column, metric in _COLUMNS:
        amounts = [_amount(one, column) for one in containers]
        known = [amount for amount in amounts if amount is not None]
        # The sum would be wrong if some containers are not measured.
        if known and len(known) == len(amounts):
            values[metric] = math.fsum(known)
    if values:
        into.setdefault(PodKey(namespace, name), Values()).update(values)


def _amount(container: object, column: str) -> float | None:
    usage = container.get("usage") if isinstance(container, dict) else None
    return measured_amount(usage.get(column)) if isinstance(usage, dict) else None
