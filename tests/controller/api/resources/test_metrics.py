"""Tests resource metrics of a job's ranks, as far as samples exist."""

from __future__ import annotations

import pytest

from controller.api.resources import metrics
from controller.resource_metrics.sources import METRICS, Measured, PodKey, Values
from tests.controller.api.conftest import Api
from tests.controller.api.resources.test_details import get, ran, run

PATH = "/v1/jobs/j1/metrics"
PODS = [PodKey("jobs", f"j-j1-job-{index}") for index in range(4)]


async def sampled(api: Api, at: float, measured: Measured) -> None:
    api.metrics.interval = 30.0
    api.metrics.missing = {"gpu_utilization": "not_configured", "gpu_memory_bytes": "forbidden"}
    await api.metrics.history.add(at, measured, forget_before=0)
    api.metrics.sampled_at = at


async def test_each_rank_shows_current_values_and_a_series_or_a_reason(api: Api) -> None:
    over = run(1, exit_code=0, ended_at=30.0, phase="Succeeded")
    await ran(api, run(0), over, run(2), state="RUNNING")
    usage: Values = {"cpu_cores": 0.12345678, "memory_bytes": 1024.4}
    usage["network_receive_bytes_per_second"] = 7.0
    await sampled(api, 20.0, {PODS[0]: {"cpu_cores": 1.0}, PODS[1]: {"cpu_cores": 0.5}})
    await sampled(api, 50.0, {PODS[0]: usage})
    shown = await get(api, PATH)
    assert (shown["interval_seconds"], shown["sampled_at"]) == (30.0, 50.0)
    first, second, third, fourth = shown["items"]
    assert (first["rank"], first["task"], first["pod"]) == (0, "job", "j-j1-job-0")
    assert first["values"] == {
        "cpu_cores": 0.1235, "memory_bytes": 1024, "network_receive_bytes_per_second": 7,
        "network_transmit_bytes_per_second": None, "gpu_utilization": None,
        "gpu_memory_bytes": None,
    }  # fmt: skip
    assert first["missing"] == {
        "network_transmit_bytes_per_second": "not_measured",
        "gpu_utilization": "not_configured",
        "gpu_memory_bytes": "forbidden",
    }
    assert first["series"]["at"] == [20.0, 50.0]
    assert first["series"]["cpu_cores"] == [1.0, 0.1235]
    assert first["series"]["memory_bytes"] == [None, 1024]
    # The rank has ended: its samples remain, but it has no current values.
    assert second["series"]["cpu_cores"] == [0.5]
    assert set(second["values"].values()) == {None}
    assert set(second["missing"].values()) == {"not_running"}
    # The rank runs, but the metrics source has no sample of it yet.
    assert third["missing"]["cpu_cores"] == "not_measured"
    assert (fourth["pod"], fourth["missing"]["cpu_cores"]) == (None, "not_running")
    assert all(set(one["missing"]) | set(one["values"]) == set(METRICS) for one in shown["items"])
    assert shown["values"]["cpu_cores"] == 0.1235
    assert shown["series"]["cpu_cores"] == [1.5, 0.1235]
    assert shown["missing"] == first["missing"]


async def test_a_value_missing_in_the_last_sample_is_not_current(api: Api) -> None:
    await ran(api, run(0), run(1), state="RUNNING")
    await sampled(api, 20.0, {PODS[0]: {"cpu_cores": 1.0}, PODS[1]: {"cpu_cores": 1.0}})
    await sampled(api, 50.0, {PODS[1]: {"cpu_cores": 2.0}})
    shown = await get(api, PATH)
    first = shown["items"][0]
    assert (first["values"]["cpu_cores"], first["missing"]["cpu_cores"]) == (None, "not_measured")
    assert first["series"]["at"] == [20.0]
    assert shown["values"]["cpu_cores"] == 2.0


async def test_samples_of_an_earlier_pod_with_the_same_name_are_not_used(api: Api) -> None:
    await ran(api, run(0, started_at=40.0), state="RUNNING")
    await sampled(api, 20.0, {PODS[0]: {"cpu_cores": 8.0}})
    await sampled(api, 50.0, {PODS[0]: {"cpu_cores": 1.0}})
    (first, *_) = (await get(api, PATH))["items"]
    assert first["series"]["cpu_cores"] == [1.0]


async def test_rank_and_number_of_points_can_be_selected(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ran(api, run(0), run(1), state="RUNNING")
    for at in range(20, 30):
        await sampled(api, at, {pod: {"cpu_cores": 1.0} for pod in PODS[:2]})
    shown = await get(api, f"{PATH}?rank=1&points=3")
    assert [one["rank"] for one in shown["items"]] == [1]
    assert shown["items"][0]["series"]["at"] == [27.0, 28.0, 29.0]
    assert shown["values"]["cpu_cores"] == 1.0
    none = await get(api, f"{PATH}?points=0")
    assert (none["values"]["cpu_cores"], none["series"]["at"]) == (2.0, [])
    # A job with many ranks returns fewer samples of each rank.
    monkeypatch.setattr(metrics, "MOST_SAMPLES", 8)
    assert len((await get(api, PATH))["items"][0]["series"]["at"]) == 2
    for query, status in (("rank=4", 404), ("rank=-1", 422), ("points=61", 422), ("of=a", 422)):
        assert (await api.client.get(f"{PATH}?{query}")).status == status
    assert (await api.client.get("/v1/jobs/never-was/metrics")).status == 404


async def test_without_sampling_the_reason_is_shown(api: Api) -> None:
    await ran(api, run(0), state="RUNNING")
    shown = await get(api, PATH)
    assert (shown["interval_seconds"], shown["sampled_at"]) == (0.0, None)
    assert shown["missing"] == dict.fromkeys(METRICS, "off")
