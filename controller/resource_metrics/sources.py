"""The metrics, what a source of them is, and why there may be none."""

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
"""Why there is no value. ``off``, ``not_configured``: the settings ask for none. ``not_installed``,
``forbidden``, ``unavailable``: what the source said. ``starting``: nothing was asked yet.
``not_running``: the rank has no pod that runs. ``not_measured``: the source knows no such pod, or
has not measured it yet."""

MOST_PODS: Final = 100_000
"""Of one source; a server that tells of more is wrong, or ignores what it was asked for."""


class PodKey(NamedTuple):
    """Which pod: sources know no UIDs."""

    namespace: str
    pod: str


Values: TypeAlias = dict[Metric, float]
Measured: TypeAlias = dict[PodKey, Values]


class SourceFailed(Exception):
    """A source has nothing: ``reason`` says so to everybody, the message to the operator."""

    def __init__(self, reason: Missing, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Source(Protocol):
    """Measures pods of this instance."""

    @property
    def name(self) -> str:
        """What operators call it."""

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """What it measures."""

    async def read(self, into: Measured) -> Mapping[Metric, Missing]:
        """Add what every pod uses now to *into*; return which metrics it could not measure.

        Raises:
            SourceFailed: If it could measure none.
        """
