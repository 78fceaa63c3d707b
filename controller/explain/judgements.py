"""The steps on the way into a session, and the judgement of each one's facts. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, assert_never

from pydantic import BaseModel, ConfigDict, Field

from controller.explain.probe import Probed
from controller.store.jobs.job_rows import JobRecord
from controller.store.jobs.progress import PodRecord
from controller.store.sessions.session_rows import Session
from controller.volcano.observed import ObservedPod
from shared.bus import BusStanding
from shared.errors import TokenRefused
from shared.reports import REPORT_KEPT_SECONDS, Failure, GatewayReport
from shared.text import without_controls
from shared.tokens import SessionClaims

Step = Literal["token", "grant", "job", "route", "gateways", "pod", "port", "probe"]

ADVICE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "wrong_key": "publish the signing key in the orchestrator's key set, or sign with one "
        "that is in it",
        "token_wrong": "have the orchestrator issue tokens as docs/session-token.md says",
        "token_expired": "have the orchestrator issue a new link, and open it before it expires",
        "token_spent": "have the orchestrator issue a new link, since each opens a session once",
        "clock_skew": "synchronise the clocks of orchestrator, gateways and controllers (NTP)",
        "other_session": "use the link that was issued for this session",
        "revoked": "have the orchestrator issue a new link, if the user should have access again",
        "job_unknown": "check the job's id; records of ended jobs are deleted after a time",
        "session_unknown": "check the address; a session is deleted with its job's record",
        "session_ended": "open a new session, if the job still runs",
        "job_over": "submit the job again, if it is still needed",
        "redis_unavailable": "restore Redis, or correct FUMAROLE_REDIS_URL or the network to it",
        "route_missing": "check that a controller leads (fumarole_controller_leads), and its log",
        "gateway_behind": "check that gateway's connection to Redis, or restart it",
        "gateway_silent": "check that gateway, or restart it",
        "cluster_unavailable": "restore the API server, or the network to it",
        "pod_pending": "wait for free resources, add nodes, or request less",
        "image_missing": "correct the image's name, or give a credential that may pull it",
        "crash_loop": "read the job's log, and correct the error with which its program ends",
        "pod_failed": "read the job's log",
        "preparing": "wait, and try again",
        "port_closed": "have the program listen at that port on 0.0.0.0, or declare its real port",
        "network_blocked": "check the NetworkPolicies between gateways and the job's namespace, "
        "and the gateways' FUMAROLE_GATEWAY_UPSTREAM_NETWORKS",
        "app_error": "read the job's log: the app itself fails",
        "app_silent": "read the job's log: the app accepts connections but does not respond",
        "hub_gone": "start a controller with the role hub",
    }
)
"""Advice for each failure by its name, which is the API's ``cause``."""


class FindingView(BaseModel):
    """The result of one step, and its time."""

    model_config = ConfigDict(frozen=True)

    step: Step
    ok: bool | None = Field(description="None if the step could not be judged.")
    seen: str
    at: float
    cause: str | None = Field(description="A machine-readable code of the failure.")


class Explanation(BaseModel):
    """All findings, with a sentence about the first failure and what to do."""

    model_config = ConfigDict(frozen=True)

    job: str | None
    sid: str | None
    step: str | None = Field(description="The first step that fails, if any.")
    cause: str | None
    sentence: str
    findings: list[FindingView]


def failed(step: Step, cause: str, seen: str, now: float) -> FindingView:
    """Return the finding of a failed step; *cause* is one of :data:`ADVICE`."""
    return FindingView(step=step, ok=False, seen=seen, at=now, cause=cause)


def passed(step: Step, seen: str, now: float, *, ok: bool | None = True) -> FindingView:
    """Return the finding of a step that does not fail; with *ok* None, one without a judgement."""
    return FindingView(step=step, ok=ok, seen=seen, at=now, cause=None)


def conclude(findings: Sequence[FindingView], *, job: str | None, sid: str | None) -> Explanation:
    """Return the explanation of *findings*, which are in the order of the steps."""
    step = cause = None
    wrong = next((one for one in findings if one.ok is False), None)
    if wrong is not None:
        step, cause, sentence = wrong.step, wrong.cause, wrong.seen
        if advice := ADVICE.get(cause or ""):
            sentence += f": {advice}"
    else:
        unknown = [one.step for one in findings if one.ok is None]
        sentence = "No step fails"
        if unknown:
            sentence += f"; not judged: {', '.join(dict.fromkeys(unknown))}"
    return Explanation(
        job=job, sid=sid, step=step, cause=cause, sentence=f"{sentence}.", findings=list(findings)
    )


