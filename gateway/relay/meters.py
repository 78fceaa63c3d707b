"""What the data path counts: plain integers on the hot path, read when Prometheus asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


class Meters(Collector):
    """Counts what happens; register it with the process' registry.

    Labels come from closed sets: classes of status codes, codes of refusals, close codes.
    """

    def __init__(self) -> None:
        self.answers = [0] * 6
        self.refusals: Counter[str] = Counter()
        self.upstream_failures: Counter[str] = Counter()
        self.ends: Counter[int] = Counter()
        self.tunnels = 0
        self.dials = 0
        self.reused = 0
        self.retries = 0
        self.connections = 0
        self.dropped = 0
        self.failed_arrivals = 0
        self.accept_pauses = 0
        self._gauges: list[tuple[str, str, Callable[[], float]]] = []

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Have *read* asked whenever Prometheus asks."""
        self._gauges.append((name, text, read))

    def collect(self) -> Iterator[Metric]:
        """Yield everything that was counted."""
        answers = CounterMetricFamily(
            "fumarole_gateway_answers", "Apps' answers by class of status.", labels=["class"]
        )
        for hundreds, count in enumerate(self.answers[1:], 1):
            answers.add_metric([f"{hundreds}xx"], count)
        yield answers
        yield _by("refusals", "The gateway's own answers by code.", "code", self.refusals)
        yield _by(
            "upstream_failures", "Apps that failed by reason.", "reason", self.upstream_failures
        )
        ends = Counter({str(code): count for code, count in self.ends.items()})
        yield _by("ends", "Tunnels that the gateway ended by close code.", "close_code", ends)
        for name, text, count in (
            ("tunnels", "WebSockets relayed.", self.tunnels),
            ("dials", "Connections made to apps.", self.dials),
            ("reused", "Requests sent on pooled connections.", self.reused),
            ("retries", "Requests sent again because a pooled connection was stale.", self.retries),
            ("connections", "Connections accepted.", self.connections),
            ("dropped", "Connections closed unheard, far beyond a limit.", self.dropped),
            ("failed_arrivals", "Connections without a handshake.", self.failed_arrivals),
            ("accept_pauses", "Times without descriptors to accept with.", self.accept_pauses),
        ):
            yield CounterMetricFamily(f"fumarole_gateway_{name}", text, value=count)
        for name, text, read in self._gauges:
            yield GaugeMetricFamily(f"fumarole_gateway_{name}", text, value=read())


def _by(name: str, text: str, label: str, counts: Counter[str]) -> CounterMetricFamily:
    family = CounterMetricFamily(f"fumarole_gateway_{name}", text, labels=[label])
    for value, count in counts.items():
        family.add_metric([value], count)
    return family
