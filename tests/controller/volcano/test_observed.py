from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.volcano.observed import (
    PROGRESS,
    Ended,
    Progress,
    progress_of,
)
from controller.volcano.parsing import (
    read_job,
    read_pod,
    read_time,
)


def test_the_first_event_of_a_volcano_job_has_no_status() -> None:
    job = read_job({"metadata": {"name": "j-1", "namespace": "n", "uid": "u", "labels": {}}})
    assert (job.phase, progress_of(job.phase)) == ("", Progress.WAITING)


def test_an_unknown_phase_neither_starts_nor_ends_a_job() -> None:
    assert progress_of("Pondering") is Progress.WAITING


def test_every_phase_that_volcano_documents_has_a_meaning() -> None:
    documented = (
        "Pending Running Restarting Aborting Aborted Completing Completed Terminating "
        "Terminated Failed"
    )
    assert set(documented.split()) == set(PROGRESS) - {""}


def pod(**status: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "j-a-1-job-12",
            "namespace": "n",
            "uid": "u",
            "labels": {
                "fumarole.dev/job": "a-1",
                "fumarole.dev/instance": "i",
                "volcano.sh/task-spec": "job",
            },
            "ownerReferences": [
                {"kind": "Other", "uid": "x"},
                {"kind": "Job", "uid": "owner", "controller": True},
            ],
        },
        "spec": {"nodeName": "n1"},
        "status": status,
    }


def container(**state: Any) -> list[dict[str, Any]]:
    return [{"name": "other", "state": {"running": {}}}, {"name": "job", "state": state}]


def test_a_pod_yields_its_job_and_replica() -> None:
    seen = read_pod(pod(phase="Pending"))
    assert (seen.job_id, seen.task, seen.index, seen.owner_uid) == ("a-1", "job", 12, "owner")
    assert (seen.ready, seen.running, seen.deleting, seen.ended) == (False, False, False, None)


@pytest.mark.parametrize("last", ["job", "²", "1_0", "9" * 20, "9" * 5000])
def test_a_pod_name_without_index_is_no_replica(last: str) -> None:
    given = pod()
    given["metadata"]["name"] = f"j-a-{last}"
    assert read_pod(given).index == -1


def test_a_pod_without_labels_is_identified_by_owner_and_annotation() -> None:
    given = pod(phase="Running")
    given["metadata"]["labels"] = {"fumarole.dev/instance": "i"}
    given["metadata"]["annotations"] = {"volcano.sh/task-spec": "job"}
    given["metadata"]["ownerReferences"][1]["name"] = "j-a-1"
    seen = read_pod(given)
    assert (seen.job_id, seen.task, seen.index) == ("a-1", "job", 12)
    for name, kind in (("a-1", "Job"), ("j-a-1", "ReplicaSet"), (None, "Job")):
        given["metadata"]["ownerReferences"][1] |= {"name": name, "kind": kind}
        assert read_pod(given).job_id == ""


def test_the_queue_of_a_volcano_job_is_read_from_its_spec() -> None:
    given = {"metadata": {"name": "j-1", "namespace": "n", "uid": "u"}, "spec": {"queue": "team"}}
    assert read_job(given).queue == "team"
    assert read_job(given | {"spec": None}).queue == ""


def test_injected_sidecars_are_distinguished() -> None:
    seen = read_pod(pod(containerStatuses=container(terminated={"exitCode": 0})))
    assert (seen.others_running, seen.other_failed) == (("other",), None)
    failed = {"name": "proxy", "state": {"terminated": {"exitCode": 5}}}
    statuses = [*container(terminated={"exitCode": 9}), failed, {"name": "new", "state": None}]
    seen = read_pod(pod(containerStatuses=statuses))
    assert (seen.others_running, seen.other_failed) == (("other",), ("proxy", 5))


