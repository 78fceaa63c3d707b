from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controller.jobs.picture import Picture, Shelf
from controller.volcano.observed import ObservedPod
from tests.controller.samples import make_observed, make_pod


def make_shelf() -> tuple[Shelf[ObservedPod], list[str]]:
    changed: list[str] = []
    return Shelf(changed.append), changed


def test_what_did_not_change_wakes_nobody() -> None:
    shelf, changed = make_shelf()
    shelf.put(make_pod())
    shelf.put(make_pod())
    shelf.replace({("jobs", "j-j1-job-0"): make_pod()})
    assert changed == ["j1"]


def test_what_is_not_in_a_new_list_is_gone() -> None:
    shelf, changed = make_shelf()
    shelf.put(make_pod(0))
    shelf.put(make_pod(1))
    shelf.replace({("jobs", "j-j1-job-1"): make_pod(1)})
    assert [pod.index for pod in shelf.of_job("j1")] == [1]
    assert changed == ["j1", "j1", "j1"]


def test_a_late_word_of_the_pod_before_does_not_drop_the_one_after() -> None:
    shelf, _ = make_shelf()
    shelf.put(make_pod(uid="after"))
    shelf.drop(make_pod(uid="before"))
    assert [pod.uid for pod in shelf.of_job("j1")] == ["after"]


def test_a_pod_that_changes_its_job_is_no_longer_the_other_ones() -> None:
    shelf, changed = make_shelf()
    shelf.put(make_pod())
    shelf.put(make_pod(job_id="j2"))
    assert shelf.of_job("j1") == ()
    assert len(shelf.of_job("j2")) == 1
    assert set(changed) == {"j1", "j2"}


def test_a_volcano_job_of_another_name_that_claims_to_be_the_job_is_not_taken_for_it() -> None:
    picture = Picture(None, instance="test", changed=lambda _job: None)  # type: ignore[arg-type]  # no cluster here
    picture.jobs.put(make_observed(name="j-other"))
    assert picture.job("jobs", "j1") is None
    picture.jobs.put(make_observed(job_id="j2"))
    assert picture.job("jobs", "j1") is None
    picture.jobs.put(make_observed())
    assert picture.job("jobs", "j1") == make_observed()
    assert picture.job("elsewhere", "j1") is None


pods = st.builds(
    make_pod,
    st.integers(0, 2),
    uid=st.sampled_from(["a", "b"]),
    job_id=st.sampled_from(["j1", "j2"]),
    ready=st.booleans(),
)
events = st.lists(st.tuples(st.sampled_from(["put", "drop", "replace"]), pods), max_size=30)


@given(events)
def test_both_ways_to_look_always_agree(given_events: list[tuple[str, Any]]) -> None:
    shelf, changed = make_shelf()
    model: dict[tuple[str, str], ObservedPod] = {}
    for kind, pod in given_events:
        key = (pod.namespace, pod.name)
        before = dict(model)
        changed.clear()
        match kind:
            case "put":
                shelf.put(pod)
                model[key] = pod
            case "drop":
                shelf.drop(pod)
                if key in model and model[key].uid == pod.uid:
                    del model[key]
            case _:
                shelf.replace({key: pod})
                model = {key: pod}
        assert {(one.namespace, one.name): one for one in shelf} == model
        for job_id in ("j1", "j2"):
            mine = {k: one for k, one in model.items() if one.job_id == job_id}
            assert {(one.namespace, one.name): one for one in shelf.of_job(job_id)} == mine
            was = {k: one for k, one in before.items() if one.job_id == job_id}
            assert (job_id in changed) == (mine != was)
