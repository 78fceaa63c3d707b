"""Tests pod records: each pod is recorded once, completely, and with one end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.jobs.history.pod_records import (
    are_recorded,
    exits_of,
    is_of,
    make_pod_records,
)
from controller.store.jobs.progress import PodRecord
from controller.volcano.observed import OVERDUE_SECONDS, Ended, ObservedPod, as_of
from tests.controller.samples import UID, make_job, make_pod

JOB = make_job(replicas=4)
NOW = 100.0


def write(
    runs: dict[str, PodRecord], *present: ObservedPod, departed: tuple[ObservedPod, ...] = (),
    now: float = NOW, looked_until: float = 50.0,
) -> dict[str, PodRecord]:  # fmt: skip
    made = make_pod_records(
        JOB, 1, runs=runs, present=present, departed=departed, now=now, looked_until=looked_until
    )
    return runs | {run.pod_uid: run for run in made}


def ended(code: int = 0, at: float | None = 40.0, **fields: Any) -> ObservedPod:
    how = Ended(exit_code=code, signal=0, reason="Error" if code else "Completed", finished_at=at)
    phase = "Failed" if code else "Succeeded"
    return make_pod(phase=phase, ended=how, started_at=10.0, running=False, **fields)


def test_a_pod_is_recorded_once_and_after_each_change() -> None:
    pod = make_pod(2, started_at=10.0)
    assert not are_recorded({}, [pod], [])
    runs = write({}, pod)
    assert are_recorded(runs, [pod], [])
    (run,) = runs.values()
    assert (run.rank, run.node, run.started_at, run.ended_at) == (2, "n1", 10.0, None)
    over = ended(3, uid=pod.uid)
    assert not are_recorded(runs, [over], [])
    runs = write(runs, over, now=2 * NOW)
    assert are_recorded(runs, [over], [])
    assert (runs[pod.uid].exit_code, runs[pod.uid].ended_at) == (3, 40.0)
    assert runs[pod.uid].seen_at == run.seen_at, "not when it was first seen"


def test_a_removed_pod_ended_at_its_finish_time_or_its_removal() -> None:
    said, silent = ended(uid="a"), make_pod(1, uid="b", started_at=10.0)
    runs = write({}, said, silent)
    assert not are_recorded(runs, [], [said, silent])
    runs = write(runs, departed=(said, silent))
    assert (runs["a"].ended_at, runs["b"].ended_at) == (40.0, NOW)
    assert are_recorded(runs, [], [])
    # A second, much later departure does not change the recorded end.
    assert write(runs, departed=(silent,), now=500.0)["b"].ended_at == NOW


def test_a_pod_removed_unobserved_ended_at_the_last_observation() -> None:
    runs = write({}, make_pod(started_at=10.0))
    assert not are_recorded(runs, [], [])
    (run,) = write(runs, looked_until=70.0).values()
    assert (run.ended_at, run.reason) == (70.0, "Vanished")
    # The end is never before the start.
    (run,) = write(runs, looked_until=0.0).values()
    assert run.ended_at == 10.0


def test_an_evicted_pod_without_status_has_ended() -> None:
    pod = make_pod(phase="Failed", reason="Evicted", message="no disk", running=False)
    runs = write({}, pod)
    (run,) = runs.values()
    assert (run.reason, run.message, run.ended_at) == ("Evicted", "no disk", NOW)
    assert write(runs, pod, now=300.0) == runs


WAITS = make_pod(phase="Pending", started_at=None, running=False)


@pytest.mark.parametrize(
    ("written", "older"),
    [
        (make_pod(started_at=10.0), WAITS),
        (ended(3, uid="pod-0"), WAITS),
        (ended(3, uid="pod-0"), make_pod(started_at=10.0)),
        (ended(3, uid="pod-0"), replace(ended(3, uid="pod-0"), phase="Running")),
        (replace(ended(3, uid="pod-0"), phase="Running"), make_pod(started_at=10.0)),
        (make_pod(phase="Failed", reason="Evicted"), WAITS),
        # As a kubelet refuses it after a restart (before Kubernetes 1.31.1).
        (ended(uid="pod-0"), make_pod(phase="Failed", reason="UnexpectedAdmissionError")),
        (ended(uid="pod-0"), replace(ended(uid="pod-0"), phase="Failed")),
        (ended(3, uid="pod-0"), make_pod(phase="Failed", reason="UnexpectedAdmissionError")),
        # As Kubernetes' taint manager marks it while its node is emptied.
        (ended(uid="pod-0"), replace(ended(uid="pod-0"), disrupted="DeletionByTaintManager")),
    ],
)
def test_a_lagging_watch_does_not_revert_a_record(written: ObservedPod, older: ObservedPod) -> None:
    runs = write({}, written)
    assert are_recorded(runs, [older], [])
    assert write(runs, older, now=300.0) == runs
    (before,) = runs.values()
    # Once the stale watch has caught up, the pod is gone and its newer record remains.
    (run,) = write(runs, departed=(older,), now=300.0).values()
    assert run == replace(before, ended_at=before.ended_at or 300.0)
    assert write(runs, written, now=300.0) == runs


def test_details_of_a_failed_pod_are_kept_when_its_status_loses_them() -> None:
    evicted = make_pod(phase="Failed", reason="Evicted", started_at=None, running=False)
    lost = Ended(exit_code=137, signal=0, reason="ContainerStatusUnknown", finished_at=None)
    unknown = make_pod(phase="Failed", ended=lost, started_at=None, running=False)
    for pod, code in ((evicted, None), (unknown, 137)):
        runs = write(write({}, make_pod(started_at=10.0)), pod)
        assert are_recorded(runs, [pod], [])
        (run,) = runs.values()
        assert (run.phase, run.started_at, run.ended_at, run.exit_code) == (
            "Failed", 10.0, NOW, code,
        )  # fmt: skip
    (run,) = write(write({}, ended(9, uid="pod-0")), evicted).values()
    assert (run.reason, run.exit_code, run.started_at, run.ended_at) == ("Evicted", 9, 10.0, 40.0)


def test_a_pod_without_rank_is_recorded_separately() -> None:
    (run,) = write({}, make_pod(7)).values()
    assert run.rank == -1


def test_exits_show_the_last_run_of_each_rank_with_failures_first() -> None:
    runs = write({}, ended(0, uid="a"), ended(1, uid="b", index=1, name="j-j1-job-1"))
    runs = write(runs, ended(0, uid="a2"), ended(1, uid="b", index=1), departed=(ended(uid="a"),),
                 now=200.0)  # fmt: skip
    assert [(one["rank"], one["exit_code"]) for one in exits_of(list(runs.values()))] == [
        (1, 1), (0, 0),
    ]  # fmt: skip


def test_of_two_pods_of_a_rank_the_removed_one_is_earlier() -> None:
    for old, new in (("a", "b"), ("b", "a")):
        runs = write({}, ended(0, uid=new), departed=(ended(137, uid=old),))
        assert [one["exit_code"] for one in exits_of(list(runs.values()))] == [0]


def test_a_pod_without_owner_reference_still_belongs_to_the_job() -> None:
    orphan = make_pod(owner_uid="")
    assert is_of(orphan, UID, {orphan.uid})
    assert not is_of(orphan, UID, set())
    assert not is_of(make_pod(owner_uid="another"), UID, {orphan.uid})


pods = st.builds(
    make_pod,
    st.integers(0, 3),
    uid=st.sampled_from("abcd"),
    phase=st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
    reason=st.sampled_from(["", "Evicted", "x" * 80]),
    started_at=st.none() | st.just(10.0),
    ended=st.none() | st.builds(
        Ended, exit_code=st.sampled_from([0, 1]), signal=st.just(0), reason=st.just(""),
        finished_at=st.none() | st.just(20.0),
    ),
)  # fmt: skip
sights = st.tuples(
    st.lists(pods, max_size=3, unique_by=lambda pod: pod.uid),
    st.lists(pods, max_size=2, unique_by=lambda pod: pod.uid),
)


@given(st.lists(sights, max_size=4))
def test_any_observation_is_recorded_in_one_step(
    history: list[tuple[list[ObservedPod], list[ObservedPod]]],
) -> None:
    runs: dict[str, PodRecord] = {}
    for present, departed in history:
        gone = [pod for pod in departed if pod.uid not in {one.uid for one in present}]
        runs = write(runs, *present, departed=tuple(gone))
        assert are_recorded(runs, present, gone)
        assert write(runs, *present, departed=tuple(gone)) == runs


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_an_ended_run_has_an_end_time(phase: str) -> None:
    (run,) = write({}, make_pod(phase=phase)).values()
    assert run.ended_at is not None


@pytest.mark.parametrize(
    ("pod", "end"),
    [
        # The pod began at 2, the watch broke at 3, and a list missed the pod at 50.
        (make_pod(unseen_since=3.0), 3.0),
        (make_pod(unseen_since=1.0), 2.0),
        (make_pod(unseen_since=3.0, asked_to_end_at=20.0), 20.0),
        (make_pod(unseen_since=3.0, asked_to_end_at=2.5), 3.0),
        (make_pod(unseen_since=3.0, asked_to_end_at=99.0), 50.0),
        (make_pod(), 50.0),
        (make_pod(asked_to_end_at=20.0, had_time=True), 50.0),
        # Deleted by force, and reported late: the watch was silent meanwhile.
        (make_pod(asked_to_end_at=20.0), 20.0),
        (make_pod(asked_to_end_at=99.0), 50.0),
        (make_pod(asked_to_end_at=1.0), 2.0),
    ],
)
def test_a_pod_removed_during_an_outage_is_not_charged_until_reconnection(
    pod: ObservedPod, end: float
) -> None:
    (run,) = make_pod_records(
        make_job(), 1, runs={}, present=(), departed=[pod], now=50.0, looked_until=0.0
    )
    assert run.ended_at == end
    said = replace(pod, ended=Ended(exit_code=0, signal=0, reason="", finished_at=7.0))
    (run,) = make_pod_records(
        make_job(), 1, runs={}, present=(), departed=[said], now=50.0, looked_until=0.0
    )
    assert run.ended_at == 7.0


def test_a_pod_of_a_lost_node_ends_with_its_grace_period() -> None:
    due: dict[str, Any] = {
        "asked_to_end_at": 20.0,
        "due_to_end_at": 50.0,
        "had_time": True,
        "deleting": True,
    }
    pod = make_pod(started_at=10.0, **due)
    assert as_of(pod, 50.0 + OVERDUE_SECONDS - 1) == pod
    lost = as_of(pod, 50.0 + OVERDUE_SECONDS)
    assert lost == replace(pod, lost=True)
    runs = write({}, lost, now=900.0)
    assert (runs[pod.uid].ended_at, runs[pod.uid].phase) == (50.0, "Running")
    assert are_recorded(runs, [lost], [])
    # This machine's clock is ten minutes behind the API server's.
    assert write({}, lost, now=50.0 + OVERDUE_SECONDS - 600.0)[pod.uid].ended_at == 50.0
    # The pod leaves with its node later, or a new list misses it.
    assert write(runs, departed=(lost,), now=5000.0)[pod.uid].ended_at == 50.0
    assert write({}, departed=(lost,), now=5000.0)[pod.uid].ended_at == 50.0
    # The node was only partitioned, and reports the real end.
    lost_pod = as_of(ended(at=45.0, **due), 900.0)
    assert write(runs, lost_pod, now=900.0)[pod.uid].ended_at == 45.0
    assert are_recorded(write(runs, lost_pod, now=900.0), [lost_pod], [])


def test_only_a_deleted_pod_can_be_lost() -> None:
    for pod in (make_pod(started_at=10.0), ended(), make_pod(phase="Failed", reason="Evicted")):
        assert as_of(pod, 10.0**9) == pod


def test_an_evicted_pod_stays_evicted_for_any_later_status() -> None:
    runs = write({}, make_pod(disrupted="Evict"))
    going = ended(143, deleting=True)
    runs = write(runs, going)
    (run,) = runs.values()
    assert (run.reason, run.exit_code) == ("Evict", 143)
    assert are_recorded(runs, [going], [])
    assert are_recorded(runs, [], [going])
    # The deletion failed, so the pod runs on and ends by itself.
    runs = write(write({}, make_pod(disrupted="Evict")), make_pod())
    assert write(runs, ended(3))[run.pod_uid].reason == "Error"