@pytest.mark.parametrize(("phase", "code"), [("Succeeded", 0), ("Failed", 3)])
def test_a_lost_sidecar_does_not_hide_how_the_program_ended(phase: str, code: int) -> None:
    lost = {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}}
    sidecar = [{"name": "mesh", "state": lost}]
    ended = container(terminated={"exitCode": code, "reason": "Completed"})
    status = {"phase": phase, "initContainerStatuses": sidecar}
    seen = read_pod(pod(**status, containerStatuses=ended))
    assert (seen.reason, seen.was_evicted) == ("", False)
    # While the program runs, the kubelet starts the sidecar again.
    seen = read_pod(pod(phase="Running", initContainerStatuses=sidecar,
                        containerStatuses=container(running={})))  # fmt: skip
    assert (seen.reason, seen.was_evicted) == ("", False)
    for state in (lost, {"waiting": {"reason": "PodInitializing"}}):
        seen = read_pod(pod(**status, containerStatuses=[{"name": "job", "state": state}]))
        assert (seen.reason, seen.was_evicted) == ("ContainerLost", True)


@pytest.mark.parametrize(
    "state",
    [
        {"running": {"startedAt": "2026-11-22T10:00:00Z"}},
        {"terminated": {"exitCode": 137}},
        {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}},
    ],
)
def test_ephemeral_containers_are_ignored(state: dict[str, Any]) -> None:
    debugger = [{"name": "debugger-x7k2p", "image": "nope", "ready": False, "state": state}]
    for statuses in (container(running={}), container(terminated={"exitCode": 0})):
        plain = pod(containerStatuses=statuses)
        debugged = pod(containerStatuses=statuses, ephemeralContainerStatuses=debugger)
        assert read_pod(debugged) == read_pod(plain)


def test_a_waiting_pod_states_its_reason() -> None:
    seen = read_pod(pod(containerStatuses=container(waiting={"reason": "ImagePullBackOff"})))
    assert seen.waiting == "ImagePullBackOff"


@pytest.mark.parametrize("ready", [True, False])
def test_readiness_of_the_own_container_is_separate_from_the_pods(
    ready: bool,
) -> None:
    # The node controller changes the pod's condition, and leaves the containers' conditions.
    statuses = [
        {"name": "another", "ready": not ready},
        {"name": "job", "ready": ready, "state": {"running": {}}},
    ]
    seen = read_pod(pod(containerStatuses=statuses, conditions=[]))
    assert (seen.answers, seen.ready) == (ready, False)


def test_pod_readiness_is_the_ready_condition() -> None:
    conditions = [{"type": "ContainersReady", "status": "True"}]
    assert not read_pod(pod(conditions=conditions)).ready
    assert read_pod(pod(conditions=[*conditions, {"type": "Ready", "status": "True"}])).ready
    assert not read_pod(pod(conditions=[{"type": "Ready", "status": "Unknown"}])).ready


def test_an_unready_pod_with_ready_containers_is_on_an_unready_node() -> None:
    """As ``MarkPodsNotReady`` of Kubernetes' node lifecycle controller leaves it."""
    containers = {"type": "ContainersReady", "status": "True"}
    not_ready = {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    marked = pod(conditions=[containers, not_ready])
    assert read_pod(marked).node_unready_since == 1767225600.0
    for conditions in (
        [containers, not_ready | {"status": "True"}],
        [containers | {"status": "False"}, not_ready],
        [containers, not_ready | {"reason": "Evict"}],
        [not_ready],
        [containers],
    ):
        assert read_pod(pod(conditions=conditions)).node_unready_since is None
    gated = {**marked, "spec": {**marked.get("spec", {}), "readinessGates": [{}]}}
    assert read_pod(gated).node_unready_since is None


def test_the_exit_is_read_from_the_jobs_own_container() -> None:
    state = {"exitCode": 137, "signal": 9, "reason": "OOMKilled",
             "finishedAt": "2026-01-01T00:00:00Z"}  # fmt: skip
    seen = read_pod(pod(phase="Failed", containerStatuses=container(terminated=state)))
    assert seen.ended == Ended(
        exit_code=137, signal=9, reason="OOMKilled", finished_at=1767225600.0
    )


@pytest.mark.parametrize(
    ("finished", "disrupted"),
    [("10:00:00", ""), ("10:05:10", "TerminationByKubelet"), ("10:05:50", "TerminationByKubelet"),
     # The clocks of nodes and servers differ a little.
     ("10:04:50", "TerminationByKubelet"), (None, "TerminationByKubelet")],
)  # fmt: skip
def test_a_pod_that_had_ended_when_its_node_was_drained_was_not_disrupted(
    finished: str | None, disrupted: str
) -> None:
    at = finished and f"2026-11-21T{finished}Z"
    taken = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet",
             "lastTransitionTime": "2026-11-21T10:05:10Z"}  # fmt: skip
    ended = container(terminated={"exitCode": 0, "finishedAt": at})
    seen = read_pod(pod(phase="Succeeded", containerStatuses=ended, conditions=[taken]))
    assert (seen.disrupted, seen.was_evicted) == (disrupted, bool(disrupted))


