"""A session's status for people: its job's progress, or how the session ended. No I/O.

A status is a function of the store and the cluster, so that every leader computes the same one. It
is served on the session's own host, where the app's scripts can read it. So it contains nothing of
other users.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from controller.jobs.spec.model import Job
from controller.store.jobs.job_rows import ASKED, JobRecord
from controller.store.sessions.session_rows import Session
from controller.volcano.observed import ObservedPod
from controller.volcano.reasons.waiting import QUEUED
from shared.routes.route import Route
from shared.routes.statuses import MOST_APP, MOST_DETAIL, MOST_NAME, NO_HUB, Status

_ENDS: Final = MappingProxyType(
    {"asked": "stopped", "expired": "expired", "out_of_funds": "out_of_funds", "evicted": "evicted"}
)
"""Phases by the reason of the job's end; other ends have the phase of their state."""
_OUTCOMES: Final = MappingProxyType(
    {"SUCCESS": "finished", "FAILURE": "failed", "EXPIRED": "expired"}
)
_PULLS: Final = frozenset({"ContainerCreating", "PodInitializing", ""})
"""The waiting reasons of a container whose image is pulled; the kubelet has no own one for that."""


def status_of(
    session: Session, *, job: Job, record: JobRecord, pod: ObservedPod | None, ready: bool
) -> Status:
    """Return the progress of the session; *pod* is the pod at its rank."""
    app, port = _app(session, job), session.port
    # For later attempts, the start of the wait is not known here.
    queued = (("queued", record.created_at),) if record.attempt == 1 else ()
    waits = record.state in ("IN_QUEUE", "SUSPENDED")
    if pod is None and not waits:
        # The previous pod is gone, and the next one is not observed yet.
        return Status(phase="preparing", app=app, times=queued)
    if pod is None or (waits and not pod.node):
        phase = "suspended" if record.state == "SUSPENDED" else "queued"
        return Status(
            phase=phase,
            since=record.created_at if queued and phase == "queued" else None,
            reason=_short(record.reason, 64),
            detail=_waits(record),
            app=app,
        )
    made = (("preparing", pod.created_at),) if pod.created_at is not None else ()
    if not pod.running:
        return Status(
            phase="preparing",
            since=pod.created_at,
            reason=_short(pod.waiting, 64),
            detail=_preparing(job, record, pod),
            app=app,
            times=queued,
        )
    began = (("starting", pod.started_at),) if pod.started_at is not None else ()
    if ready:
        return Status(phase="ready", app=app, port=port, times=queued + made + began)
    return Status(
        phase="starting",
        since=pod.started_at,
        # A shell needs nothing but a hub once the program runs.
        reason=NO_HUB if session.kind == "terminal" else None,
        app=app,
        port=port,
        times=queued + made,
    )


def ended_status(route: Route, record: JobRecord | None, *, now: float) -> Status:
    """Return how the session of *route*, its last one, ended; *record* is its job."""
    app = route.status.app if route.status is not None else None
    if record is None:
        return Status(phase="ended", since=now, app=app)
    outcome = _outcome(record)
    if outcome is None:
        return Status(phase="closed", since=now, app=app)
    reason = record.reason if record.is_final else record.end_reason
    message = record.message if record.is_final else record.end_message
    details = (record.details if record.is_final else record.end_details) or {}
    # The scripts of a web app can read what its host serves, so web sessions do not get it.
    by = details.get("by") if reason == ASKED.reason and route.kind != "web" else None
    return Status(
        phase=_ENDS.get(reason or "", _OUTCOMES[outcome]),
        since=now,
        reason=_short(reason, 64),
        detail=_short(message, MOST_DETAIL),
        app=app,
        by=_short(by, MOST_NAME) if isinstance(by, str) else None,
    )


def _outcome(record: JobRecord) -> str | None:
    """Return the state in which the job has ended or will end; None if it continues."""
    for known in (record.state, record.outcome, record.end_state):
        if known in _OUTCOMES:
            return known
    # The end was requested, but how it will be reported is not known.
    return "SUCCESS" if record.desired == "ended" else None


def _app(session: Session, job: Job) -> str | None:
    return _short(job.name or job.kind or session.endpoint, MOST_APP)


def _waits(record: JobRecord) -> str | None:
    """Return the message, unless the phase says it: pages translate the phase themselves."""
    usual = record.reason == "submitting" or record.message == QUEUED.message
    return None if usual else _short(record.message, MOST_DETAIL)


def _preparing(job: Job, record: JobRecord, pod: ObservedPod) -> str | None:
    image = next((task.image for task in job.effective_tasks if task.name == pod.task), "")
    if pod.waiting in _PULLS:
        return _short(image, MOST_DETAIL)
    said = record.message or pod.waiting
    return _short(said if image in said else f"{said}: {image}", MOST_DETAIL)


def _short(text: str | None, most: int) -> str | None:
    if not text:
        return None
    return text if len(text) <= most else f"{text[: most - 1]}…"
