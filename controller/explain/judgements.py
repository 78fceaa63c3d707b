"""The steps on the way into a session, and the meaning of each one's facts. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from controller.explain.probe import Probed
from controller.store.jobs.job_rows import JobRecord
from controller.store.jobs.progress.attempts import PodRecord
from controller.store.sessions.session_rows import Session
from controller.volcano.observed import ObservedPod
from shared.bus import BusStanding
from shared.errors import TokenRefused
from shared.reports import REPORT_KEPT_SECONDS, Failure, GatewayReport
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
        "revoked": "have the orchestrator issue a new link, if the user is to be let in again",
        "job_unknown": "check the job's id; the records of jobs that are over are kept for a time",
        "session_unknown": "check the address; a session is forgotten with its job's record",
        "session_ended": "open a new session, if the job still runs",
        "job_over": "submit the job again, if it is still needed",
        "redis_unavailable": "bring Redis back, or mend FUMAROLE_REDIS_URL or the network to it",
        "route_missing": "check that a controller leads (fumarole_controller_leads), and its log",
        "gateway_behind": "check that gateway's connection to Redis, or restart it",
        "gateway_silent": "check that gateway, or restart it",
        "cluster_unavailable": "bring the API server back, or mend the network to it",
        "pod_pending": "wait until it is free, have it added, or ask for less",
        "image_missing": "correct the image's name, or give a credential that may pull it",
        "crash_loop": "read the job's log, and mend what its program ends with",
        "pod_failed": "read the job's log",
        "preparing": "wait, and ask again",
        "port_closed": "have the program listen at that port on 0.0.0.0, or declare its real port",
        "network_blocked": "check the NetworkPolicies between gateways and the job's namespace, "
        "and the gateways' FUMAROLE_GATEWAY_UPSTREAM_NETWORKS",
        "app_error": "read the job's log: the app itself fails",
        "app_silent": "read the job's log: the app accepts connections and answers nothing",
        "hub_gone": "bring a controller with the role hub back",
    }
)
"""Advice for each failure; its name is the API's ``cause``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one step, and its time.

    ``ok`` is None where nothing can be said. ``cause`` is one of :data:`ADVICE` where it fails.
    """

    step: Step
    ok: bool | None
    seen: str
    at: float
    cause: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """All that was looked at; the first that fails is named in ``sentence``, with what to do."""

    job: str | None
    sid: str | None
    step: Step | None
    cause: str | None
    sentence: str
    findings: tuple[Finding, ...]


def conclude(findings: Sequence[Finding], *, job: str | None, sid: str | None) -> Explained:
    """Return what *findings*, in the order of the way, say together."""
    failed = next((one for one in findings if one.ok is False), None)
    if failed is not None:
        advice = ADVICE.get(failed.cause or "", "")
        return Explained(
            job=job,
            sid=sid,
            step=failed.step,
            cause=failed.cause,
            sentence=f"{failed.seen}: {advice}." if advice else f"{failed.seen}.",
            findings=tuple(findings),
        )
    unknown = [one.step for one in findings if one.ok is None]
    sentence = "Nothing that was looked at fails"
    if unknown:
        sentence += f"; nothing can be said of: {', '.join(dict.fromkeys(unknown))}"
    return Explained(
        job=job, sid=sid, step=None, cause=None, sentence=f"{sentence}.", findings=tuple(findings)
    )


SILENT_SECONDS: Final = 6.0
"""Without a report; gateways report every two."""
AHEAD_SECONDS: Final = 10.0
FAILED_SECONDS: Final = 60.0
"""For how long a failure that a gateway reports counts."""
STEADY_SECONDS: Final = 600.0
"""After so long a kubelet takes a program for steady, and forgets that it crashed before.

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
"""What a gateway says that cannot connect; all else has other causes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEvidence:
    """The rank at which a session is, or that is looked at: its last pods, and its image."""

    rank: int
    image: str
    pod: ObservedPod | None
    earlier: Sequence[PodRecord]
    port: int | None


def refused_token(refused: TokenRefused, *, ahead: float | None, now: float) -> Finding:
    """Return what a token that does not verify fails for; *ahead* is its ``iat`` before *now*."""
    cause = _TOKEN_CAUSES.get(refused.reason, "token_wrong")
    seen = f"The token does not verify ({refused})"
    if cause == "clock_skew" and ahead is not None:
        seen = f"The token's times are {ahead:.0f} s ahead of the controller's clock"
    return Finding(step="token", ok=False, cause=cause, seen=seen, at=now)


def judge_token(claims: SessionClaims, *, sid: str, used: str | None, now: float) -> Finding:
    """Return whether a token that verifies opens the session *sid* now."""
    if claims.sid != sid:
        seen = f"The token is for the session {claims.sid}, not for {sid}"
        return Finding(step="token", ok=False, cause="other_session", seen=seen, at=now)
    if used is not None:
        seen = f"The token has been used already (jti {claims.jti}, as {used})"
        return Finding(step="token", ok=False, cause="token_spent", seen=seen, at=now)
    seen = f"signed with the key {claims.kid}, good for {claims.exp - now:.0f} s more"
    return Finding(step="token", ok=True, seen=seen, at=now)


def judge_grant(claims: SessionClaims, revoked: Mapping[str, float], *, now: float) -> Finding:
    """Return whether the grant of *claims* is revoked, by the members that stand against it."""
    for member, at in revoked.items():
        if member.startswith("jti:") or at >= claims.issued_at:
            who = member.partition(":")[0]
            seen = f"The grant was revoked {now - at:.0f} s ago ({_WHOSE[who]})"
            return Finding(step="grant", ok=False, cause="revoked", seen=seen, at=now)
    return Finding(step="grant", ok=True, seen="not revoked", at=now)


def judge_job(record: JobRecord, session: Session | None, *, now: float) -> Finding:
    """Return whether the job, and its session, still go on."""
    if record.is_final:
        why = ": ".join(part for part in (record.reason, record.message) if part)
        seen = f"The job {record.id} has ended as {record.state}" + (f" ({why})" if why else "")
        return Finding(step="job", ok=False, cause="job_over", seen=seen, at=now)
    if session is not None and session.ended_at is not None:
        seen = f"The session ended {now - session.ended_at:.0f} s ago ({session.end_reason})"
        return Finding(step="job", ok=False, cause="session_ended", seen=seen, at=now)
    return Finding(step="job", ok=True, seen=f"the job is {record.state}", at=now)


def judge_route(
    standing: BusStanding | None, state: str | None, error: str, *, now: float
) -> Finding:
    """Return how the session's route stands in Redis; *standing* is None where that is away."""
    if standing is None:
        seen = f"Redis cannot be asked ({error})"
        return Finding(step="route", ok=False, cause="redis_unavailable", seen=seen, at=now)
    if state is None:
        there = "holds no table" if standing.head is None else "holds no route that can be read"
        seen = f"Redis {there} of this session, though it has not ended"
        return Finding(step="route", ok=False, cause="route_missing", seen=seen, at=now)
    return Finding(step="route", ok=True, seen=f"the route is {state}", at=now)


