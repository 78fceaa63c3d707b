"""The endpoints of a job's ranks, and the addresses at which they are reached. No I/O.

A pod's address is the network plugin's, which may give it to another pod before anybody is told.
A Service's stays with the job; what is behind it is for the cluster itself to keep up.
"""

from __future__ import annotations

from dataclasses import dataclass

from controller.jobs.spec.model import Endpoint, Job
from controller.volcano.names import rank_service_name


def endpoints_of(job: Job, task: str) -> dict[str, Endpoint]:
    """Return the endpoints of the pods of *task*, by name."""
    return {name: one for name, one in job.interactive.items() if one.task in (None, task)}


def with_url(job: Job) -> dict[str, Endpoint]:
    """Return the endpoints of rank 0 whose sessions are made with the job, by name."""
    return {name: one for name, one in job.interactive.items() if one.url}


def probed_endpoint(job: Job, task: str) -> Endpoint | None:
    """Return the one whose readiness is the pod's: a container has one readiness probe.

    The first that is no desktop, if there is one: VNC servers lock out those that connect and say
    nothing, which is what a probe does. The others' routes do not wait for it (see
    :func:`controller.sessions.routes.route_of`).
    """
    endpoints = endpoints_of(job, task).values()
    return min(endpoints, key=lambda endpoint: endpoint.kind == "vnc", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankService:
    """What leads to the pod at one rank: ``index`` within ``task``, at the same ``ports``."""

    name: str
    task: str
    index: int
    ports: tuple[int, ...]


def ports_at(job: Job, task: str) -> tuple[int, ...]:
    """Return the ports that the job declares for the replicas of *task*, in order."""
    return tuple(sorted({one.port for one in endpoints_of(job, task).values()}))


def rank_services_of(job: Job) -> tuple[RankService, ...]:
    """Return a Service for each rank that declares an endpoint, in the order of ranks."""
    return tuple(
        RankService(
            name=rank_service_name(job.id, task.first + index),
            task=task.name,
            index=index,
            ports=ports,
        )
        for task in job.effective_tasks
        if (ports := ports_at(job, task.name))
        for index in range(task.replicas)
    )
