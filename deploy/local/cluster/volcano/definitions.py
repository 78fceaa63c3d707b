"""Volcano's kinds as CustomResourceDefinitions: the fields, defaults and bounds of release 1.15."""

from typing import Any, Final

from deploy.local.cluster.client import Resource

Object = dict[str, Any]
BATCH: Final = "batch.volcano.sh/v1alpha1"
BUS: Final = "bus.volcano.sh/v1alpha1"
SCHEDULING: Final = "scheduling.volcano.sh/v1beta1"
JOBS: Final = Resource(BATCH, "jobs")
COMMANDS: Final = Resource(BUS, "commands")
POD_GROUPS: Final = Resource(SCHEDULING, "podgroups")
QUEUES: Final = Resource(SCHEDULING, "queues", namespaced=False)
DEFINITIONS: Final = Resource(
    "apiextensions.k8s.io/v1", "customresourcedefinitions", namespaced=False
)

EVENTS: Final = (
    "*",
    "PodPending",
    "PodRunning",
    "PodFailed",
    "PodEvicted",
    "Unknown",
    "TaskCompleted",
    "OutOfSync",
    "CommandIssued",
    "JobUpdated",
    "TaskFailed",
)
_STRING: Final[Object] = {"type": "string"}
_INTEGER: Final[Object] = {"type": "integer", "format": "int32"}
_NATURAL: Final[Object] = {**_INTEGER, "minimum": 0}
_POSITIVE: Final[Object] = {**_INTEGER, "minimum": 1}
_STRINGS: Final[Object] = {"type": "array", "items": _STRING}
_TEXTS: Final[Object] = {"type": "object", "additionalProperties": _STRING}
_LABEL: Final = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_AMOUNT: Final[Object] = {"x-kubernetes-int-or-string": True}
_AMOUNTS: Final[Object] = {"type": "object", "additionalProperties": _AMOUNT}
_ANYTHING: Final[Object] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def _fields(**properties: Object) -> Object:
    return {"type": "object", "properties": properties}


def _list(item: Object, **rest: Any) -> Object:
    return {"type": "array", "items": item, **rest}


_POLICIES: Final = _list(
    _fields(
        action=_STRING,
        event={**_STRING, "enum": list(EVENTS)},
        events=_list({**_STRING, "enum": list(EVENTS)}),
        exitCode=_INTEGER,
        timeout=_STRING,
    )
)
_TOPOLOGY: Final = _fields(
    mode={**_STRING, "enum": ["hard", "soft"], "default": "hard"},
    highestTierAllowed=_INTEGER,
    highestTierName=_STRING,
)


def _keyed(*keys: str, **properties: Object) -> Object:
    """Return the schema of a list in which no two items have the same *keys*."""
    item = {**_ANYTHING, "properties": properties} if properties else _ANYTHING
    return _list(item, **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [*keys]})


