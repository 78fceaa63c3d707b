"""Addresses that are a job's own: a Service for each rank that people reach.

A pod's address is the network plugin's, which may give it to another pod before anybody is told.
A Service's stays with the job; what is behind it is for the cluster itself to keep up.
"""

from __future__ import annotations

from dataclasses import dataclass

from controller.jobs.spec.model import Job
from controller.volcano.names import rank_service_name


@dataclass(frozen=True, slots=True, kw_only=True)
class RankService:
    """What leads to the pod at one rank: ``index`` within ``task``, at the same ``ports``."""

    name: str
    task: str
    index: int
    ports: tuple[int, ...]


def ports_at(job: Job, task: str) -> tuple[int, ...]:
    """Return the ports that the job declares for the replicas of *task*, in order."""
    declared = {one.port for one in job.interactive.values() if one.task in (None, task)}
    return tuple(sorted(declared))


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
