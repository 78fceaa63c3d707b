"""The route of a session: a function of its row, its job, and the pod at its rank.

A route follows one pod. It is ready only while the pod is, and has no target as soon as the pod
terminates: an address is never remembered. If ranks have Services, the address is that of the
rank's Service, which belongs to the job. Only one endpoint of a pod is probed. The others do not
wait for it, and pages retry until they respond.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Final, Literal, TypeAlias

from controller.jobs.spec.endpoints import link_host
from controller.sessions.service import host_of
from controller.sessions.terminals import target_id, target_path
from controller.store.instance import Hub
from controller.store.jobs.job_rows import JobRecord
from controller.store.sessions.session_rows import Session
from controller.volcano.names import rank_service_name
from controller.volcano.observed import ObservedPod, ObservedService
from shared.routes.route import Route, Scheme, Target

Reach: TypeAlias = ObservedService | Literal["pod"] | None

_SCHEMES: Final[dict[str, Scheme]] = {"web": "http", "vnc": "tcp"}


def service_at(
    rank: int, *, record: JobRecord, services: Iterable[ObservedService]
) -> ObservedService | None:
    """Return the Service of the job's current attempt that selects only the pod at *rank*."""
    name = rank_service_name(record.id, rank)
    for one in services:
        mine = record.uid in one.owners and not one.deleting
        if mine and (one.namespace, one.name) == (record.namespace, name):
            return one
    return None


def may_have_shell(pod: ObservedPod | None) -> bool:
    """Return whether a shell can be opened in *pod*: its program runs, ready or not."""
    return pod is not None and pod.phase == "Running" and pod.running


def choose_hub(sid: str, hubs: Mapping[str, Hub]) -> Hub:
    """Return the hub of the session: the same one while it lives, evenly spread."""
    # Rendezvous hashing: if a hub fails, only its own terminals move.
    return max(hubs.values(), key=lambda hub: sha256(f"{hub.id}/{sid}".encode()).digest())


def route_of(
    session: Session,
    *,
    record: JobRecord,
    pod: ObservedPod | None,
    hub: Hub | None,
    base_domain: str,
    by: Reach = "pod",
    probed_port: int | None = None,
) -> Route | None:
    """Return the session's route, or None if the session has ended with its job.

    ``rev`` is 0 and nothing is sealed: the publisher sets both. *hub* is the live hub that a
    terminal is assigned to, if there is one. *by* is the way to the pod's ports: the pod's own
    address or its rank's Service, None while there is no Service. *probed_port* is the port of the
    readiness probe, if there is one.
    """
    if session.ended_at is not None or record.is_final or record.desired == "ended":
        return None
    if session.kind == "terminal":
        target = _shell(session, pod, hub)
    else:
        target = _port(session, pod, by, probed_port)
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
        clipboard=session.clipboard,
        service_workers=session.service_workers,
        target=target,
        state="starting" if target is None else "ready",
        message=_why_not_yet(session, record, pod) if target is None else None,
    )


def _port(
    session: Session, pod: ObservedPod | None, by: Reach, probed_port: int | None
) -> Target | None:
    if pod is None or not pod.address or session.port is None:
        return None
    if not pod.ready and not (by == "pod" and _lacks_another(session, pod, probed_port)):
        return None
    address = pod.address if by == "pod" else _address_of(by, session.port)
    if not address:
        return None
    return Target(
        scheme=_SCHEMES[session.kind],
        host=address,
        port=session.port,
        base_path=session.base_path,
        id=pod.uid,
    )


def _lacks_another(session: Session, pod: ObservedPod, probed_port: int | None) -> bool:
    """Return whether the pod is not ready only because another of its ports does not respond."""
    # A pod that is not ready although its container responds is on a failed node. (A Service
    # has no endpoint that is not ready, whatever the reason.)
    return session.port != probed_port and pod.running and not pod.answers


def _address_of(service: ObservedService | None, port: int) -> str | None:
    return service.address if service is not None and port in service.ports else None


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
    if session.kind == "terminal":
        return "no terminal hub is running"
    return "the address is being prepared" if pod.ready and pod.address else "the app is starting"