def judge_gateways(
    standing: BusStanding, reports: Mapping[str, GatewayReport], *, now: float
) -> Finding:
    """Return whether every gateway that reports has read the table as it stood in *standing*."""
    head = standing.head
    for name, report in sorted(reports.items()):
        age = now - report.at
        if age > REPORT_KEPT_SECONDS + SILENT_SECONDS or age < -AHEAD_SECONDS:
            # Redis forgets a report after ten seconds: one that seems older is of another clock.
            way = "behind" if age > 0 else "ahead of"
            seen = f"The clock of the gateway {name} is {abs(age):.0f} s {way} the controller's"
            return Finding(step="gateways", ok=False, cause="clock_skew", seen=seen, at=now)
        if age > SILENT_SECONDS:
            seen = f"The gateway {name} has reported nothing for {age:.0f} s"
            return Finding(step="gateways", ok=False, cause="gateway_silent", seen=seen, at=now)
        if head is not None and (report.epoch != head.epoch or report.seq < head.seq):
            of = (
                f"event {report.seq} of {head.seq}"
                if report.epoch == head.epoch
                else "another table"
            )
            seen = f"The gateway {name} is behind: it has read {of}"
            return Finding(step="gateways", ok=False, cause="gateway_behind", seen=seen, at=now)
    if not reports:
        return Finding(step="gateways", ok=None, seen="no gateway has reported", at=now)
    seen = f"{len(reports)} up to date"
    return Finding(step="gateways", ok=True, seen=seen, at=now)


