"""The data path's metrics: plain integers on the hot path, collected when Prometheus scrapes."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gateway.relay.turns import TURN_SECONDS, Turns

KINDS: Final = ("http", "websocket", "vnc", "terminal", "page")
"""What a downstream connection can carry; a page is one of the gateway's own."""
FIRST_BYTE_SECONDS: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0
)  # fmt: skip
"""Bounds of the histogram: from an app on the same node to one that computes first."""


@dataclass(slots=True, eq=False)
class Traffic:
    """Bytes between browsers and the gateway for one kind of connection, in both directions.

    Updated with each read and write. That costs 50 ns (``benchmarks/metering.py``) of the 10 µs of
    a read. Updated at the end of a connection, a tunnel open for a day would show a day late.
    """

    up: int = 0
    down: int = 0


class Meters(Collector):
    """Counts what happens; register it with the process' registry.

    Labels come from closed sets: status classes, refusal codes, close codes, kinds.
    """

    def __init__(self) -> None:
        self.answers = [0] * 6
        """Apps' responses by class of status."""
        self.own_answers = [0] * 6
        """The gateway's own responses by class of status."""
        self.refusals: Counter[str] = Counter()
        # An alert fires on the first token_unsure: a counter that starts at 1 shows no increase.
        self.opens: Counter[str] = Counter({"opened": 0, "bus_lost": 0, "token_unsure": 0})
        self.upstream_failures: Counter[str] = Counter()
        self.ends: Counter[int] = Counter()
        self.http, self.page = Traffic(), Traffic()
        self.websocket, self.vnc, self.terminal = Traffic(), Traffic(), Traffic()
        self.tunnels = 0
        self.dials = 0
        self.reused = 0
        self.retries = 0
        self.connections = 0
        self.dropped = 0
        self.failed_arrivals = 0
        self.accept_pauses = 0
        self._first_bytes = [0] * (len(FIRST_BYTE_SECONDS) + 1)
        self._first_byte_seconds = 0.0
        self._reads: list[tuple[str, str, Callable[[], float], bool]] = []
        self.open_by_kind: Callable[[], Mapping[str, int]] = dict
        """Returns the open connections by kind."""
        self.turns: Turns | None = None
        """The source of turn durations."""

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Register *read* as the value of a gauge."""
        self._reads.append((name, text, read, False))

    def counter(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Register *read*, which never decreases, as the value of a counter."""
        self._reads.append((name, text, read, True))

    def first_byte(self, seconds: float) -> None:
        """Record the time from a request to the head of its app's response."""
        self._first_bytes[bisect_left(FIRST_BYTE_SECONDS, seconds)] += 1
        self._first_byte_seconds += seconds

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        yield self._requests()
        yield _by("refusals", "The gateway's own refusals by code.", "code", self.refusals)
        yield _by("opens", "Attempts to open a session by result.", "result", self.opens)
        yield _by(
            "upstream_failures", "Failures of apps by reason.", "reason", self.upstream_failures
        )
        ends = Counter({str(code): count for code, count in self.ends.items()})
        yield _by("ends", "WebSockets that the gateway ended by close code.", "close_code", ends)
        yield self._bytes()
        yield from self._histograms()
        yield self._connections()
        for name, text, count in (
            ("tunnels", "WebSockets relayed.", self.tunnels),
            ("dials", "Connections made to apps for requests and tunnels.", self.dials),
            ("reused", "Requests sent on pooled connections.", self.reused),
            ("retries", "Requests sent again because a pooled connection was stale.", self.retries),
            ("connections", "Connections accepted.", self.connections),
            ("dropped", "Connections closed without a response, far over a limit.", self.dropped),
            ("failed_arrivals", "Connections that failed before a request.", self.failed_arrivals),
            ("accept_pauses", "Pauses without free descriptors.", self.accept_pauses),
        ):
            yield CounterMetricFamily(f"fumarole_gateway_{name}", text, value=count)
        for name, text, read, rises in self._reads:
            family = CounterMetricFamily if rises else GaugeMetricFamily
            yield family(f"fumarole_gateway_{name}", text, value=read())

    def _requests(self) -> Metric:
        family = CounterMetricFamily(
            "fumarole_gateway_requests",
            "Responses by origin and class of status.",
            labels=["from", "class"],
        )
        for who, counts in (("app", self.answers), ("gateway", self.own_answers)):
            for hundreds, count in enumerate(counts[1:], 1):
                family.add_metric([who, f"{hundreds}xx"], count)
        return family

    def _bytes(self) -> Metric:
        family = CounterMetricFamily(
            "fumarole_gateway_bytes",
            "Between browsers and the gateway, without TLS.",
            labels=["kind", "direction"],
        )
        for kind in KINDS:
            traffic: Traffic = getattr(self, kind)
            family.add_metric([kind, "up"], traffic.up)
            family.add_metric([kind, "down"], traffic.down)
        return family

    def _histograms(self) -> Iterator[Metric]:
        yield _histogram(
            "first_byte_seconds",
            "From a request to the head of its app's response, connecting included.",
            (FIRST_BYTE_SECONDS, self._first_bytes, self._first_byte_seconds),
        )
        if self.turns is not None:
            yield _histogram(
                "turn_seconds",
                "Time of one connection in one turn of the loop.",
                (TURN_SECONDS, self.turns.counts, self.turns.seconds),
            )

    def _connections(self) -> Metric:
        family = GaugeMetricFamily(
            "fumarole_gateway_open_connections", "Downstream connections by kind.", labels=["kind"]
        )
        counts = self.open_by_kind()
        for kind in KINDS:
            family.add_metric([kind], counts.get(kind, 0))
        return family


def _by(name: str, text: str, label: str, counts: Counter[str]) -> CounterMetricFamily:
    family = CounterMetricFamily(f"fumarole_gateway_{name}", text, labels=[label])
    for value, count in counts.items():
        family.add_metric([value], count)
    return family


def _histogram(
    name: str, text: str, measured: tuple[Sequence[float], Sequence[int], float]
) -> HistogramMetricFamily:
    bounds, counts, sum_value = measured
    buckets, total = [], 0
    for bound, count in zip((*bounds, inf), counts, strict=True):
        total += count
        buckets.append(("+Inf" if bound == inf else str(bound), float(total)))
    return HistogramMetricFamily(
        f"fumarole_gateway_{name}", text, buckets=buckets, sum_value=sum_value
    )
