"""A VolcanoJob as typed objects that plugins change, and its JSON.

Amounts are exact Kubernetes quantities: a container gets what the job requests. Empty fields are
left out, so that they do not override a default of the cluster by accident.

It also builds the rules of NetworkPolicies on a job's pods.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Decimal
from typing import Any, Final, TypeAlias

from controller.volcano.policies import Rule
from shared.networks import Network

_SUFFIXES: Final = {
    "m": Decimal("0.001"),
    "": Decimal(1),
    **{suffix: Decimal(10) ** (3 * power) for power, suffix in enumerate("kMGTPE", 1)},
    **{f"{suffix}i": Decimal(2) ** (10 * power) for power, suffix in enumerate("KMGTPE", 1)},
}
_QUANTITY: Final = re.compile(
    r"(\d{1,19}(?:\.\d{0,9})?|\.\d{1,9})(?:[eE]([+]?\d{1,2})|(m|k|M|G|T|P|E|[KMGTPE]i)?)", re.ASCII
)
_MEASURED: Final = re.compile(
    r"(\d{1,20}(?:\.\d{0,9})?)(?:[eE]([+-]?\d{1,2})|(n|u|m|k|M|G|T|P|E|[KMGTPE]i)?)", re.ASCII
)
_MEASURED_SUFFIXES: Final = {
    "n": 1e-9,
    "u": 1e-6,
    **{suffix: float(factor) for suffix, factor in _SUFFIXES.items()},
}
_LARGEST: Final = Decimal(2) ** 63 - 1
_LEAST_BANDWIDTH: Final = 10**3 * 1000
_MOST_BANDWIDTH: Final = 10**15 * 1000


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """An amount in thousandths, so that no fraction is rounded."""

    milli: int

    def __str__(self) -> str:
        """Return the amount as Kubernetes writes it: whole, or in thousandths."""
        whole, rest = divmod(self.milli, 1000)
        return f"{self.milli}m" if rest else _with_binary_suffix(whole)

    def decimal(self) -> str:
        """Return it with a decimal suffix, as bandwidth is written; whole numbers only."""
        whole = self.milli // 1000
        for power, suffix in ((5, "P"), (4, "T"), (3, "G"), (2, "M"), (1, "k")):
            if whole and whole % 1000**power == 0:
                return f"{whole // 1000**power}{suffix}"
        return str(whole)

    def __bool__(self) -> bool:
        return self.milli > 0


def parse_quantity(raw: str) -> Quantity:
    """Return the amount in *raw*.

    Raises:
        ValueError: If it is no quantity, negative, or beyond 2^63-1.
    """
    match = _QUANTITY.fullmatch(raw)
    if match is None:
        raise ValueError("not a quantity such as 2, 500m or 2Gi")
    factor = Decimal(10) ** int(match[2]) if match[2] else _SUFFIXES[match[3] or ""]
    value = Decimal(match[1]) * factor
    if value > _LARGEST:
        raise ValueError("the quantity is too large")
    # Kubernetes rounds up, too: nobody gets less than requested.
    return Quantity(int((value * 1000).to_integral_value(ROUND_CEILING)))


def parse_cpu(raw: str) -> Quantity:
    """Return an amount of processors, at least a thousandth of one.

    Raises:
        ValueError: If it is invalid.
    """
    quantity = parse_quantity(raw)
    if not quantity:
        raise ValueError("must be more than 0 processors")
    return quantity


def parse_memory(raw: str) -> Quantity:
    """Return an amount of memory in whole bytes, at least 4 MiB, below which nothing starts.

    Raises:
        ValueError: If it is invalid.
    """
    quantity = parse_quantity(raw)
    if quantity.milli % 1000:
        raise ValueError("must be whole bytes")
    if quantity.milli < 4 * 2**20 * 1000:
        raise ValueError("must be at least 4Mi")
    return quantity


def parse_size(raw: str) -> Quantity:
    """Return an amount of storage in whole bytes.

    Raises:
        ValueError: If it is invalid.
    """
    quantity = parse_quantity(raw)
    if not quantity or quantity.milli % 1000:
        raise ValueError("must be whole bytes, and more than 0")
    return quantity


def parse_bandwidth(raw: str) -> Quantity:
    """Return bits per second, from 1k to 1P, as the bandwidth plugin of Kubernetes accepts.

    Raises:
        ValueError: If it is invalid.
    """
    quantity = parse_quantity(raw)
    if not _LEAST_BANDWIDTH <= quantity.milli <= _MOST_BANDWIDTH or quantity.milli % 1000:
        raise ValueError("must be whole bits per second, from 1k to 1P")
    return quantity


def measured_amount(raw: object) -> float | None:
    """Return an amount that a server has measured; None if *raw* is none.

    Measurements are finer than requests: ``12345678n`` of a processor.
    """
    match = _MEASURED.fullmatch(raw) if isinstance(raw, str) else None
    if match is None:
        return None
    factor = 10.0 ** int(match[2]) if match[2] else _MEASURED_SUFFIXES[match[3] or ""]
    return float(match[1]) * factor


def _with_binary_suffix(whole: int) -> str:
    for power, suffix in ((4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki")):
        if whole and whole % 1024**power == 0:
            return f"{whole // 1024**power}{suffix}"
    return str(whole)


# The VolcanoJob


Json: TypeAlias = dict[str, Any]

API_VERSION: Final = "batch.volcano.sh/v1alpha1"
SCHEDULER: Final = "volcano"


@dataclass(slots=True, kw_only=True)
class Variable:
    """An environment variable: a value, a key of a Secret, or a field of the pod.

    ``value`` is escaped for the expansion of Kubernetes: see :func:`escape`.
    """

    name: str
    value: str | None = None
    secret: tuple[str, str] | None = None
    field: str | None = None

    def manifest(self) -> Json:
        """Return the JSON."""
        if self.field is not None:
            return {"name": self.name, "valueFrom": {"fieldRef": {"fieldPath": self.field}}}
        if self.secret is None:
            return {"name": self.name, "value": self.value or ""}
        name, key = self.secret
        return {"name": self.name, "valueFrom": {"secretKeyRef": {"name": name, "key": key}}}


def escape(value: str) -> str:
    """Return *value* so that the expansion of ``$(NAME)`` by Kubernetes yields exactly *value*.

    The expansion knows only ``$(NAME)``, and ``$$`` for ``$``. With every ``$`` doubled nothing is
    left to expand.
    """
    return value.replace("$", "$$")


def reference(variable: str) -> str:
    """Return the text that Kubernetes replaces by the value of *variable*."""
    return f"$({variable})"


@dataclass(slots=True, kw_only=True)
class Volume:
    """A volume: ``source`` is everything but its name."""

    name: str
    source: Json

    def manifest(self) -> Json:
        """Return the JSON."""
        return {"name": self.name, **self.source}


@dataclass(slots=True, kw_only=True)
class Mount:
    """A mount of a volume in a container."""

    volume: str
    path: str
    sub_path: str = ""
    read_only: bool = False

    def manifest(self) -> Json:
        """Return the JSON."""
        found: Json = {"name": self.volume, "mountPath": self.path}
        if self.sub_path:
            found["subPath"] = self.sub_path
        return {**found, "readOnly": True} if self.read_only else found


@dataclass(slots=True, kw_only=True)
class Port:
    """A port that a container declares."""

    name: str
    port: int

    def manifest(self) -> Json:
        """Return the JSON."""
        return {"name": self.name, "containerPort": self.port, "protocol": "TCP"}


@dataclass(slots=True, kw_only=True)
class Container:
    """A container; its requests are its limits, except ``requests``, which have no limits.

    ``more`` is added to it as it is.
    """

    name: str
    image: str
    resources: dict[str, Quantity]
    command: list[str] = field(default_factory=list)
    environment: list[Variable] = field(default_factory=list)
    ports: list[Port] = field(default_factory=list)
    mounts: list[Mount] = field(default_factory=list)
    working_directory: str | None = None
    readiness_probe: Json | None = None
    startup_probe: Json | None = None
    security_context: Json = field(default_factory=dict)
    requests: dict[str, Quantity] = field(default_factory=dict)
    more: Json = field(default_factory=dict)

    def manifest(self) -> Json:
        """Return the JSON."""
        requests = {name: str(amount) for name, amount in self.requests.items()}
        amounts = {name: str(amount) for name, amount in self.resources.items()}
        found = _without_empty(
            {
                "name": self.name,
                "image": self.image,
                "imagePullPolicy": "IfNotPresent",
                "command": list(self.command),
                "env": [one.manifest() for one in self.environment],
                "ports": [one.manifest() for one in self.ports],
                "volumeMounts": [one.manifest() for one in self.mounts],
                "workingDir": self.working_directory,
                "readinessProbe": self.readiness_probe,
                "startupProbe": self.startup_probe,
                "securityContext": dict(self.security_context),
                "resources": {"requests": amounts | requests, "limits": dict(amounts)},
            }
        )
        return found | self.more


@dataclass(slots=True, kw_only=True)
class PodTemplate:
    """The template of a task's pods; ``more`` is added to the pod's spec as it is."""

    containers: list[Container]
    init_containers: list[Container] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    volumes: list[Volume] = field(default_factory=list)
    security_context: Json = field(default_factory=dict)
    more: Json = field(default_factory=dict)

    def manifest(self) -> Json:
        """Return the JSON."""
        metadata = {"labels": dict(self.labels), "annotations": dict(self.annotations)}
        spec = {
            "initContainers": [one.manifest() for one in self.init_containers],
            "containers": [one.manifest() for one in self.containers],
            "volumes": [one.manifest() for one in self.volumes],
            "securityContext": dict(self.security_context),
            "schedulerName": SCHEDULER,
        }
        return {"metadata": _without_empty(metadata), "spec": _without_empty(spec) | self.more}


@dataclass(slots=True, kw_only=True)
class Task:
    """A group of equal pods.

    ``min_available`` of them make it run; None means all. Its pods are created once the tasks that
    it ``depends_on`` run.
    """

    name: str
    replicas: int
    template: PodTemplate
    min_available: int | None = None
    depends_on: tuple[str, ...] = ()
    policies: tuple[Rule, ...] = ()
    topology_policy: str | None = None

    def manifest(self) -> Json:
        """Return the JSON."""
        found = {
            "name": self.name,
            "replicas": self.replicas,
            "minAvailable": self.min_available,
            "policies": [rule.manifest() for rule in self.policies],
            "topologyPolicy": self.topology_policy,
        }
        if self.depends_on:
            found["dependsOn"] = {"name": list(self.depends_on), "iteration": "all"}
        return {**_without_empty(found), "template": self.template.manifest()}


@dataclass(slots=True, kw_only=True)
class VolcanoJob:
    """A VolcanoJob (``batch.volcano.sh/v1alpha1``).

    ``max_retry`` counts as Volcano does: N allows N-1 restarts, and 0 would be rewritten to 3.
    ``owner`` is another VolcanoJob that owns it.
    """

    name: str
    namespace: str
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    owner: Json | None = None
    queue: str = "default"
    min_available: int = 0
    max_retry: int = 1
    min_success: int | None = None
    priority_class: str | None = None
    policies: tuple[Rule, ...] = ()
    network_topology: Json | None = None
    retention_seconds: int = 3600
    plugins: dict[str, list[str]] = field(default_factory=dict)
    tasks: list[Task] = field(default_factory=list)

    def manifest(self) -> Json:
        """Return the JSON."""
        more = {
            "minSuccess": self.min_success,
            "priorityClassName": self.priority_class,
            "policies": [rule.manifest() for rule in self.policies],
            "networkTopology": self.network_topology,
        }
        owned = {} if self.owner is None else {"ownerReferences": [self.owner]}
        return {
            "apiVersion": API_VERSION,
            "kind": "Job",
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "labels": dict(self.labels),
                "annotations": dict(self.annotations),
                **owned,
            },
            "spec": {
                "schedulerName": SCHEDULER,
                "queue": self.queue,
                "minAvailable": self.min_available,
                "maxRetry": self.max_retry,
                "ttlSecondsAfterFinished": self.retention_seconds,
                "plugins": {name: list(given) for name, given in self.plugins.items()},
                **_without_empty(more),
                "tasks": [task.manifest() for task in self.tasks],
            },
        }


def _without_empty(fields: Json) -> Json:
    return {name: value for name, value in fields.items() if value not in (None, [], {})}


_LAST_PORT: Final = 65535

NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"
"""The API server sets it on every namespace, and nobody can give it to another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dns:
    """The cluster's name servers, as a NetworkPolicy selects them.

    A policy applies to the pods behind a Service: ``ports`` are the ports of the name servers'
    pods. ``networks`` are for name servers that are no pods, or run in the host network.
    """

    namespaces: tuple[str, ...]
    networks: tuple[Network, ...]
    ports: tuple[int, ...]