SILENT_SECONDS: Final = 6.0
"""A gateway without a report for this time is silent; gateways report every two seconds."""
AHEAD_SECONDS: Final = 10.0
FAILED_SECONDS: Final = 60.0
"""How long a failure that a gateway reports counts."""
MAX_REASON: Final = 200
STEADY_SECONDS: Final = 600.0
"""After this time a kubelet treats a program as stable and resets its restart backoff.

Source: Kubernetes, "Pod Lifecycle", how Pods handle problems with containers.
"""

_TOKEN_CAUSES: Final = {
    "kid": "wrong_key", "signature": "wrong_key", "algorithm": "wrong_key",
    "expired": "token_expired", "early": "clock_skew",
}  # fmt: skip
_WHOSE: Final = {
    "jti": "this token's grant",
    "sub": "the user's grants on this session",
    "all": "all grants on this session",
    "kid": "all grants of the signing key",
}
_IMAGE: Final = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull",
     "ImageInspectError", "RegistryUnavailable"}
)  # fmt: skip
_BLOCKED: Final = frozenset({"app_timeout", "target_forbidden"})
_OF_THE_PORT: Final = _BLOCKED | {"app_unreachable"}
"""The codes of a gateway that cannot connect; other codes have other causes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEvidence:
    """The facts about one rank: its image, its pod, and its earlier pods."""

    rank: int
    image: str
    pod: ObservedPod | None
    earlier: Sequence[PodRecord]
    port: int | None


def refused_token(refused: TokenRefused, *, ahead: float | None, now: float) -> FindingView:
    """Return why a token does not verify; *ahead* is by how much its times are in the future."""
    cause = _TOKEN_CAUSES.get(refused.reason, "token_wrong")
    seen = f"The token does not verify ({refused})"
    if cause == "clock_skew" and ahead is not None:
        seen = f"The token's times are {ahead:.0f} s ahead of the controller's clock"
    return failed("token", cause, seen, now)


def judge_token(
    claims: SessionClaims, *, sid: str, session: Session | None, used: str | None, now: float
) -> FindingView:
    """Return whether a token that verifies opens *session*, whose id is *sid*, now."""
    if claims.sid != sid:
        seen = f"The token is for the session {claims.sid}, not for {sid}"
        return failed("token", "other_session", seen, now)
    if session is not None:
        asked = (claims.job, claims.rank, claims.kind)
        is_at = (session.job_id, session.rank, session.kind)
        for name, claimed, of_session in zip(("job", "rank", "kind"), asked, is_at, strict=True):
            if claimed != of_session:
                seen = f"The token names the {name} {claimed}, but the session's is {of_session}"
                return failed("token", "other_session", seen, now)
    if claims.mode == "view" and claims.kind == "web":
        seen = "The token is for viewing only, which no web session can be opened for"
        return failed("token", "token_wrong", seen, now)
    if used is not None:
        seen = f"The token was used before (jti {claims.jti}, as {used})"
        return failed("token", "token_spent", seen, now)
    seen = f"signed with the key {claims.kid}, valid for {claims.exp - now:.0f} s more"
    return passed("token", seen, now)


def judge_grant(claims: SessionClaims, revoked: Mapping[str, float], *, now: float) -> FindingView:
    """Return whether the grant of *claims* is revoked; *revoked* has the matching revocations."""
    for member, at in revoked.items():
        if member.startswith(("jti:", "kid:")) or at >= claims.issued_at:
            who = member.partition(":")[0]
            seen = f"The grant was revoked {now - at:.0f} s ago ({_WHOSE[who]})"
            return failed("grant", "revoked", seen, now)
    return passed("grant", "not revoked", now)


def judge_job(record: JobRecord, session: Session | None, *, now: float) -> FindingView:
    """Return whether the job and the session are live."""
    if record.is_final:
        why = ": ".join(part for part in (record.reason, record.message) if part)
        seen = f"The job {record.id} has ended as {record.state}" + (f" ({why})" if why else "")
        return failed("job", "job_over", seen, now)
    if session is not None and session.ended_at is not None:
        seen = f"The session ended {now - session.ended_at:.0f} s ago ({session.end_reason})"
        return failed("job", "session_ended", seen, now)
    return passed("job", f"the job is {record.state}", now)


def judge_route(
    standing: BusStanding | None, state: str | None, error: str, *, now: float
) -> FindingView:
    """Return whether Redis has the session's route; *standing* is None without Redis."""
    if standing is None:
        seen = f"Redis is unavailable ({error})"
        return failed("route", "redis_unavailable", seen, now)
    if state is None:
        there = "has no table" if standing.head is None else "has no readable route"
        seen = f"Redis {there} for this session, although it has not ended"
        return failed("route", "route_missing", seen, now)
    return passed("route", f"the route is {state}", now)


