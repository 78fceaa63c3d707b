from __future__ import annotations

import pytest

from controller.resource_metrics.sampler import LEAST_POINTS, MetricHistory, Sample, summed
from controller.resource_metrics.sources import Measured, PodKey, Values

A, B = PodKey("jobs", "j-a-job-0"), PodKey("jobs", "j-b-job-0")


async def test_the_newest_samples_are_kept_in_order() -> None:
    history = MetricHistory(points=3)
    for at in range(5):
        await history.add(at, {A: {"cpu_cores": at / 2}}, forget_before=0)
    assert [(one.at, one.values) for one in history.of(A)] == [
        (2.0, {"cpu_cores": 1.0}),
        (3.0, {"cpu_cores": 1.5}),
        (4.0, {"cpu_cores": 2.0}),
    ]
    assert [one.at for one in history.of(A, since=3.5)] == [4.0]
    assert history.of(B) == []


async def test_unmeasured_values_are_omitted_and_zero_is_kept() -> None:
    history = MetricHistory()
    await history.add(1.0, {A: {"memory_bytes": 0.0}}, forget_before=0)
    assert history.of(A) == [Sample(1.0, {"memory_bytes": 0.0})]


async def test_a_pod_without_samples_is_forgotten_after_a_while() -> None:
    history = MetricHistory()
    await history.add(1.0, {A: {"cpu_cores": 1.0}, B: {"cpu_cores": 1.0}}, forget_before=0)
    await history.add(2.0, {B: {"cpu_cores": 1.0}}, forget_before=1.0)
    assert len(history) == 2
    # A pod that returns at the last moment is the same pod.
    await history.add(9.0, {B: {"cpu_cores": 2.0}}, forget_before=8.0)
    assert (len(history), [one.at for one in history.of(B)]) == (1, [1.0, 2.0, 9.0])


@pytest.mark.parametrize(("pods", "kept"), [(10, 10), (50, 2), (1000, LEAST_POINTS)])
async def test_many_pods_share_the_sample_budget(pods: int, kept: int) -> None:
    history = MetricHistory(points=10, rows=100)
    measured: Measured = {PodKey("jobs", f"j-{i}"): {"cpu_cores": 1.0} for i in range(pods)}
    for at in range(12):
        await history.add(at, measured, forget_before=0)
    assert {len(history.of(key)) for key in measured} == {kept}


async def test_a_source_with_changing_pods_uses_bounded_memory() -> None:
    history = MetricHistory(pods=10)
    usage: Values = {"cpu_cores": 1.0}
    for at in range(5):
        others: Measured = {PodKey("jobs", f"j-{at}-{i}"): usage for i in range(9)}
        others[PodKey("jobs", "j-" + 300 * "x")] = usage
        await history.add(at, {A: usage, **others}, forget_before=0)
        assert len(history) == 10
    assert len(history.of(A)) == 5
    many: Measured = {PodKey("jobs", f"j-many-{i}"): usage for i in range(30)}
    await history.add(5, {A: usage, **many}, forget_before=0)
    assert (len(history), len(history.of(A))) == (10, 6)


def test_pods_are_summed_by_time_and_utilizations_averaged() -> None:
    one = [Sample(1.0, {"cpu_cores": 1.0}), Sample(2.0, {"cpu_cores": 1.5, "gpu_utilization": 1.0})]
    other = [Sample(2.0, {"cpu_cores": 0.5, "gpu_utilization": 0.5, "memory_bytes": 7.0})]
    assert summed([*one, *other]) == [
        Sample(1.0, {"cpu_cores": 1.0}),
        Sample(2.0, {"cpu_cores": 2.0, "gpu_utilization": 0.75, "memory_bytes": 7.0}),
    ]
    assert summed([]) == []
