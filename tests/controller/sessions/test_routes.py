from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.jobs.history.pod_records import pod_at
from controller.sessions.routes import Reach, choose_hub, may_have_shell, route_of, service_at
from controller.store.instance import Hub
from controller.store.sessions.session_rows import Session
from shared.routes.route import Target
from tests.controller.samples import UID, make_job, make_pod, make_record, make_service
from tests.shared.samples import SID, make_sid

RECORD = make_record(uid=UID, state="RUNNING", reason=None, message=None)
HUB = Hub(id="hub-1", host="10.9.0.1", port=8082)


def session(**fields: Any) -> Session:
    values: dict[str, Any] = {
        "sid": SID, "job_id": "j1", "rank": 0, "kind": "web", "endpoint": "lab", "port": 8888,
        "base_path": "/", "created_at": 1.0,
    }  # fmt: skip
    return Session(**values | fields)


def terminal(**fields: Any) -> Session:
    held = {"hub_id": HUB.id, "pod": "j-j1-job-0", "pod_uid": "pod-0"}
    return session(kind="terminal", endpoint=None, port=None, **held | fields)


def route(
    one: Session,
    pod: Any = None,
    record: Any = RECORD,
    hub: Hub | None = None,
    by: Reach = "pod",
) -> Any:
    return route_of(
        one,
        record=record,
        pod=pod,
        hub=hub,
        base_domain="apps.example.com",
        by=by,
        probed_port=8888,
    )


def test_a_ready_pod_is_the_target_of_its_session() -> None:
    made = route(session(base_path="/lab"), make_pod())
    assert made.state == "ready"
    assert made.hosts == (f"{SID}.apps.example.com",)
    assert made.target == Target(
        scheme="http", host="10.0.0.1", port=8888, base_path="/lab", id="pod-0"
    )
    assert (made.job, made.rank, made.owner, made.public) == ("j1", 0, "ada", False)


def test_a_public_session_is_served_under_its_own_host_and_its_links() -> None:
    made = route(session(links=("demo", "talk")), make_pod())
    assert made.public
    own, *links = made.hosts
    assert own == f"{SID}.apps.example.com"
    assert links == ["demo.apps.example.com", "talk.apps.example.com"]


def test_a_rank_service_address_is_used_with_the_identity_of_its_pod() -> None:
    service = make_service()
    first = route(session(), make_pod(), by=service).target
    assert (first.host, first.port, first.id) == (service.address, 8888, "pod-0")
    # The new target id makes gateways close connections to the earlier pod.
    assert route(session(), make_pod(uid="next"), by=service).target.id == "next"
    assert route(session(), make_pod(ready=False), by=service).target is None


@pytest.mark.parametrize(
    "service",
    [None, make_service(address=""), make_service(ports=frozenset({5900}))],
    ids=["none yet", "no address", "without the port"],
)
def test_if_the_service_does_not_match_the_pod_address_is_not_used(
    service: Any,
) -> None:
    made = route(session(), make_pod(), by=service)
    assert (made.state, made.target) == ("starting", None)
    assert made.message == "the address is being prepared"


@pytest.mark.parametrize(
    "other",
    [
        {"owners": frozenset({"another attempt"})},
        {"owners": frozenset()},
        {"deleting": True},
        {"name": "rank-j1-1"},
        {"name": "peer-j1"},
        {"namespace": "elsewhere"},
    ],
    ids=lambda other: next(iter(other)),
)
def test_only_the_live_service_of_this_attempt_and_rank_is_used(
    other: dict[str, Any],
) -> None:
    assert service_at(0, record=RECORD, services=[make_service(**other)]) is None
    mine = make_service()
    found = service_at(0, record=RECORD, services=[make_service(**other), mine])
    assert found is mine


def test_a_shell_needs_no_service() -> None:
    assert route(terminal(), make_pod(), hub=HUB, by=None).state == "ready"


def test_a_desktop_is_reached_by_tcp() -> None:
    assert route(session(kind="vnc", port=5900), make_pod()).target.scheme == "tcp"


@pytest.mark.parametrize(
    ("pod", "message"),
    [
        (None, "waiting in the queue"),
        (make_pod(ready=False, answers=False), "the app is starting"),
        (make_pod(ready=False, answers=False, running=False), "preparing the container"),
        (make_pod(address=""), "the app is starting"),
    ],
)
def test_until_its_pod_is_ready_a_session_is_starting_with_a_reason(pod: Any, message: str) -> None:
    made = route(session(), pod)
    assert (made.state, made.target, made.message) == ("starting", None, message)