def judge_gateways(
    standing: BusStanding, reports: Mapping[str, GatewayReport], *, now: float
) -> FindingView:
    """Return whether every gateway that reports has read the table up to *standing*."""
    head = standing.head
    for name, report in sorted(reports.items()):
        age = now - report.at
        if age > REPORT_KEPT_SECONDS + SILENT_SECONDS or age < -AHEAD_SECONDS:
            # Redis drops reports after ten seconds: an older one has another clock.
            way = "behind" if age > 0 else "ahead of"
            seen = f"The clock of the gateway {name} is {abs(age):.0f} s {way} the controller's"
            return failed("gateways", "clock_skew", seen, now)
        if age > SILENT_SECONDS:
            seen = f"The gateway {name} has reported nothing for {age:.0f} s"
            return failed("gateways", "gateway_silent", seen, now)
        if head is not None and (report.epoch != head.epoch or report.seq < head.seq):
            of = (
                f"event {report.seq} of {head.seq}"
                if report.epoch == head.epoch
                else "another table"
            )
            seen = f"The gateway {name} is behind: it has read {of}"
            return failed("gateways", "gateway_behind", seen, now)
    if not reports:
        return passed("gateways", "no gateway reports", now, ok=None)
    seen = f"{len(reports)} up to date"
    return passed("gateways", seen, now)


def judge_pod(record: JobRecord, place: RankEvidence, *, terminal: bool, now: float) -> FindingView:
    """Return whether the program at the rank runs; a terminal needs no port."""
    pod = place.pod

    def wrong(cause: str, seen: str) -> FindingView:
        return failed("pod", cause, seen, now)

    crashes = _crashes_in_a_row(place.earlier)
    if (len(crashes) > 1 and _may_crash_again(pod, crashes, now)) or (
        pod is not None and pod.waiting == "CrashLoopBackOff"
    ):
        ended = f"{len(crashes)} times" if crashes else "again and again"
        last = f", last with exit code {crashes[-1].exit_code}" if crashes else ""
        return wrong("crash_loop", f"The program at rank {place.rank} ended {ended}{last}")
    if pod is None or not pod.node:
        why = (pod.unscheduled if pod is not None else "") or record.message or "no node fits"
        asks = f"the job requests {_amounts(record)}"
        return wrong("pod_pending", f"The pod at rank {place.rank} waits ({why}; {asks})")
    if pod.waiting in _IMAGE:
        return wrong("image_missing", f"The image {place.image} cannot be pulled ({pod.waiting})")
    if pod.is_over:
        code = "" if pod.ended is None else f" with exit code {pod.ended.exit_code}"
        return wrong("pod_failed", f"The program at rank {place.rank} has ended{code}")
    if not pod.running:
        why = pod.waiting or "ContainerCreating"
        return wrong("preparing", f"The container at rank {place.rank} is being prepared ({why})")
    if not pod.ready and not terminal and place.port is not None:
        seen = f"runs since {now - (pod.started_at or now):.0f} s on {pod.node}, and is not ready"
        return passed("pod", seen, now)
    return passed("pod", f"runs on {pod.node}", now)


def _crashes_in_a_row(earlier: Sequence[PodRecord]) -> list[PodRecord]:
    """Return the latest consecutive crashes among *earlier*, none of a stable program, in order."""
    crashes: list[PodRecord] = []
    for one in reversed(earlier):
        if one.exit_code == 0 or _lasted(one) >= STEADY_SECONDS:
            break
        if one.exit_code is not None:
            crashes.insert(0, one)
    return crashes