def judge_pod(record: JobRecord, place: RankEvidence, *, terminal: bool, now: float) -> Finding:
    """Return whether the program at the rank runs; a terminal needs no port that answers."""
    pod = place.pod

    def failed(cause: str, seen: str) -> Finding:
        return Finding(step="pod", ok=False, cause=cause, seen=seen, at=now)

    crashes = _crashes_in_a_row(place.earlier)
    if (len(crashes) > 1 and _may_crash_again(pod, crashes, now)) or (
        pod is not None and pod.waiting == "CrashLoopBackOff"
    ):
        ended = f"{len(crashes)} times" if crashes else "again and again"
        last = f", last with exit code {crashes[-1].exit_code}" if crashes else ""
        return failed("crash_loop", f"The program at rank {place.rank} ended {ended}{last}")
    if pod is None or not pod.node:
        why = (pod.unscheduled if pod is not None else "") or record.message or "no node takes it"
        asks = f"the job asks for {_amounts(record)}"
        return failed("pod_pending", f"The pod at rank {place.rank} waits ({why}; {asks})")
    if pod.waiting in _IMAGE:
        return failed("image_missing", f"The image {place.image} cannot be pulled ({pod.waiting})")
    if pod.is_over:
        code = "" if pod.ended is None else f" with exit code {pod.ended.exit_code}"
        return failed("pod_failed", f"The program at rank {place.rank} has ended{code}")
    if not pod.running:
        why = pod.waiting or "ContainerCreating"
        return failed("preparing", f"The container at rank {place.rank} is being prepared ({why})")
    if not pod.ready and not terminal and place.port is not None:
        seen = f"runs since {now - (pod.started_at or now):.0f} s on {pod.node}, and is not ready"
        return Finding(step="pod", ok=True, seen=seen, at=now)
    return Finding(step="pod", ok=True, seen=f"runs on {pod.node}", at=now)


def _crashes_in_a_row(earlier: Sequence[PodRecord]) -> list[PodRecord]:
    """Return the last of *earlier* that failed, none of them steady, in the order of starts."""
    crashes: list[PodRecord] = []
    for one in reversed(earlier):
        if one.exit_code == 0 or _lasted(one) >= STEADY_SECONDS:
            break
        if one.exit_code is not None:
            crashes.insert(0, one)
    return crashes


def _may_crash_again(pod: ObservedPod | None, crashes: Sequence[PodRecord], now: float) -> bool:
    """Return whether the pod, where it runs, has not yet run for longer than those before it."""
    if pod is None or not pod.running:
        return pod is None or not pod.unscheduled
    # Kubernetes' times are whole seconds.
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
) -> Finding:
    """Return whether the port is open, as the kubelet, the gateways and the controller see it."""
    pod = place.pod

    def failed(cause: str, seen: str) -> Finding:
        return Finding(step="port", ok=False, cause=cause, seen=seen, at=now)

    recent = [
        (name, one)
        for name, one in failures
        if one.code in _OF_THE_PORT and 0 <= now - one.at <= FAILED_SECONDS
    ]
    told = "".join(f"; the gateway {name} said {one.code}" for name, one in recent[:1])
    blocked = any(one.code in _BLOCKED for _, one in recent)
    unreachable = any(one.code == "app_unreachable" for _, one in recent)
    if probed is None or probed.connected == "refused":
        if probed is None and pod is not None and pod.answers:
            return Finding(step="port", ok=None, seen="not dialled: no route leads to it", at=now)
        return failed(
            "port_closed", f"Nothing listens at port {place.port} of rank {place.rank}{told}"
        )
    if probed.connected == "open":
        if blocked or unreachable:
            seen = f"The controller reaches port {place.port}, and a gateway does not{told}"
            return failed("network_blocked", seen)
        return Finding(step="port", ok=True, seen=f"port {place.port} is open", at=now)
    if unreachable and not blocked:
        return failed(
            "port_closed", f"Nothing answers at port {place.port} of rank {place.rank}{told}"
        )
    if blocked or (pod is not None and not pod.answers):
        seen = f"Packets to port {place.port} of rank {place.rank} are not answered{told}"
        return failed("network_blocked", seen)
    # Policies may let gateways through alone; the kubelet, which probes too, and they see no fault.
    seen = f"the controller does not reach port {place.port}, and no gateway reports a failure"
    return Finding(step="port", ok=None, seen=seen, at=now)


def judge_probe(probed: Probed, *, now: float) -> Finding:
    """Return what the app answered to a request."""
    if probed.status is None:
        ok = False if probed.asked else None
        seen = "The app accepts connections and does not answer" if probed.asked else "not asked"
        return Finding(
            step="probe", ok=ok, cause="app_silent" if probed.asked else None, seen=seen, at=now
        )
    seen = f"The app answers {probed.status}"
    if probed.status >= 500:
        return Finding(step="probe", ok=False, cause="app_error", seen=seen, at=now)
    return Finding(step="probe", ok=True, seen=seen, at=now)