_CONTAINERS: Final = _keyed(
    "name",
    env=_keyed("name"),
    ports=_keyed("containerPort", "protocol", protocol={**_STRING, "default": "TCP"}),
    volumeMounts=_keyed("mountPath"),
)
_TEMPLATE: Final = _fields(
    metadata=_fields(
        name=_STRING, namespace=_STRING, labels=_TEXTS, annotations=_TEXTS, finalizers=_STRINGS
    ),
    spec={
        **_ANYTHING,
        "properties": {
            **dict.fromkeys(("containers", "initContainers"), _CONTAINERS),
            **dict.fromkeys(("imagePullSecrets", "volumes"), _keyed("name")),
            "hostAliases": _keyed("ip"),
        },
    },
)
_TASK: Final = _fields(
    name={**_STRING, "maxLength": 63, "pattern": _LABEL},
    replicas=_NATURAL,
    minAvailable=_NATURAL,
    template=_TEMPLATE,
    policies=_POLICIES,
    maxRetry=_NATURAL,
    dependsOn=_fields(name=_STRINGS, iteration=_STRING),
    topologyPolicy={
        **_STRING,
        "enum": ["none", "best-effort", "restricted", "single-numa-node"],
    },
    partitionPolicy=_fields(
        totalPartitions=_POSITIVE,
        partitionSize=_POSITIVE,
        minPartitions=_POSITIVE,
        networkTopology=_TOPOLOGY,
    ),
)
_VOLUME: Final[Object] = {
    **_fields(
        mountPath={**_STRING, "minLength": 1, "pattern": "^[^:]*$"},
        volumeClaimName=_STRING,
        volumeClaim=_ANYTHING,
    ),
    "required": ["mountPath"],
}
_JOB: Final = _fields(
    spec=_fields(
        schedulerName={**_STRING, "maxLength": 63},
        queue={**_STRING, "default": "default", "maxLength": 63},
        minAvailable=_NATURAL,
        minSuccess=_POSITIVE,
        maxRetry=_NATURAL,
        ttlSecondsAfterFinished=_NATURAL,
        priorityClassName={**_STRING, "maxLength": 253},
        runningEstimate=_STRING,
        policies=_POLICIES,
        plugins={"type": "object", "additionalProperties": _STRINGS},
        volumes=_list(_VOLUME),
        networkTopology=_TOPOLOGY,
        tasks=_list(_TASK, minItems=1),
    ),
    status=_fields(
        state=_fields(phase=_STRING, reason=_STRING, message=_STRING, lastTransitionTime=_STRING),
        pending=_INTEGER,
        running=_INTEGER,
        succeeded=_INTEGER,
        failed=_INTEGER,
        terminating=_INTEGER,
        unknown=_INTEGER,
        minAvailable=_INTEGER,
        version=_INTEGER,
        retryCount=_INTEGER,
        runningDuration=_STRING,
        taskStatusCount={
            "type": "object",
            "additionalProperties": _fields(
                phase={"type": "object", "additionalProperties": _INTEGER}
            ),
        },
        controlledResources=_TEXTS,
        conditions=_list(_fields(status=_STRING, lastTransitionTime=_STRING)),
    ),
)
_COMMAND: Final = _fields(
    action=_STRING,
    target=_fields(
        apiVersion=_STRING,
        kind=_STRING,
        name=_STRING,
        uid=_STRING,
        controller={"type": "boolean"},
        blockOwnerDeletion={"type": "boolean"},
    ),
    reason=_STRING,
    message=_STRING,
)
_QUEUE: Final = _fields(
    spec={
        **_fields(
            weight={**_POSITIVE, "default": 1, "maximum": 65535},
            capability=_AMOUNTS,
            deserved=_AMOUNTS,
            guarantee=_fields(resource=_AMOUNTS),
            reclaimable={"type": "boolean"},
            affinity=_ANYTHING,
            parent=_STRING,
            priority=_NATURAL,
            dequeueStrategy={**_STRING, "enum": ["traverse", "fifo"], "default": "traverse"},
            extendClusters=_list(_ANYTHING),
            type=_STRING,
        ),
        "default": {},
    },
    status=_fields(
        state=_STRING,
        allocated=_AMOUNTS,
        reservation=_ANYTHING,
        **dict.fromkeys(("completed", "inqueue", "pending", "running", "unknown"), _INTEGER),
    ),
)
_POD_GROUP: Final = _fields(
    spec=_fields(
        minMember=_INTEGER,
        minTaskMember={"type": "object", "additionalProperties": _INTEGER},
        minResources=_AMOUNTS,
        queue={**_STRING, "default": "default"},
        priorityClassName=_STRING,
        networkTopology=_TOPOLOGY,
        subGroupPolicy=_list(_ANYTHING),
    ),
    status=_fields(
        phase=_STRING,
        conditions=_list(_ANYTHING),
        running=_INTEGER,
        succeeded=_INTEGER,
        failed=_INTEGER,
    ),
)


def _column(name: str, path: str, kind: str = "string") -> Object:
    return {"name": name, "jsonPath": path, "type": kind}


def _definition(
    api_version: str,
    kind: str,
    plural: str,
    short: list[str],
    schema: Object,
    columns: list[Object],
    **shape: bool,
) -> Object:
    group, _, version = api_version.partition("/")
    return {
        "apiVersion": DEFINITIONS.api_version,
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            "annotations": {"controller-gen.kubebuilder.io/version": "v0.20.0"},
        },
        "spec": {
            "group": group,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": short,
            },
            "scope": "Namespaced" if shape["namespaced"] else "Cluster",
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}} if shape["status"] else {},
                    "additionalPrinterColumns": columns,
                }
            ],
        },
    }


def job_schema() -> Object:
    """Return the schema of a job."""
    return _JOB


def make_definitions() -> list[Object]:
    """Return the definitions that the controller and the scheduler work with."""
    age = {"name": "AGE", "jsonPath": ".metadata.creationTimestamp", "type": "date"}
    return [
        _definition(
            BATCH,
            "Job",
            "jobs",
            ["vcjob", "vj"],
            _JOB,
            [
                _column("STATUS", ".status.state.phase"),
                _column("minAvailable", ".status.minAvailable", "integer"),
                _column("RUNNINGS", ".status.running", "integer"),
                age,
                _column("QUEUE", ".spec.queue"),
            ],
            namespaced=True,
            status=True,
        ),
        _definition(BUS, "Command", "commands", [], _COMMAND, [age], namespaced=True, status=True),
        _definition(
            SCHEDULING,
            "Queue",
            "queues",
            ["q", "queue-v1beta1"],
            _QUEUE,
            [_column("PARENT", ".spec.parent"), _column("STATE", ".status.state")],
            namespaced=False,
            status=True,
        ),
        _definition(
            SCHEDULING,
            "PodGroup",
            "podgroups",
            ["pg", "podgroup-v1beta1"],
            _POD_GROUP,
            [
                _column("STATUS", ".status.phase"),
                _column("minMember", ".spec.minMember", "integer"),
                _column("RUNNINGS", ".status.running", "integer"),
                age,
                _column("QUEUE", ".spec.queue"),
            ],
            namespaced=True,
            status=False,
        ),
    ]