def pods_in(namespace: str, labels: Mapping[str, str]) -> Json:
    """Return the peer that selects pods with *labels* in *namespace*.

    Both selectors are in one entry: two entries would mean "or".
    """
    return {
        "namespaceSelector": {"matchLabels": {NAMESPACE_LABEL: namespace}},
        "podSelector": {"matchLabels": dict(labels)},
    }


def dns_rule(dns: Dns) -> Json:
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
) -> list[Json]:
    """Return the egress rule for *networks* except *without*; none without networks.

    With *blocked_ports* it names all other ports. Then only TCP, UDP and SCTP are admitted.
    """
    if not networks:
        return []
    rule: Json = {"to": [{"ipBlock": _block(one, without)} for one in networks]}
    if blocked_ports:
        others = [{"protocol": name, "port": 1, "endPort": _LAST_PORT} for name in ("UDP", "SCTP")]
        rule["ports"] = [*_all_but(blocked_ports), *others]
    return [rule]


def _all_but(ports: Sequence[int]) -> Iterator[Json]:
    first = 1
    for port in (*sorted(set(ports)), _LAST_PORT + 1):
        if first < port:
            yield {"protocol": "TCP", "port": first, "endPort": port - 1}
        first = port + 1


def server_rules(servers: Iterable[tuple[str, int]]) -> list[Json]:
    """Return egress rules for servers that are addresses: a policy cannot name hosts."""
    rules = []
    for host, port in servers:
        try:
            network = ipaddress.ip_network(host)
        except ValueError:
            continue
        rules.append(
            {
                "to": [{"ipBlock": {"cidr": str(network)}}],
                "ports": [{"protocol": "TCP", "port": port}],
            }
        )
    return rules


def _block(network: Network, without: Sequence[Network]) -> Json:
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
