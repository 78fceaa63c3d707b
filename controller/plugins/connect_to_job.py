"""The job's network policies: its own pods, the jobs that it connects to, and the world.

Each side of a connection is restricted by a policy of its own job. When a peer ends, the job's
policy is applied anew and no longer admits the peer.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

from controller.jobs.pipeline.builder import Companion, JobBuilder
from controller.jobs.pipeline.plugin import JobFromServer, JobPlugin
from controller.jobs.spec.endpoints import declared_ports
from controller.jobs.spec.model import Job
from controller.jobs.spec.parameters import LicenceParameter
from controller.jobs.spec.problems import make_path
from controller.site.job_defaults import Dns
from controller.site.licences import LicenceServers
from controller.store.jobs.relations import Caller, Peer, basis_of
from controller.volcano.manifest import NAMESPACE_LABEL, pods_in
from controller.volcano.names import (
    TASK_INDEX_LABEL,
    TASK_LABEL,
    companion_name,
    labels_of,
    peer_service_name,
)
from shared.networks import Network, read_address

log = logging.getLogger(__name__)

_POLICY: Final = "network"
_LAST_PORT: Final = 65535
_TAKEN: Final = frozenset({"localhost"})


_NO_POLICY: Final = "--disable-network-policy=true"


class ConnectToJobPlugin(JobPlugin):
    """Connects jobs that name each other: policies, a Service for rank 0, host aliases.

    The acceptance of a job decides which jobs it may name.
    """

    name: ClassVar[str] = "connect_to_job"
    # It changes the arguments of Volcano's ``svc``, and the pods of the tasks.
    after: ClassVar[tuple[str, ...]] = ("task",)
    fields: ClassVar[frozenset[str]] = frozenset({"parameters.peer"})

    async def on_create(self, job: Job, builder: JobBuilder) -> None:
        """Add the job's policy, the Service by which others reach it, and its host aliases."""
        _check_hostnames(job, builder)
        _disable_volcanos_policy(builder)
        if not builder.submitted:
            self._check_licences(job, builder)
        if builder.accepted_in is None:
            return  # the jobs that it names are checked in the accepting transaction
        callers = await self.context.peers.callers_of(job.id)
        named = {one.job for one in job.peers().values()}
        peers = await self.context.peers.find(named) if named else {}
        builder.add_companion(self._policy(job, builder.volcano_job.namespace, peers, callers))
        if callers:
            builder.add_companion(self._service(job, callers))
        if not builder.submitted:
            _add_aliases(job, peers, builder)

    async def on_job_complete(self, job_id: str, job_from_server: JobFromServer) -> None:
        """Have the connected jobs revoke what they admit from this one."""
        if job_from_server.job.peers():
            await self.context.peers.has_ended(job_id)

    @property
    def _licence_servers(self) -> LicenceServers:
        jobs = self.context.jobs
        return LicenceServers(
            listed=jobs.licence_servers,
            reachable=jobs.egress_networks,
            exceptions=jobs.egress_except,
        )

    def _check_licences(self, job: Job, builder: JobBuilder) -> None:
        for name, licence in _licences(job).items():
            verdict = self._licence_servers.judge(licence.address, licence.port)
            if verdict == "refused":
                path = make_path(["parameters", name, "address"])
                builder.refuse(path, "is no licence server of this deployment")
            elif verdict == "unlisted":
                log.warning(
                    "a licence server stays closed: FUMAROLE_CONTROLLER_LICENCE_SERVERS is not set",
                    extra={"job": job.id, "parameter": name, "address": licence.address},
                )

    def _policy(
        self, job: Job, namespace: str, peers: Mapping[str, Peer], callers: Sequence[Caller]
    ) -> Companion:
        own = labels_of(self.context.instance, job.id)
        places = {one.job_id: one.namespace for one in peers.values()}
        places |= {one.job_id: one.namespace for one in callers}
        near = [pods_in(namespace, own)]
        near += [
            pods_in(where, labels_of(self.context.instance, other))
            for other, where in sorted(places.items())
            if other != job.id
        ]
        jobs = self.context.jobs
        spec: dict[str, Any] = {
            "podSelector": {"matchLabels": own},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": near}],
            "egress": [
                {"to": near},
                dns_rule(jobs.dns),
                *network_rules(
                    jobs.egress_networks,
                    jobs.egress_except,
                    blocked_ports=jobs.egress_blocked_ports,
                ),
                *server_rules(
                    (one.address, one.port)
                    for one in _licences(job).values()
                    if self._licence_servers.judge(one.address, one.port) == "opened"
                ),
            ],
        }
        return Companion(
            kind="NetworkPolicy",
            name=companion_name(job.id, _POLICY),
            manifest={"spec": spec},
            # A restriction comes before the VolcanoJob: no pod ever runs without it.
            when="before",
            basis=basis_of(callers),
        )

    def _service(self, job: Job, callers: Sequence[Caller]) -> Companion:
        task = job.task_of(0)
        ports = sorted({port for one in callers for port in one.ports} | set(declared_ports(job)))
        selector = labels_of(self.context.instance, job.id)
        spec = {
            "type": "ClusterIP",
            "selector": {**selector, TASK_LABEL: task, TASK_INDEX_LABEL: "0"},
            "ports": [{"name": f"p{port}", "port": port, "protocol": "TCP"} for port in ports],
            # The probe of one port does not show the state of the others.
            "publishNotReadyAddresses": True,
        }
        return Companion(
            kind="Service",
            name=peer_service_name(job.id),
            manifest={"spec": spec},
            # Two jobs that name each other each wait for the other's address.
            when="before",
            lasting=True,
        )


