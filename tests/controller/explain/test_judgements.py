"""Tests the diagnosis of a program from its pod and the earlier pods of the same rank."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest

from controller.explain.judgements import (
    STEADY_SECONDS,
    RankEvidence,
    judge_grant,
    judge_hub,
    judge_pod,
    judge_port,
    judge_probe,
    judge_token,
)
from controller.explain.probe import Probed
from controller.store.jobs.progress import PodRecord
from controller.store.sessions.session_rows import Session
from controller.volcano.observed import ObservedPod
from shared.reports import Failure
from shared.tokens import SessionClaims
from tests.controller.samples import make_pod, make_record

NOW = 5000.0
SID, OTHER = "a" * 26, "b" * 26
CLAIMS = SessionClaims(
    sub="ada", name=None, iat=4990, exp=5050, jti="t1", sid=SID, job="j1", rank=0, kind="web",
    mode="control", max_age=60, kid="k1", issued_at=4990.0,
)  # fmt: skip
SESSION = Session(
    sid=SID, job_id="j1", rank=0, kind="web", endpoint="lab", port=80, base_path="/", created_at=1.0
)


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({}, None),
        ({"sid": OTHER}, "other_session"),
        ({"job": "j2"}, "other_session"),
        ({"rank": 1}, "other_session"),
        ({"kind": "vnc"}, "other_session"),
        ({"mode": "view"}, "token_wrong"),
    ],
)
def test_a_token_that_a_gateway_refuses_is_named(fields: dict[str, Any], cause: str | None) -> None:
    claims = replace(CLAIMS, **fields)
    assert judge_token(claims, sid=SID, session=SESSION, used=None, now=NOW).cause == cause


@pytest.mark.parametrize(
    ("member", "at", "cause"),
    [
        ("kid:k1", 4000.0, "revoked"),
        ("jti:t1", 4000.0, "revoked"),
        (f"sub:{SID}:ada", 4990.0, "revoked"),
        (f"sub:{SID}:ada", 4989.0, None),
        (f"all:{SID}", 4989.0, None),
    ],
)
def test_a_revoked_key_or_token_ends_later_grants_too(
    member: str, at: float, cause: str | None
) -> None:
    assert judge_grant(CLAIMS, {member: at}, now=NOW).cause == cause


def ended(at: float, lasted: float | None, exit_code: int | None = 3) -> PodRecord:
    """Return a pod record of the rank that ended *at* seconds ago."""
    values: dict[str, Any] = dict.fromkeys(PodRecord.__slots__)
    began = None if lasted is None else NOW - at - lasted
    values |= {"rank": 0, "phase": "Failed", "exit_code": exit_code, "seen_at": NOW - at}
    return PodRecord(**values | {"started_at": began, "ended_at": NOW - at})


def running(seconds: float) -> ObservedPod:
    return make_pod(node="node-0", running=True, ready=True, started_at=NOW - seconds)


def judged(pod: ObservedPod | None, *earlier: PodRecord) -> tuple[str, str]:
    place = RankEvidence(rank=0, image="busybox", pod=pod, earlier=earlier, port=None)
    found = judge_pod(make_record(), place, terminal=False, now=NOW)
    return found.cause or "", found.seen


TWICE = (ended(60, 5), ended(20, 10))


@pytest.mark.parametrize(
    ("pod", "earlier", "cause"),
    [
        (running(3), TWICE, "crash_loop"),
        (running(10.9), TWICE, "crash_loop"),
        (running(11.1), TWICE, ""),
        (running(0), (ended(20, 10),), ""),
        (running(0), (ended(60, 5), ended(20, 10, 0)), ""),
        (running(0), (*TWICE, ended(1, None, None)), "crash_loop"),
        # A pod that ran steadily or ended well resets the count of crashes.
        (running(0), (ended(900, 5), ended(60, STEADY_SECONDS), ended(20, 5)), ""),
        (running(0), (ended(900, 5), ended(800, 5), ended(60, 5, 0), ended(20, 5)), ""),
        # A pod without a known start counts as short-lived.
        (running(0.5), (ended(60, None), ended(20, None)), "crash_loop"),
        (running(1.5), (ended(60, None), ended(20, None)), ""),
        (None, TWICE, "crash_loop"),
        (None, TWICE[:1], "pod_pending"),
        (make_pod(running=False, ready=False), TWICE, "crash_loop"),
        (make_pod(running=False, node="", unscheduled="no node"), TWICE, "pod_pending"),
        (make_pod(running=False, node="n", waiting="CrashLoopBackOff"), (), "crash_loop"),
    ],
)
def test_a_program_counts_as_crash_looping_until_it_runs_long_enough(
    pod: ObservedPod | None, earlier: tuple[PodRecord, ...], cause: str
) -> None:
    assert judged(pod, *earlier)[0] == cause


@pytest.mark.parametrize(
    ("earlier", "words"),
    [
        (TWICE, "ended 2 times, last with exit code 3"),
        ((*TWICE, ended(1, 1, 137)), "ended 3 times, last with exit code 137"),
        ((ended(900, 5, 0), *TWICE), "ended 2 times, last with exit code 3"),
        ((), "ended again and again"),
    ],
)
def test_number_and_exit_code_of_crashes_are_reported(
    earlier: tuple[PodRecord, ...], words: str
) -> None:
    pod = make_pod(running=False, waiting="CrashLoopBackOff")
    assert judged(pod, *earlier) == ("crash_loop", f"The program at rank 0 {words}")


def test_the_reason_of_a_bad_response_is_shown_while_it_is_recent() -> None:
    recent = Failure("app_bad_answer", NOW - 10, "its first line is wrong")
    found = judge_probe(Probed("open", sent=True, status=200), [("g1", recent)], now=NOW)
    assert found.seen == (
        "The app responds with 200; the gateway g1 reports app_bad_answer: its first line is wrong"
    )
    old = Failure("app_bad_answer", NOW - 3600, "its first line is wrong")
    found = judge_probe(Probed("open", sent=True, status=200), [("g1", old)], now=NOW)
    assert found.seen == "The app responds with 200"


def test_of_a_gateways_report_only_the_matching_port_is_used() -> None:
    """Other errors that a gateway reports for the session have other causes."""
    place = RankEvidence(rank=0, image="busybox", pod=running(60), earlier=(), port=8888)
    silent, forbidden = (
        (name, Failure(code, NOW - 10))
        for name, code in (("g1", "controller_silent"), ("g2", "target_forbidden"))
    )
    found = judge_port(Probed("open"), place, [silent, forbidden], now=NOW)
    assert (found.cause, found.ok) == ("network_blocked", False)
    assert "the gateway g2 reports target_forbidden" in found.seen
    assert judge_port(Probed("open"), place, [silent], now=NOW).ok
    refused = judge_port(Probed("refused"), place, [silent], now=NOW)
    assert (refused.cause, "controller_silent" in refused.seen) == ("port_closed", False)


def test_a_blocked_controller_blames_no_network_policy() -> None:
    """In the manifests, only gateways reach jobs and hubs: the controller's probe is dropped."""
    answers = RankEvidence(
        rank=0, image="busybox", pod=replace(running(60), answers=True), earlier=(), port=8888
    )
    dropped = Probed("unanswered")
    assert judge_port(dropped, answers, (), now=NOW).ok is None
    starts = replace(answers, pod=replace(running(60), answers=False))
    assert judge_port(dropped, starts, (), now=NOW).cause == "port_closed"
    timeout = [("g1", Failure("app_timeout", NOW - 10))]
    assert judge_port(dropped, starts, timeout, now=NOW).cause == "network_blocked"


@pytest.mark.parametrize(
    ("connected", "ok", "cause"),
    [("open", True, None), ("unanswered", None, None), ("refused", False, "hub_gone")],
)
def test_a_hub_is_gone_if_its_port_refuses_connections(
    connected: Literal["open", "unanswered", "refused"], ok: bool | None, cause: str | None
) -> None:
    found = judge_hub(Probed(connected), "0123456789", now=NOW)
    assert (found.ok, found.cause, found.step) == (ok, cause, "port")