@pytest.mark.parametrize("text", [None, "", "now", 3, "2026-13-01T00:00:00Z"])
def test_a_malformed_time_is_read_as_none(text: object) -> None:
    assert read_time(text) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "metadata": st.dictionaries(
                st.sampled_from(["name", "namespace", "uid"]), st.text(max_size=9)
            ),
            "status": st.fixed_dictionaries(
                {}, optional={"phase": st.none() | st.text(), "containerStatuses": st.none()}
            ),
            "spec": st.none(),
        },
    )
)
def test_an_object_with_missing_fields_is_still_read(given_object: dict[str, Any]) -> None:
    metadata = given_object.get("metadata", {})
    for read in (read_pod(given_object), read_job(given_object)):
        for name in ("namespace", "name", "uid"):
            assert getattr(read, name) == metadata.get(name, "")


@pytest.mark.parametrize(
    ("phase", "before", "ran"),
    [
        # Volcano 1.15.1 lists each phase once, the last one last.
        ("Completed", ["Pending", "Running", "Completed"], True),
        ("Failed", ["Pending", "Running", "Failed"], True),
        ("Failed", ["Pending", "Running", "Restarting", "Failed"], False),
        ("Failed", ["Pending", "Running", "Aborting", "Aborted", "Restarting", "Failed"], False),
        ("Completed", ["Pending", "Completing", "Completed"], False),
        ("Aborted", ["Pending", "Running", "Aborting", "Aborted"], True),
        ("Running", ["Restarting", "Pending", "Running"], True),
        ("Running", [], True),
        ("Pending", ["Running", "Pending"], False),
        ("Completed", [], False),
        ("", [], False),
        # Before 1.15.1, Volcano lists each change.
        (
            "Completed",
            ["Pending", "Running", "Restarting", "Pending", "Running", "Completed"],
            True,
        ),
    ],
)
def test_whether_a_job_ran_is_read_from_its_conditions(
    phase: str, before: list[str], ran: bool
) -> None:
    status = {"state": {"phase": phase}, "conditions": [{"status": one} for one in before]}
    assert read_job({"metadata": {}, "status": status}).ran is ran


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ("1;3;", (0, 2)),
        ("1;3", (0,)),
        ("", ()),
        (None, ()),
        # A kubelet keeps the end of a long message: the first number may have been 12 or 1002.
        ("2;" + "1000;" * 818 + "100;", (999, 99)),
    ],
)
def test_truncated_mount_point_numbers_are_ignored(
    message: str | None, found: tuple[int, ...]
) -> None:
    looked = {"exitCode": 0, "message": message}
    given = [{"name": "fumarole-files", "state": {"terminated": looked}}]
    seen = read_pod(pod(initContainerStatuses=given)).missing_mount_points
    assert tuple(dict.fromkeys(seen)) == found


@pytest.mark.parametrize(
    ("terminated", "said"),
    [
        ({"exitCode": 1, "reason": "Error"}, "it ended with exit code 1"),
        ({"exitCode": 1}, "it ended with exit code 1"),
        ({"exitCode": 137, "reason": "OOMKilled"}, "it ended with exit code 137 (OOMKilled)"),
        ({"exitCode": 1, "reason": "Error", "message": "no such folder\n"}, "no such folder"),
    ],
)
def test_the_reason_of_an_unprepared_pod_comes_from_container_or_kubelet(
    terminated: dict[str, Any], said: str
) -> None:
    given = [{"name": "fumarole-data", "state": {"terminated": terminated}}]
    assert read_pod(pod(initContainerStatuses=given)).unprepared == ("fumarole-data", said)
