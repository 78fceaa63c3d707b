"""Tests why a VolcanoJob waits, from messages of Kubernetes 1.36.2 with Volcano 1.15.1."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.volcano.parsing import read_pod
from controller.volcano.reasons.waiting import (
    LONGEST,
    Explanation,
    explain_group,
    explain_preparing,
    explain_refused,
    group_name,
    has_command,
)

STATUS = (
    '&errors.StatusError{ErrStatus:v1.Status{TypeMeta:v1.TypeMeta{Kind:"", APIVersion:""}, '
    'ListMeta:v1.ListMeta{SelfLink:"", ResourceVersion:"", Continue:"", '
    'RemainingItemCount:(*int64)(nil)}, Status:"Failure", Message:"'
)
QUOTA = (
    r"pods \"a-job-0\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, "
    r"limited: pods=1"
)
SECURITY = (
    r"pods \"a-job-0\" is forbidden: violates PodSecurity \"restricted:latest\": "
    r"allowPrivilegeEscalation != false (container \"main\" must set it)"
)


def event(message: str, reason: str = "FailedCreate", **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": "e"}, "reason": reason, "message": message} | fields


def created(message: str) -> str:
    end = '", Reason:"Forbidden", Details:(*v1.StatusDetails)(0xc000), Code:403}}]'
    return f"Error creating pods: [failed to create pod a-job-0, err: {STATUS}{message}{end}"


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            created(QUOTA),
            "exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1",
        ),
        (
            "(combined from similar events): " + created(SECURITY),
            'violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false '
            '(container "main" must set it)',
        ),
        # Events are truncated at 1 KiB.
        (created(SECURITY).partition(" (container")[0],
         'violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false'),
        (
            'Error creating pods: [failed to create pod a-job-0, err: pods "a-job-0" is forbidden: '
            "exceeded quota: q]",
            "exceeded quota: q",
        ),
        ("something else", "something else"),
    ],
)  # fmt: skip
def test_a_refused_pod_is_reported_with_the_servers_message(message: str, said: str) -> None:
    assert explain_refused([event(message)]) == Explanation("forbidden", said)


@pytest.mark.parametrize(
    ("reason", "led_by"),
    [
        ("PluginError", "Execute plugin when job add failed, err: "),
        ("PVCError", "Failed to create PVC, err: "),
        ("PodGroupError", "Failed to create PodGroup, err: "),
    ],
)
def test_a_refused_object_of_volcano_is_reported_with_the_servers_message(
    reason: str, led_by: str
) -> None:
    # Volcano's plugin svc creates a Service per job, which the owner's quota may refuse.
    said = "exceeded quota: q, requested: services=1, used: services=5, limited: services=5"
    found = explain_refused([event(f'{led_by}services "j-a" is forbidden: {said}', reason)])
    assert found == Explanation("forbidden", said)
    assert found is not None
    assert found.details == {"cause": "quota"}


@pytest.mark.parametrize(
    ("told", "message", "cause"),
    [
        (event(created(r'admission webhook \"a.example\" denied the request: no')), "no",
         "admission"),
        (event(created(r"ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no")), None,
         "admission"),
        (event('Failed to create PodGroup, err: admission webhook "validatepodgroup.volcano.sh" '
               "denied the request: can only submit PodGroup to queue with state `Open`, queue `q` "
               "status is `Closed`. ", "PodGroupError"), None, "queue_closed"),
    ],
)  # fmt: skip
def test_a_denial_without_webhook_name_has_its_cause(
    told: dict[str, Any], message: str | None, cause: str
) -> None:
    found = explain_refused([told])
    assert found is not None
    assert found.details == {"cause": cause}
    assert "denied the request" not in found.message
    assert message in (None, found.message)


@pytest.mark.parametrize("reason", ["PluginError", "PVCError", "PodGroupError"])
def test_a_pod_group_that_exists_rules_out_earlier_reasons(reason: str) -> None:
    # The event of a failed try stays for an hour, whatever the next try has created.
    old = event("failed calling webhook", reason, lastTimestamp="2026-11-22T12:00:00Z")
    pods = event(created(QUOTA), lastTimestamp="2026-11-22T10:00:00Z")
    assert explain_refused([old], has_group=True) is None
    assert explain_refused([old, pods], has_group=True) == explain_refused([pods])


def test_a_refusal_from_before_a_restart_is_ignored() -> None:
    ten, eleven = (datetime(2026, 11, 22, hour, tzinfo=UTC).timestamp() for hour in (10, 11))
    refused = event(created(QUOTA), lastTimestamp="2026-11-22T10:00:00Z")
    assert explain_refused([refused], since=ten + 0.9) == explain_refused([refused])
    assert explain_refused([refused], since=eleven) is None
    assert explain_refused([refused], has_group=True, since=eleven) is None


def test_the_latest_event_is_used() -> None:
    events = [
        event("old", lastTimestamp="2026-11-22T10:00:00Z"),
        event("new", eventTime="2026-11-22T11:00:00.000000Z"),
        event("series", series={"lastObservedTime": "2026-11-22T10:30:00.000000Z"}),
        event("other", reason="PodGroupPending", lastTimestamp="2026-11-22T12:00:00Z"),
        event("", lastTimestamp="2026-11-22T12:00:00Z"),
    ]
    assert explain_refused(events) == Explanation("forbidden", "new")
    assert explain_refused([]) is None


@pytest.mark.parametrize(
    ("status", "events", "found"),
    [
        # Not admitted to the queue: no conditions at all, and the event's type is Normal.
        ({"phase": "Pending"}, ["queue resource quota insufficient: insufficient cpu"],
         ("queued",
          "waiting in the queue: queue resource quota insufficient: insufficient cpu")),
        ({}, ["resource in cluster is overused: overused cpu"],
         ("queued", "waiting in the queue: resource in cluster is overused: overused cpu")),
        ({"phase": "Inqueue"}, ["2/1 tasks in gang unschedulable"],
         ("unschedulable", "2/1 tasks in gang unschedulable")),
        ({"phase": "Inqueue", "conditions": [
            {"type": "Unschedulable", "status": "True", "reason": "NotEnoughResources",
             "message": "1/1 tasks in gang unschedulable: 0/4 nodes are available"}]}, ["old"],
         ("unschedulable", "1/1 tasks in gang unschedulable: 0/4 nodes are available")),
        ({"phase": "Running", "conditions": [{"type": "Scheduled", "status": "True"}]}, [], None),
        ({"phase": "Pending"}, [], None),
        (None, [], None),
    ],
)  # fmt: skip
def test_reasons_for_an_unscheduled_group_are_recognised(
    status: dict[str, Any] | None, events: list[str], found: tuple[str, str] | None
) -> None:
    made = [event(text, "Unschedulable", type="Normal") for text in events]
    group = {"metadata": {}, "status": status}
    assert explain_group(group, made) == (None if found is None else Explanation(*found))


@given(st.text(max_size=300))
def test_any_event_message_is_truncated(text: str) -> None:
    found = explain_refused([event(text + "x" * LONGEST)])
    assert found is not None
    assert 0 < len(found.message) <= LONGEST


def test_an_unschedulable_pod_is_reported() -> None:
    said = "0/4 nodes are unavailable: 4 node(s) didn't match Pod's node affinity/selector."
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    status = {"phase": "Pending", "conditions": [condition | {"message": said}]}
    assert read_pod({"metadata": {}, "status": status}).unscheduled == said
    assert read_pod({"metadata": {}, "status": {"conditions": [condition]}}).unscheduled == (
        "Unschedulable"
    )
    scheduled = {"conditions": [{"type": "PodScheduled", "status": "True"}]}
    assert read_pod({"metadata": {}, "status": scheduled}).unscheduled == ""


def test_a_pod_group_is_named_as_by_volcano() -> None:
    assert group_name("j-a", "123") == "j-a-123"


def test_a_clients_command_is_known_from_volcanos_event() -> None:
    said = "Start to execute command TerminateJob, and clean it up to make sure executed not more"
    event = {"reason": "CommandIssued", "message": f"{said} than once."}
    assert has_command([event], "TerminateJob")
    often = {**event, "message": f"(combined from similar events): {event['message']}"}
    assert has_command([often], "TerminateJob")
    other = {**event, "message": said.replace("TerminateJob", "AbortJob")}
    given_up = {"reason": "ExecuteAction", "message": "Start to execute action TerminateJob "}
    assert not has_command([other, given_up, {"reason": "CommandIssued"}], "TerminateJob")


@pytest.mark.parametrize("gang", ["0/0", "3/0"])
def test_a_group_without_pods_is_not_unschedulable(gang: str) -> None:
    # Seen with 1.15.1, while the API server refuses the pods.
    said = f"{gang} tasks in gang unschedulable: pod group is not ready, 3 minAvailable"
    condition = {"type": "Unschedulable", "status": "True", "message": said}
    status = {"phase": "Inqueue", "conditions": [condition]}
    event = {"reason": "Unschedulable", "message": said}
    assert explain_group({"status": status}, [event]) is None
    tried = {**condition, "message": said.replace("/0 ", "/3 ")}
    found = explain_group({"status": {**status, "conditions": [tried]}}, [event])
    assert found is not None
    assert found.reason == "unschedulable"


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("FailedMount", "volume"),
        ("FailedCreatePodSandBox", "sandbox"),
        ("FailedCreatePodContainer", "sandbox"),
        ("FailedToMakePodDataDirectories", "sandbox"),
        ("FailedPrepareDynamicResources", "device"),
    ],
)
def test_a_pod_that_a_kubelet_cannot_prepare_says_what_it_lacks(reason: str, cause: str) -> None:
    def event(reason: str, minute: int) -> dict[str, Any]:
        at = f"2026-11-22T10:{minute:02}:00Z"
        return {"reason": reason, "message": "it does not work", "lastTimestamp": at}

    found = explain_preparing([event("Pulled", 1), event(reason, 2)])
    assert found is not None
    assert (found.reason, found.details) == ("preparing", {"cause": cause})
    assert found.message == "preparing the container: it does not work"
    assert explain_preparing([event(reason, 2), event("Started", 3)]) is None
