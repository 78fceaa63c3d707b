from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.jobs.cluster.informer import PODS_READ, Indexer, InformerCache, WatchGap, applied
from controller.kube.errors import KubeError, Unavailable
from controller.kube.watch import Changed, Deleted, Listed, WatchEvent
from controller.volcano.observed import ObservedPod
from tests.controller.samples import make_observed, make_pod, relist


def make_indexer() -> tuple[Indexer[ObservedPod], list[str]]:
    changed: list[str] = []
    return Indexer(changed.append), changed


def test_an_unchanged_object_enqueues_no_job() -> None:
    indexer, changed = make_indexer()
    indexer.put(make_pod())
    indexer.put(make_pod())
    relist(indexer, make_pod())
    assert changed == ["j1"]


def test_an_object_missing_from_a_new_list_is_removed() -> None:
    indexer, changed = make_indexer()
    indexer.put(make_pod(0))
    indexer.put(make_pod(1))
    relist(indexer, make_pod(1))
    assert [pod.index for pod in indexer.of_job("j1")] == [1]
    assert changed == ["j1", "j1", "j1"]


def test_a_late_event_of_an_earlier_pod_keeps_its_successor() -> None:
    indexer, _ = make_indexer()
    indexer.put(make_pod(uid="after"))
    indexer.drop(make_pod(uid="before"))
    assert [pod.uid for pod in indexer.of_job("j1")] == ["after"]


def test_a_pod_whose_job_label_changes_leaves_the_old_index() -> None:
    indexer, changed = make_indexer()
    indexer.put(make_pod())
    indexer.put(make_pod(job_id="j2"))
    assert indexer.of_job("j1") == ()
    assert len(indexer.of_job("j2")) == 1
    assert set(changed) == {"j1", "j2"}


def test_a_volcano_job_of_another_name_with_the_jobs_label_is_ignored() -> None:
    informer = InformerCache(None, instance="test", changed=lambda _job: None)  # type: ignore[arg-type]  # no cluster here
    informer.jobs.put(make_observed(name="j-other"))
    assert informer.job("jobs", "j1") is None
    informer.jobs.put(make_observed(job_id="j2"))
    assert informer.job("jobs", "j1") is None
    informer.jobs.put(make_observed())
    assert informer.job("jobs", "j1") == make_observed()
    assert informer.job("elsewhere", "j1") is None


pods = st.builds(
    make_pod,
    st.integers(0, 2),
    uid=st.sampled_from(["a", "b"]),
    job_id=st.sampled_from(["j1", "j2"]),
    ready=st.booleans(),
)
events = st.lists(st.tuples(st.sampled_from(["put", "drop", "replace"]), pods), max_size=30)


@given(events)
def test_the_indexer_always_agrees_with_a_model(given_events: list[tuple[str, Any]]) -> None:
    indexer, changed = make_indexer()
    model: dict[tuple[str, str], ObservedPod] = {}
    for kind, pod in given_events:
        key = (pod.namespace, pod.name)
        before = dict(model)
        changed.clear()
        match kind:
            case "put":
                indexer.put(pod)
                model[key] = pod
            case "drop":
                indexer.drop(pod)
                if key in model and model[key].uid == pod.uid:
                    del model[key]
            case _:
                relist(indexer, pod)
                model = {key: pod}
        assert {(one.namespace, one.name): one for one in indexer} == model
        for job_id in ("j1", "j2"):
            mine = {k: one for k, one in model.items() if one.job_id == job_id}
            assert {(one.namespace, one.name): one for one in indexer.of_job(job_id)} == mine
            was = {k: one for k, one in before.items() if one.job_id == job_id}
            assert (job_id in changed) == (mine != was)


class Watched:
    """A pod watch with a manual clock that reports its faults."""

    def __init__(self) -> None:
        self.now = 100.0
        self.followed = WatchGap(lambda: self.now)
        self.followed.report(None)

    def after(self, seconds: float, trouble: KubeError | None) -> None:
        self.now += seconds
        self.followed.report(trouble)

    def unseen(self, seconds: float = 0.0, *, listed: bool = False) -> float | None:
        self.now += seconds
        return self.followed.unseen_since(listed=listed)


def silence() -> Unavailable:
    error = Unavailable("the API server did not answer")
    error.__cause__ = TimeoutError()
    return error


def test_during_a_live_watch_an_event_happened_now() -> None:
    watched = Watched()
    assert watched.unseen(600.0) is None
    assert watched.unseen(listed=True) is None


def test_an_object_deleted_during_an_outage_went_after_the_disconnect() -> None:
    watched = Watched()
    watched.after(10.0, Unavailable("cut"))
    for _ in range(5):
        watched.after(9.0, Unavailable("refused"))
    watched.after(2.0, None)
    assert watched.unseen() == 110.0
    assert watched.unseen(0.9) == 110.0, "what it tells first has happened before"
    assert watched.unseen(0.2) is None
    # The watch fails at once: a new list follows after a pause.
    assert watched.unseen(30.0, listed=True) == 110.0
    assert watched.unseen(60.0, listed=True) is None


def test_a_silent_connection_was_live_until_its_last_event() -> None:
    watched = Watched()
    watched.after(10.0, None)
    watched.after(90.0, silence())
    watched.after(1.0, None)
    assert watched.unseen() == 110.0


def test_an_outage_spans_immediately_broken_watches() -> None:
    watched = Watched()
    watched.after(10.0, Unavailable("cut"))
    watched.after(20.0, None)
    watched.after(0.1, Unavailable("cut"))
    watched.after(20.0, None)
    assert watched.unseen() == 110.0
    watched.after(300.0, Unavailable("cut"))
    watched.after(1.0, None)
    assert watched.unseen() == 450.1


