from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from controller.resource_metrics.sampler import REFUSED_SECONDS, MetricSampler
from controller.resource_metrics.sources import (
    METRICS,
    Measured,
    Metric,
    Missing,
    PodKey,
    SourceFailed,
)
from tests.clock import Clock

POD = PodKey("jobs", "j-a-job-0")
NETWORK: tuple[Metric, ...] = ("network_receive_bytes_per_second",)


@dataclass
class Source:
    name: str = "one"
    metrics: tuple[Metric, ...] = ("cpu_cores",)
    fails: Exception | None = None
    hangs: bool = False
    asked: int = 0
    without: dict[Metric, Missing] = field(default_factory=dict)

    async def read(self, into: Measured) -> Mapping[Metric, Missing]:
        self.asked += 1
        into[POD] = dict.fromkeys(self.metrics, 1.0)
        if self.hangs:
            await asyncio.Event().wait()
        if self.fails is not None:
            raise self.fails
        return self.without


@pytest.fixture
def counted() -> list[tuple[str, str]]:
    return []


def make(
    clock: Clock, counted: list[tuple[str, str]], *sources: Source, interval: float = 30.0
) -> MetricSampler:
    return MetricSampler(
        sources,
        interval=interval,
        clock=clock,
        monotonic=clock,
        count=lambda source, result: counted.append((source, result)),
    )


async def test_values_of_all_sources_form_one_sample(
    clock: Clock, counted: list[tuple[str, str]]
) -> None:
    sampler = make(clock, counted, Source(), Source("two", NETWORK))
    assert (sampler.missing["cpu_cores"], sampler.missing["memory_bytes"]) == (
        "starting", "not_configured",
    )  # fmt: skip
    await sampler.sample()
    (sample,) = sampler.history.of(POD)
    assert (sample.at, sample.values) == (clock.now, {"cpu_cores": 1.0, NETWORK[0]: 1.0})
    assert sampler.missing.keys() == set(METRICS) - {"cpu_cores", *NETWORK}
    assert counted == [("one", "ok"), ("two", "ok")]


@pytest.mark.parametrize(
    ("fails", "reason"),
    [
        (SourceFailed("unavailable", "away"), "unavailable"),
        (SourceFailed("forbidden", "no"), "forbidden"),
        (RuntimeError("what nobody expects"), "unavailable"),
    ],
)
async def test_a_failing_source_loses_only_its_own_values(
    clock: Clock, counted: list[tuple[str, str]], fails: Exception, reason: str
) -> None:
    bad, good = Source(fails=fails), Source("two", NETWORK)
    sampler = make(clock, counted, bad, good)
    await sampler.sample()
    assert sampler.missing["cpu_cores"] == reason
    assert [one.values for one in sampler.history.of(POD)] == [{NETWORK[0]: 1.0}]
    assert counted == [("one", reason), ("two", "ok")]
    # The source is used again, after a pause if it had refused.
    bad.fails = None
    clock.now += REFUSED_SECONDS
    await sampler.sample()
    assert "cpu_cores" not in sampler.missing


async def test_a_refusing_source_is_paused_and_an_unavailable_one_retried(
    clock: Clock, counted: list[tuple[str, str]]
) -> None:
    refuses = Source(fails=SourceFailed("not_installed", "no such API"))
    away = Source("two", NETWORK, fails=SourceFailed("unavailable", "503"))
    sampler = make(clock, counted, refuses, away)
    for _ in range(3):
        clock.now += 30
        await sampler.sample()
    assert (refuses.asked, away.asked) == (1, 3)
    assert sampler.missing["cpu_cores"] == "not_installed"
    clock.now += REFUSED_SECONDS
    await sampler.sample()
    assert refuses.asked == 2


async def test_an_unresponsive_source_times_out(
    clock: Clock, counted: list[tuple[str, str]]
) -> None:
    sampler = make(clock, counted, Source(hangs=True), Source("two", NETWORK), interval=0.05)
    await sampler.sample()
    assert counted == [("two", "ok"), ("one", "unavailable")]
    assert sampler.missing["cpu_cores"] == "unavailable"


async def test_a_metric_missing_in_a_source_is_omitted_alone(
    clock: Clock, counted: list[tuple[str, str]]
) -> None:
    sampler = make(clock, counted, Source(without={"memory_bytes": "unavailable"}))
    await sampler.sample()
    assert sampler.missing["memory_bytes"] == "unavailable"
    assert "cpu_cores" not in sampler.missing


async def test_sampling_runs_until_cancelled(clock: Clock, counted: list[tuple[str, str]]) -> None:
    source = Source(fails=SourceFailed("unavailable", "away"))
    task = asyncio.create_task(make(clock, counted, source, interval=0.01).run())
    async with asyncio.timeout(30):
        while source.asked < 3:
            await asyncio.sleep(0.01)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
