"""The fields of each kind that ``observed`` reads; an informer's cache never holds any other.

A field without a type of its own is kept whole. One that is read anew has to be declared here: a
test reads samples whole and trimmed, and compares.
"""

from __future__ import annotations

from typing import Any, TypedDict


class Metadata(TypedDict, total=False):
    """What is read of an object's metadata; not ``managedFields``, which are often half of it."""

    name: Any
    namespace: Any
    uid: Any
    resourceVersion: Any
    creationTimestamp: Any
    deletionTimestamp: Any
    deletionGracePeriodSeconds: Any
    labels: Any
    annotations: Any
    ownerReferences: Any


class OnlyMetadata(TypedDict):
    """An object of which nothing else is read."""

    metadata: Metadata


class Condition(TypedDict, total=False):
    """A condition, without the time at which it was looked at last."""

    type: Any
    status: Any
    reason: Any
    message: Any
    lastTransitionTime: Any


class Terminated(TypedDict, total=False):
    """How a container ended."""

    exitCode: Any
    signal: Any
    reason: Any
    message: Any
    startedAt: Any
    finishedAt: Any


class ContainerState(TypedDict, total=False):
    """What a container does."""

    waiting: Any
    running: Any
    terminated: Terminated | None


class ContainerStatus(TypedDict, total=False):
    """A container of a pod."""

    name: Any
    image: Any
    ready: Any
    state: ContainerState | None


class PodStatus(TypedDict, total=False):
    """What the kubelet and the scheduler say."""

    phase: Any
    reason: Any
    message: Any
    podIP: Any
    conditions: list[Condition] | None
    containerStatuses: list[ContainerStatus] | None
    initContainerStatuses: list[ContainerStatus] | None


class Resources(TypedDict, total=False):
    """What a container may take."""

    limits: Any


class Container(TypedDict, total=False):
    """A container as it was asked for."""

    name: Any
    resources: Resources | None


class InitContainer(TypedDict, total=False):
    """A container that prepares the pod, or a sidecar, which is restarted as long as it lives."""

    name: Any
    restartPolicy: Any


class PodSpec(TypedDict, total=False):
    """Where the pod is, and what it may take."""

    nodeName: Any
    readinessGates: Any
    containers: list[Container] | None
    initContainers: list[InitContainer] | None


class Pod(TypedDict, total=False):
    """A pod: a tenth of its 12 KB."""

    metadata: Metadata
    spec: PodSpec | None
    status: PodStatus | None


class Policies(TypedDict, total=False):
    """A task of a VolcanoJob: its policies, and not its pods' template."""

    policies: Any


class VolcanoJobSpec(TypedDict, total=False):
    """What a VolcanoJob was given."""

    maxRetry: Any
    policies: Any
    queue: Any
    tasks: list[Policies] | None


class VolcanoJobState(TypedDict, total=False):
    """The phase that a VolcanoJob is in."""

    phase: Any
    reason: Any
    message: Any
    lastTransitionTime: Any


class PhaseCondition(TypedDict, total=False):
    """A phase that a VolcanoJob came to."""

    status: Any


class VolcanoJobStatus(TypedDict, total=False):
    """What Volcano's job controller says."""

    state: VolcanoJobState | None
    retryCount: Any
    conditions: list[PhaseCondition] | None


class VolcanoJob(TypedDict, total=False):
    """A VolcanoJob, without its tasks' templates."""

    metadata: Metadata
    spec: VolcanoJobSpec | None
    status: VolcanoJobStatus | None


class ServiceSpec(TypedDict, total=False):
    """Where a Service is reached."""

    clusterIP: Any
    ports: Any


class Service(TypedDict, total=False):
    """A Service."""

    metadata: Metadata
    spec: ServiceSpec | None
