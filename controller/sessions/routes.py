"""Where a session lives: a function of its row, its job, and the pod at its rank.

A route follows one pod. It is ready only while that pod is, and withdrawn as soon as the pod is on
its way out: an address is never remembered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Final

from controller.jobs.links import link_host
from controller.jobs.model import Job
from controller.sessions.service import host_of
from controller.sessions.terminals import target_id, target_path
from controller.store.hubs import Hub
from controller.store.jobs import JobRecord
from controller.store.sessions import Session
from controller.volcano.observed import ObservedPod
from shared.routes import Route, Scheme, Target

_SCHEMES: Final[dict[str, Scheme]] = {"web": "http", "vnc": "tcp"}


def pod_at(
    rank: int, *, job: Job, record: JobRecord, pods: Iterable[ObservedPod]
) -> ObservedPod | None:
    """Return the pod that is at *rank* of the job's current attempt and stays there."""
    for pod in pods:
        mine = pod.owner_uid == record.uid and not pod.deleting
        if mine and job.rank_of(pod.task, pod.index) == rank:
            return pod
    return None


def may_have_shell(pod: ObservedPod | None) -> bool:
    """Say whether a shell can be opened in *pod*: its program runs, whatever its ports say."""
    return pod is not None and pod.phase == "Running" and pod.running


def choose_hub(sid: str, hubs: Mapping[str, Hub]) -> Hub:
    """Return the same hub for the same sid as long as it lives; sids are spread evenly."""
    # Rendezvous hashing: when a hub goes, only its own terminals move.
    return max(hubs.values(), key=lambda hub: sha256(f"{hub.id}/{sid}".encode()).digest())


def route_of(
    session: Session,
    *,
    record: JobRecord,
    pod: ObservedPod | None,
    hub: Hub | None,
    base_domain: str,
) -> Route | None:
    """Return the session's route, or None where it has ended with its job.

    ``rev`` is 0 and nothing is sealed: whoever publishes it sees to both. *hub* is the one that
    the terminal is assigned to, if it is one and that is alive.
    """
    if session.ended_at is not None or record.is_final or record.desired == "ended":
        return None
    target = _shell(session, pod, hub) if session.kind == "terminal" else _port(session, pod)
    return Route(
        sid=session.sid,
        rev=0,
        job=session.job_id,
        rank=session.rank,
        kind=session.kind,
        owner=record.owner_user,
        hosts=(
            host_of(session.sid, base_domain),
            *(link_host(name, base_domain) for name in session.links),
        ),
        public=bool(session.links),
        target=target,
        state="starting" if target is None else "ready",
        message=_why_not_yet(session, record, pod) if target is None else None,
    )


def _port(session: Session, pod: ObservedPod | None) -> Target | None:
    if pod is None or not pod.ready or not pod.address or session.port is None:
        return None
    return Target(
        scheme=_SCHEMES[session.kind],
        host=pod.address,
        port=session.port,
        base_path=session.base_path,
        id=pod.uid,
    )


def _shell(session: Session, pod: ObservedPod | None, hub: Hub | None) -> Target | None:
    if pod is None or hub is None or not may_have_shell(pod):
        return None
    if (session.hub_id, session.pod_uid) != (hub.id, pod.uid):
        return None
    return Target(
        scheme="ws",
        host=hub.host,
        port=hub.port,
        base_path=target_path(session.sid),
        id=target_id(hub.id, pod.uid),
    )


def _why_not_yet(session: Session, record: JobRecord, pod: ObservedPod | None) -> str:
    if pod is None or record.state != "RUNNING":
        return record.message or "waiting in the queue"
    if not pod.running:
        return "preparing the container"
    return "no terminal hub is running" if session.kind == "terminal" else "the app is starting"
