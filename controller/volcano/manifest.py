"""A VolcanoJob as typed objects that plugins change, and its JSON; peers of NetworkPolicies.

Empty fields are left out, so that they do not override a default of the cluster by accident.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from controller.volcano.names import API_VERSION
from controller.volcano.policies import Rule
from controller.volcano.quantities import Quantity

Json: TypeAlias = dict[str, Any]

SCHEDULER: Final = "volcano"
NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"
"""The API server sets it on every namespace, and nobody can give it to another one."""


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


def pods_in(namespace: str, labels: Mapping[str, str]) -> Json:
    """Return the peer that selects pods with *labels* in *namespace*.

    Both selectors are in one entry: two entries would mean "or".
    """
    return {
        "namespaceSelector": {"matchLabels": {NAMESPACE_LABEL: namespace}},
        "podSelector": {"matchLabels": dict(labels)},
    }


def _without_empty(fields: Json) -> Json:
    return {name: value for name, value in fields.items() if value not in (None, [], {})}
