"""Makes the job reachable: readiness, access for the gateways, and its sessions' routes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from controller.jobs.pipeline.builder import Companion, JobBuilder
from controller.jobs.pipeline.plugin import JobFromServer, JobPlugin
from controller.jobs.spec.endpoints import RankService, rank_services_of
from controller.jobs.spec.model import Endpoint, Job
from controller.jobs.spec.parameters import SecretParameter
from controller.volcano.manifest import Container, Port, Variable, escape, pods_in
from controller.volcano.names import TASK_INDEX_LABEL, TASK_LABEL, companion_name, labels_of

_POLICY: Final = "gateway"
_NEVER: Final = 2**31 - 1
"""The most failures in a row that a probe can name: 68 years."""


class ProxyPlugin(JobPlugin):
    """Declares and probes the endpoints, admits the gateways, and ends sessions in time.

    Routes are computed from sessions and pods only. This plugin has them compared when the job
    starts, and ends the sessions when the job is over.
    """

    name: ClassVar[str] = "proxy"
    # Last: it exposes the job, and at clean-up no route to it may be left.
    after: ClassVar[tuple[str, ...]] = ("task", "minikube", "*")
    fields: ClassVar[frozenset[str]] = frozenset({"interactive"})

    async def on_create(self, job: Job, builder: JobBuilder) -> None:
        """Add ports, a probe, the policy that admits the gateways, and Services."""
        _check(job, builder)
        for task in builder.volcano_job.tasks:
            endpoints, probed = job.endpoints_of(task.name), job.probed_endpoint(task.name)
            container = builder.container(task.name)
            _declare(endpoints, container)
            if probed is not None:
                container.startup_probe = _probe(probed.port)
            self._tell_urls(job, builder, container)
        builder.add_companion(self._policy(job))
        if self.context.jobs.rank_services:
            for service in rank_services_of(job):
                builder.add_companion(self._service(job, service))

    async def on_job_start(self, job_id: str, job_from_server: JobFromServer) -> float | None:
        """Have the routes compared with the published ones."""
        await self.context.sessions.routes_may_have_changed(job_id)
        return None

    async def on_job_complete(self, job_id: str, job_from_server: JobFromServer) -> None:
        """End the job's sessions: connected users learn that it is over."""
        await self.context.sessions.end_sessions(job_id, reason="job ended")

    async def on_cleanup(self, job_id: str) -> None:
        """End sessions that were opened since."""
        await self.context.sessions.end_sessions(job_id, reason="job ended")

    def _tell_urls(self, job: Job, builder: JobBuilder, container: Container) -> None:
        for name in job.endpoints_with_url():
            variable = f"FUMAROLE_URL_{name.upper().replace('-', '_')}"
            # The session is created at the acceptance.
            sid = builder.sids.get(name)
            url = self.context.jobs.session_url.format(sid=sid) if sid is not None else ""
            container.environment.append(Variable(name=variable, value=escape(url)))

    def _policy(self, job: Job) -> Companion:
        # All ports, not only the declared ones: a session may be opened to any port of a job, and
        # the gateway is trusted to authorise it. This policy adds to that of connect_to_job, which
        # admits the job's own pods.
        jobs = self.context.jobs
        gateways = [
            pods_in(jobs.gateway_namespace, dict(jobs.gateway_labels)),
            *({"ipBlock": {"cidr": str(one)}} for one in jobs.gateway_networks),
        ]
        spec: dict[str, Any] = {
            "podSelector": {"matchLabels": labels_of(self.context.instance, job.id)},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": gateways}],
        }
        return Companion(
            kind="NetworkPolicy",
            name=companion_name(job.id, _POLICY),
            manifest={"spec": spec},
            when="after",
        )

    def _service(self, job: Job, service: RankService) -> Companion:
        selector = labels_of(self.context.instance, job.id)
        spec: dict[str, Any] = {
            "type": "ClusterIP",
            "selector": {
                **selector,
                TASK_LABEL: service.task,
                TASK_INDEX_LABEL: str(service.index),
            },
            "ports": [
                {"name": f"p{port}", "port": port, "protocol": "TCP"} for port in service.ports
            ],
            # A pod that is not ready, or is being deleted, gets no traffic.
            "publishNotReadyAddresses": False,
        }
        return Companion(
            kind="Service",
            name=service.name,
            manifest={"spec": spec},
            # Without its address nobody reaches the pod. If a quota refuses the Service, the job
            # waits instead of running unreachably.
            when="before",
        )


def _check(job: Job, builder: JobBuilder) -> None:
    names = [task.name for task in job.effective_tasks]
    for name, endpoint in job.interactive.items():
        path = f"interactive.{name}"
        if endpoint.task is not None and endpoint.task not in names:
            builder.refuse(f"{path}.task", "there is no such task")
        if endpoint.url and endpoint.task not in (None, names[0]):
            builder.refuse(f"{path}.url", f"only rank 0 has one, which is of the task {names[0]}")
        password = endpoint.password
        if password is None:
            continue
        if password.parameter not in job.parameters:
            builder.refuse(f"{path}.password.parameter", "there is no such parameter")
        elif not isinstance(job.parameters[password.parameter], SecretParameter):
            builder.refuse(f"{path}.password.parameter", "is not a secret parameter")


def _declare(endpoints: Mapping[str, Endpoint], container: Container) -> None:
    # Each number once, by the name of its first endpoint. In a pod Kubernetes accepts it twice, but
    # in the schema of a VolcanoJob it is the key of the list.
    declared = {one.port for one in container.ports}
    for name, endpoint in endpoints.items():
        if endpoint.port not in declared:
            declared.add(endpoint.port)
            container.ports.append(Port(name=name, port=endpoint.port))


def _probe(port: int) -> dict[str, Any]:
    # A TCP connection suffices: an app may respond 401 without its cookie. The probe runs every
    # second, since users wait, until it succeeds, and again after each restart of the container. A
    # readiness probe would run as long as the job, and fill the log of the app. The kubelet kills a
    # container whose startup probe fails too often, so no number of failures is too many.
    return {
        "tcpSocket": {"port": port},
        "periodSeconds": 1,
        "timeoutSeconds": 2,
        "successThreshold": 1,
        "failureThreshold": _NEVER,
    }