def _disable_volcanos_policy(builder: JobBuilder) -> None:
    """Turn off the NetworkPolicy of Volcano's ``svc`` plugin: ours also admits the job's own pods.

    This saves an object for each job.
    """
    arguments = builder.volcano_job.plugins.get("svc")
    if arguments is not None and _NO_POLICY not in arguments:
        arguments.append(_NO_POLICY)


def _check_hostnames(job: Job, builder: JobBuilder) -> None:
    seen: dict[str, str] = {}
    for name, parameter in job.peers().items():
        path = make_path(["parameters", name])
        if parameter.job == job.id:
            builder.refuse(f"{path}.job", "is this job itself")
        if parameter.hostname in _TAKEN or parameter.hostname.startswith(f"j-{job.id}-"):
            builder.refuse(f"{path}.hostname", "is a name of the job's own pods")
        if seen.setdefault(parameter.hostname, parameter.job) != parameter.job:
            builder.refuse(f"{path}.hostname", "is another peer's already")


def _add_aliases(job: Job, peers: Mapping[str, Peer], builder: JobBuilder) -> None:
    aliases: dict[str, set[str]] = {}
    for name, parameter in job.peers().items():
        peer = peers.get(parameter.job)
        if peer is None or peer.ended:
            builder.refuse(f"{make_path(['parameters', name])}.job", "the job has ended")
        elif peer.address is None:
            builder.wait_for(f"the address of the job {parameter.job}")
        else:
            aliases.setdefault(peer.address, set()).add(parameter.hostname)
    if not aliases:
        return
    entries = [
        {"ip": address, "hostnames": sorted(names)} for address, names in sorted(aliases.items())
    ]
    for task in builder.volcano_job.tasks:
        task.template.more["hostAliases"] = entries


def _licences(job: Job) -> dict[str, LicenceParameter]:
    return {
        name: parameter
        for name, parameter in job.parameters.items()
        if isinstance(parameter, LicenceParameter)
    }


# Rules of the policy


def dns_rule(dns: Dns) -> dict[str, Any]:
    """Return the egress rule for name resolution in the cluster."""
    pods = [
        {"namespaceSelector": {"matchLabels": {NAMESPACE_LABEL: name}}} for name in dns.namespaces
    ]
    blocks = [{"ipBlock": {"cidr": str(network)}} for network in dns.networks]
    ports = [
        {"protocol": protocol, "port": port} for port in dns.ports for protocol in ("UDP", "TCP")
    ]
    return {"to": [*pods, *blocks], "ports": ports}


def network_rules(
    networks: Sequence[Network], without: Sequence[Network], *, blocked_ports: Sequence[int] = ()
) -> list[dict[str, Any]]:
    """Return the egress rule for *networks* except *without*; none without networks.

    With *blocked_ports* it names all other ports. Then only TCP, UDP and SCTP are admitted.
    """
    if not networks:
        return []
    rule: dict[str, Any] = {"to": [{"ipBlock": _block(one, without)} for one in networks]}
    if blocked_ports:
        others = [{"protocol": name, "port": 1, "endPort": _LAST_PORT} for name in ("UDP", "SCTP")]
        rule["ports"] = [*_all_but(blocked_ports), *others]
    return [rule]


def _all_but(ports: Sequence[int]) -> Iterator[dict[str, Any]]:
    first = 1
    for port in (*sorted(set(ports)), _LAST_PORT + 1):
        if first < port:
            yield {"protocol": "TCP", "port": first, "endPort": port - 1}
        first = port + 1


def server_rules(servers: Iterable[tuple[str, int]]) -> list[dict[str, Any]]:
    """Return egress rules for servers that are addresses: a policy cannot name hosts."""
    rules = []
    for host, port in servers:
        if (address := read_address(host)) is None:
            continue
        rules.append(
            {
                "to": [{"ipBlock": {"cidr": f"{address}/{address.max_prefixlen}"}}],
                "ports": [{"protocol": "TCP", "port": port}],
            }
        )
    return rules


def _block(network: Network, without: Sequence[Network]) -> dict[str, Any]:
    # The API server accepts only exceptions within the network.
    within = [
        str(one)
        for one in without
        if one.version == network.version and one != network and _is_within(one, network)
    ]
    return {"cidr": str(network), **({"except": within} if within else {})}


def _is_within(one: Network, other: Network) -> bool:
    if isinstance(one, ipaddress.IPv4Network) and isinstance(other, ipaddress.IPv4Network):
        return one.subnet_of(other)
    if isinstance(one, ipaddress.IPv6Network) and isinstance(other, ipaddress.IPv6Network):
        return one.subnet_of(other)
    return False