def test_a_pod_deleted_unobserved_records_the_start_of_the_outage() -> None:
    now = [100.0]
    informer = InformerCache(None, instance="test", changed=lambda _job: None, clock=lambda: now[0])  # type: ignore[arg-type]  # no cluster here
    for index in range(2):
        informer.pods.put(make_pod(index))
    informer.pods.drop(make_pod(0))
    informer._pods_gap.report(None)
    informer._pods_gap.report(Unavailable("cut"))
    now[0] = 147.6
    informer._pods_gap.report(None)
    relist(informer.pods)
    seen, unseen = informer.pods.departed_of("j1")
    assert (seen.unseen_since, unseen.unseen_since) == (None, 100.0)


def test_the_observation_time_stops_while_the_watch_is_broken() -> None:
    watched = Watched()
    watched.now += 5.0
    assert watched.followed.looked_until == 105.0
    watched.after(5.0, Unavailable("cut"))
    watched.after(20.0, Unavailable("refused"))
    assert watched.followed.looked_until == 110.0
    watched.after(5.0, None)
    watched.now += 1.0
    assert watched.followed.looked_until == 136.0


def make_informer() -> InformerCache:
    return InformerCache(None, instance="test", changed=lambda _job: None)  # type: ignore[arg-type]  # no cluster here


@pytest.mark.parametrize("time_given", [True, False])
def test_a_pod_with_grace_period_keeps_it_when_removed(time_given: bool) -> None:
    informer = make_informer()
    informer.pods.put(make_pod(0))
    if time_given:
        informer.pods.put(make_pod(0, asked_to_end_at=5.0, had_time=True))
    removed = make_pod(0, asked_to_end_at=5.0)
    informer.pods.put(removed)
    informer.pods.drop(removed)
    (gone,) = informer.pods.departed_of("j1")
    assert gone.had_time is time_given


def test_a_pod_replaced_under_its_name_in_a_list_went_unobserved() -> None:
    watched, informer = Watched(), make_informer()
    informer._pods_gap = watched.followed
    informer.pods.put(make_pod(0, uid="first"))
    watched.after(10.0, Unavailable("cut"))
    watched.after(20.0, None)
    watched.now += 10.0  # 410, then a pause
    second = make_pod(0, uid="second")
    relist(informer.pods, second)
    (gone,) = informer.pods.departed_of("j1")
    assert (gone.uid, gone.unseen_since) == ("first", 110.0)


def given_pod(name: str, **metadata: Any) -> dict[str, Any]:
    labels = {"fumarole.dev/job": "j1", "fumarole.dev/instance": "test"}
    return {
        "metadata": {"namespace": "jobs", "name": name, "uid": name, "labels": labels} | metadata
    }


def follow(indexer: Indexer[ObservedPod], *events: WatchEvent) -> set[str]:
    for event in events:
        for _ in applied(event, indexer, PODS_READ):
            pass
    return {pod.name for pod in indexer}


def test_only_objects_missing_from_all_pages_are_removed() -> None:
    indexer, _ = make_indexer()
    a, b, c, d = (given_pod(name) for name in "abcd")
    assert follow(indexer, Listed((a, b, c))) == {"a", "b", "c"}
    assert follow(indexer, Listed((a,), last=False)) == {"a", "b", "c"}
    assert follow(indexer, Listed((d,), first=False, last=False)) == {"a", "b", "c", "d"}
    assert follow(indexer, Listed((), first=False)) == {"a", "d"}


def test_a_restarted_list_removes_no_object_before_it_is_complete() -> None:
    indexer, _ = make_indexer()
    a, b, c = (given_pod(name) for name in "abc")
    assert follow(indexer, Listed((a, b, c))) == {"a", "b", "c"}
    # 410 Gone between two pages
    assert follow(indexer, Listed((a,), last=False), Listed((b,), last=False)) == {"a", "b", "c"}
    assert follow(indexer, Listed((c,), first=False)) == {"b", "c"}
    assert follow(indexer, Deleted(b)) == {"c"}


@pytest.mark.parametrize("status", [{"phase": ["Running"]}, {"conditions": ["Ready"]}])
def test_an_unreadable_object_keeps_its_last_state(status: Any) -> None:
    indexer, changed = make_indexer()
    odd = given_pod("b") | {"status": status}
    assert follow(indexer, Listed((given_pod("a"), given_pod("b")))) == {"a", "b"}
    changed.clear()
    assert follow(indexer, Changed(odd), Listed((odd, given_pod("a")))) == {"a", "b"}
    assert changed == []
    assert follow(indexer, Deleted(odd)) == {"a"}


@pytest.mark.parametrize("deleting", [True, False])
def test_a_preemption_is_remembered_until_the_pod_is_removed(deleting: bool) -> None:
    informer = InformerCache(None, instance="test", changed=lambda _job: None)  # type: ignore[arg-type]  # no cluster here
    informer.pods.put(make_pod(disrupted="Evict", disruption="because of preempt"))
    informer.pods.put(make_pod(deleting=deleting, running=False))
    (pod,) = informer.pods.of_job("j1")
    assert (pod.disrupted, pod.disruption) == (
        ("Evict", "because of preempt") if deleting else ("", "")
    )
    informer.pods.drop(make_pod(deleting=deleting, running=False))
    (gone,) = informer.pods.departed_of("j1")
    assert gone.was_evicted is deleting
