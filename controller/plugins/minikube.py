"""Exposes a job outside of a cluster on a developer's machine, bypassing the gateway.

It is for trials: anybody who reaches the address reaches the app, without authentication. So it is
off by default, and cannot be enabled if the public URL is not local.
"""

from __future__ import annotations

from typing import ClassVar

from controller.jobs.pipeline.builder import Companion, JobBuilder
from controller.jobs.pipeline.plugin import JobPlugin
from controller.jobs.spec.model import Endpoint, Job
from controller.volcano.names import TASK_INDEX_LABEL, TASK_LABEL, companion_name, labels_of

PUBLIC_PORT = 80


class MinikubePlugin(JobPlugin):
    """Adds a LoadBalancer for the first rank's web endpoint, else its VNC endpoint."""

    name: ClassVar[str] = "minikube"

    async def on_create(self, job: Job, builder: JobBuilder) -> None:
        """Add the Service, and the policy that admits its traffic."""
        endpoint = _first(job)
        if not self.context.jobs.pods.minikube or endpoint is None:
            return
        task = endpoint.task or job.effective_tasks[0].name
        pods = {
            **labels_of(self.context.instance, job.id),
            TASK_LABEL: task,
            TASK_INDEX_LABEL: "0",
        }
        port = {"name": "app", "port": PUBLIC_PORT, "targetPort": endpoint.port, "protocol": "TCP"}
        spec = {"type": "LoadBalancer", "selector": pods, "ports": [port]}
        builder.add_companion(
            Companion(
                kind="Service", name=service_name(job.id), manifest={"spec": spec}, when="after"
            )
        )
        rule = {"ports": [{"port": endpoint.port, "protocol": "TCP"}]}
        policy = {
            "podSelector": {"matchLabels": pods},
            "policyTypes": ["Ingress"],
            "ingress": [rule],
        }
        builder.add_companion(
            Companion(
                kind="NetworkPolicy",
                name=companion_name(job.id, "minikube"),
                manifest={"spec": policy},
                when="after",
            )
        )


def service_name(job_id: str) -> str:
    """Return the Service's name: without a dot, and with a prefix of its own."""
    return f"mk-{job_id}"


def _first(job: Job) -> Endpoint | None:
    for kind in ("web", "vnc"):
        for endpoint in job.interactive.values():
            if endpoint.kind == kind:
                return endpoint
    return None
