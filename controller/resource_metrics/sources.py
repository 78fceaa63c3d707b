"""The metrics, the interface of sources, and the reasons for missing values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias, get_args

Metric: TypeAlias = Literal[
    "cpu_cores",
    "memory_bytes",
    "network_receive_bytes_per_second",
    "network_transmit_bytes_per_second",
    "gpu_utilization",
    "gpu_memory_bytes",
]
METRICS: Final[tuple[Metric, ...]] = get_args(Metric)

Missing: TypeAlias = Literal[
    "off",
    "not_configured",
    "not_installed",
    "forbidden",
    "unavailable",
    "starting",
    "not_running",
    "not_measured",
]
"""Why there is no value.

- ``off``, ``not_configured``: disabled by the settings.
- ``not_installed``, ``forbidden``, ``unavailable``: the source's error.
- ``starting``: no sample was taken yet.
- ``not_running``: the rank has no running pod.
- ``not_measured``: the source does not know the pod, or has not measured it yet.
"""

MOST_PODS: Final = 100_000
"""The most pods of one source; a server with more ignores the selector, or is wrong."""


class PodKey(NamedTuple):
    """The key of a pod: sources have no UIDs."""

    namespace: str
    pod: str


Values: TypeAlias = dict[Metric, float]
Measured: TypeAlias = dict[PodKey, Values]


class SourceFailed(Exception):
    """A source has no values: ``reason`` is for clients, the message for operators."""

    def __init__(self, reason: Missing, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Source(Protocol):
    """Measures the pods of this instance."""

    @property
    def name(self) -> str:
        """The name in logs and metrics."""

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics that it measures."""

    async def read(self, into: Measured) -> Mapping[Metric, Missing]:
        """Add the current usage of every pod to *into*; return the metrics that are missing.

        Raises:
            SourceFailed: If no metric could be measured.
        """
