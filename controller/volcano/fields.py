"""The fields of each kind that are decoded; an informer's cache holds no others.

A shape names the fields of an object. A field is decoded whole, unless it has a shape of its own:
that of its object, or of each object in its list. A field that new code reads has to be declared
here: a test reads samples whole and trimmed, and compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

Shape: TypeAlias = "Mapping[str, Shape | list[Shape] | None]"


def _whole(*names: str) -> dict[str, Shape | list[Shape] | None]:
    return dict.fromkeys(names)


# Without managedFields, which are often half of an object.
METADATA: Final[Shape] = _whole(
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
)
ONLY_METADATA: Final[Shape] = {"metadata": METADATA}

# Without lastProbeTime.
_CONDITION: Final[Shape] = _whole("type", "status", "reason", "message", "lastTransitionTime")
_ENDED: Final[Shape] = _whole("exitCode", "signal", "reason", "message", "startedAt", "finishedAt")
_STATE: Final[Shape] = {**_whole("waiting", "running"), "terminated": _ENDED}
_CONTAINER_STATUS: Final[Shape] = {**_whole("name", "image", "ready"), "state": _STATE}

# A tenth of the 12 KB of a pod.
POD: Final[Shape] = {
    "metadata": METADATA,
    "spec": {
        **_whole("nodeName", "readinessGates"),
        "containers": [{"name": None, "resources": _whole("limits")}],
        "initContainers": [_whole("name", "restartPolicy")],
    },
    "status": {
        **_whole("phase", "reason", "message", "podIP"),
        "conditions": [_CONDITION],
        "containerStatuses": [_CONTAINER_STATUS],
        "initContainerStatuses": [_CONTAINER_STATUS],
    },
}

# Without the templates of the tasks.
VOLCANO_JOB: Final[Shape] = {
    "metadata": {**METADATA, "finalizers": None},
    "spec": {**_whole("maxRetry", "policies", "queue"), "tasks": [_whole("policies")]},
    "status": {
        "state": _whole("phase", "reason", "message", "lastTransitionTime"),
        "retryCount": None,
        "conditions": [_whole("status")],
    },
}

SERVICE: Final[Shape] = {"metadata": METADATA, "spec": _whole("clusterIP", "ports")}

# Without the list of images, which is most of a node.
NODE: Final[Shape] = {
    "metadata": METADATA,
    "spec": _whole("unschedulable"),
    "status": {"allocatable": None, "conditions": [_whole("type", "status")]},
}

POD_METRICS: Final[Shape] = {"metadata": METADATA, "containers": None}
