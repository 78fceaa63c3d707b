"""Which of a task's endpoints says when its pods are ready. No I/O."""

from __future__ import annotations

from controller.jobs.spec.model import Endpoint, Job


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