def _may_crash_again(pod: ObservedPod | None, crashes: Sequence[PodRecord], now: float) -> bool:
    """Return whether the pod has not yet run longer than those that crashed."""
    if pod is None or not pod.running:
        return pod is None or not pod.unscheduled
    # Kubernetes' timestamps have whole seconds.
    return now - (pod.started_at or now) <= max(map(_lasted, crashes)) + 1


def _lasted(one: PodRecord) -> float:
    if one.started_at is None or one.ended_at is None:
        return 0.0
    return one.ended_at - one.started_at


def _amounts(record: JobRecord) -> str:
    gpus = f", {record.gpu:g} gpu" if record.gpu else ""
    return f"{record.cpu:g} cpu, {record.memory / 2**30:.3g} GiB of memory{gpus}"


def judge_port(
    probed: Probed | None,
    place: RankEvidence,
    failures: Collection[tuple[str, Failure]],
    *,
    now: float,
) -> FindingView:
    """Return whether the port is open, as seen by kubelet, gateways and controller."""
    pod = place.pod

    def wrong(cause: str, seen: str) -> FindingView:
        return failed("port", cause, seen, now)

    recent = [
        (name, one)
        for name, one in failures
        if one.code in _OF_THE_PORT and 0 <= now - one.at <= FAILED_SECONDS
    ]
    reported = "".join(f"; the gateway {name} reports {one.code}" for name, one in recent[:1])
    blocked = any(one.code in _BLOCKED for _, one in recent)
    unreachable = any(one.code == "app_unreachable" for _, one in recent)
    if probed is None or probed.connected == "refused":
        if probed is None and pod is not None and pod.answers:
            return passed("port", "not tried: no route leads to it", now, ok=None)
        return wrong(
            "port_closed", f"Nothing listens at port {place.port} of rank {place.rank}{reported}"
        )
    if probed.connected == "open":
        if blocked or unreachable:
            seen = f"The controller reaches port {place.port}, but a gateway does not{reported}"
            return wrong("network_blocked", seen)
        return passed("port", f"port {place.port} is open", now)
    if unreachable and not blocked:
        return wrong(
            "port_closed", f"Nothing answers at port {place.port} of rank {place.rank}{reported}"
        )
    if blocked:
        seen = f"Packets to port {place.port} of rank {place.rank} get no response{reported}"
        return wrong("network_blocked", seen)
    # Policies may admit only the gateways. No policy blocks the kubelet, which probes too.
    if pod is not None and not pod.answers:
        seen = (
            f"Nothing answers the kubelet at rank {place.rank}, nor at port {place.port}{reported}"
        )
        return wrong("port_closed", seen)
    seen = f"the controller does not reach port {place.port}, and no gateway reports a failure"
    return passed("port", seen, now, ok=None)


def judge_hub(probed: Probed, hub_id: str, *, now: float) -> FindingView:
    """Return whether the terminal hub, to which the leader has published a route, responds."""
    name = hub_id[:8]
    match probed.connected:
        case "open":
            return passed("port", f"the hub {name} responds", now)
        case "unanswered":
            # As above: policies may admit only the gateways.
            seen = f"the hub {name} is alive, and the controller does not reach it"
            return passed("port", seen, now, ok=None)
        case "refused":
            return failed("port", "hub_gone", f"The terminal hub {name} does not respond", now)
        case _:
            assert_never(probed.connected)


def judge_probe(
    probed: Probed, failures: Collection[tuple[str, Failure]], *, now: float
) -> FindingView:
    """Return how the app responded to a request, and what gateways could not read of it."""
    unread = [
        f"; the gateway {name} reports {one.code}: {without_controls(one.reason)[:MAX_REASON]}"
        for name, one in failures
        if one.reason and 0 <= now - one.at <= FAILED_SECONDS
    ]
    if not probed.sent:
        return passed("probe", "no request was sent", now, ok=None)
    if probed.status is None:
        seen = "The app accepts connections but does not respond" + "".join(unread[:1])
        return failed("probe", "app_silent", seen, now)
    seen = f"The app responds with {probed.status}" + "".join(unread[:1])
    if probed.status >= 500:
        return failed("probe", "app_error", seen, now)
    return passed("probe", seen, now)
