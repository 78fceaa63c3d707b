"""What is looked at on the way into a session, and what each failure is called. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

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
        "network_blocked": "check the NetworkPolicies between gateways and the job's namespace",
        "app_error": "read the job's log: the app itself fails",
        "app_silent": "read the job's log: the app accepts connections and answers nothing",
        "hub_gone": "bring a controller with the role hub back",
    }
)
"""What to do about each failure; these words are the API's ``cause``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one look saw, and when.

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