@pytest.mark.parametrize("endpoint", ["board", None])
def test_an_unprobed_endpoint_does_not_wait_for_the_probed_one(
    endpoint: str | None,
) -> None:
    other = session(endpoint=endpoint, port=6006)
    made = route(other, make_pod(ready=False, answers=False))
    assert (made.state, made.target.port) == ("ready", 6006)
    # The container does not run yet, or its node is gone: no port of the pod responds.
    for pod in (make_pod(ready=False, answers=False, running=False), make_pod(ready=False)):
        assert route(other, pod).state == "starting"
    # A Service leads to ready pods only.
    service = make_service(ports=frozenset({6006, 8888}))
    assert route(other, make_pod(), by=service).state == "ready"
    assert route(other, make_pod(ready=False, answers=False), by=service).state == "starting"


def test_sessions_show_the_waiting_reason_of_their_job() -> None:
    waiting = make_record(uid=UID, message="the image cannot be pulled")
    assert route(session(), None, waiting).message == "the image cannot be pulled"


@pytest.mark.parametrize(
    "over",
    [
        {"state": "SUCCESS"},
        {"state": "FAILURE"},
        {"desired": "ended", "state": "CANCELING"},
    ],
)
def test_an_ended_job_has_no_routes(over: dict[str, str]) -> None:
    assert route(session(), make_pod(), make_record(uid=UID, **over)) is None


def test_an_ended_session_has_no_route() -> None:
    assert route(session(ended_at=2.0), make_pod()) is None


def test_a_shell_needs_a_running_container_and_no_ready_app() -> None:
    pod = make_pod(ready=False)
    assert may_have_shell(pod)
    made = route(terminal(), pod, hub=HUB)
    assert made.target == Target(
        scheme="ws", host="10.9.0.1", port=8082, base_path=f"/terminals/{SID}", id="hub-1/pod-0"
    )


@pytest.mark.parametrize(
    "pod", [None, make_pod(phase="Pending"), make_pod(running=False), make_pod(phase="Failed")]
)
def test_without_a_running_container_there_is_no_shell(pod: Any) -> None:
    assert not may_have_shell(pod)


def test_ports_are_reached_at_the_pods_own_address_unless_a_service_is_named() -> None:
    made = route_of(
        session(), record=RECORD, pod=make_pod(), hub=None, base_domain="apps.example.com"
    )
    assert made is not None
    assert made.target is not None
    assert made.target.host == "10.0.0.1"


def test_a_terminal_without_a_hub_waits_for_one() -> None:
    made = route(terminal(hub_id=None), make_pod())
    assert (made.state, made.message) == ("starting", "no terminal hub is running")


def test_a_shell_of_an_earlier_pod_is_not_reused() -> None:
    assert route(terminal(pod_uid="pod-before"), make_pod(), hub=HUB).state == "starting"
    assert route(terminal(hub_id="hub-before"), make_pod(), hub=HUB).state == "starting"


def test_only_the_live_pod_of_this_attempt_is_used_for_a_rank() -> None:
    job = make_job(replicas=2)
    pods = [
        make_pod(0, deleting=True),
        make_pod(0, owner_uid="of another attempt"),
        make_pod(1),
    ]
    assert pod_at(0, job=job, record=RECORD, pods=pods) is None
    assert pod_at(1, job=job, record=RECORD, pods=pods) is pods[2]
    assert pod_at(2, job=job, record=RECORD, pods=pods) is None


sids = st.text("abcdefghijklmnopqrstuvwxyz234567", min_size=26, max_size=26)


@given(sids, st.integers(1, 5), st.integers(0, 4))
def test_a_lost_hub_moves_only_its_own_terminals(sid: str, count: int, gone: int) -> None:
    hubs = {f"h{n}": Hub(id=f"h{n}", host="x", port=1) for n in range(count)}
    chosen = choose_hub(sid, hubs)
    left = {name: hub for name, hub in hubs.items() if name != f"h{gone}"}
    if left and chosen.id in left:
        assert choose_hub(sid, left) == chosen


def test_every_version_chooses_the_same_hub() -> None:
    # Otherwise an upgrade would move all terminals.
    hubs = {f"h{n}": Hub(id=f"h{n}", host="x", port=1) for n in range(5)}
    chosen = [choose_hub(make_sid(number), hubs).id for number in range(4)]
    assert chosen == ["h4", "h2", "h1", "h0"]
