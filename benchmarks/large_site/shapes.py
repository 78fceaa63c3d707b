"""Pods as a real API server returns them: defaults, statuses and ``managedFields`` included.

The fields are those that Kubernetes 1.34 with Volcano 1.13 returned for a VolcanoJob's pod. The
owner of a field in ``managedFields`` is the writer that sets it.
"""

from __future__ import annotations

import copy
import json
from typing import Any, Final

Object = dict[str, Any]
TIME: Final = "2026-11-22T10:00:00Z"
_DIGEST: Final = "3f" * 32
_SPEC: Final[Object] = {
    "dnsPolicy": "ClusterFirst",
    "enableServiceLinks": True,
    "preemptionPolicy": "PreemptLowerPriority",
    "priority": 0,
    "schedulerName": "volcano",
    "securityContext": {},
    "serviceAccount": "default",
    "serviceAccountName": "default",
    "terminationGracePeriodSeconds": 30,
    "tolerations": [
        {
            "effect": "NoExecute",
            "key": f"node.kubernetes.io/{key}",
            "operator": "Exists",
            "tolerationSeconds": 300,
        }
        for key in ("not-ready", "unreachable")
    ],
}
_HOSTS: Final = [
    {"name": f"VC_JOB_{what}", "valueFrom": {"configMapKeyRef": {"key": what, "name": "job-svc"}}}
    for what in ("HOSTS", "NUM", "TASKS")
]
_METADATA: Final = frozenset({"labels", "annotations", "ownerReferences", "finalizers"})


def as_stored(pod: Object) -> Object:
    """Return a running *pod* as a real server stores it."""
    full = copy.deepcopy(pod)
    full["spec"] = _SPEC | full["spec"]
    for container in full["spec"]["containers"]:
        container.setdefault("env", []).extend(_HOSTS)
        container.setdefault("imagePullPolicy", "Always")
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
    full["status"] = full["status"] | {
        "conditions": [
            {
                "type": name,
                "status": "True",
                "observedGeneration": 1,
                "lastProbeTime": None,
                "lastTransitionTime": TIME,
            }
            for name in (
                "PodReadyToStartContainers",
                "Initialized",
                "Ready",
                "ContainersReady",
                "PodScheduled",
            )
        ],
        "containerStatuses": [_status(one) for one in full["spec"]["containers"]],
        "hostIP": "10.1.0.1",
        "hostIPs": [{"ip": "10.1.0.1"}],
        "podIPs": [{"ip": full["status"].get("podIP", "10.0.0.1")}],
        "qosClass": "Guaranteed",
        "startTime": TIME,
        "observedGeneration": 1,
    }
    full["metadata"]["managedFields"] = _managed(full)
    return full


def _status(container: Object) -> Object:
    mounts = [
        {"name": one["name"], "mountPath": one["mountPath"], "recursiveReadOnly": "Disabled"}
        for one in container.get("volumeMounts", ())
    ]
    return {
        "name": container["name"],
        "ready": True,
        "started": True,
        "restartCount": 0,
        "image": f"registry.example.org/{container['image']}",
        "imageID": f"registry.example.org/{container['image']}@sha256:{_DIGEST}",
        "containerID": f"containerd://{_DIGEST}",
        "lastState": {},
        "state": {"running": {"startedAt": TIME}},
        "resources": container.get("resources", {}),
        "allocatedResources": container.get("resources", {}).get("requests", {}),
        "volumeMounts": mounts,
    }


def _managed(pod: Object) -> list[Object]:
    metadata = {name: pod["metadata"][name] for name in _METADATA & pod["metadata"].keys()}
    owned = {
        ("vc-controller-manager", ""): {"metadata": metadata, "spec": pod["spec"]},
        ("vc-scheduler", "status"): {"status": {"conditions": pod["status"]["conditions"][-1:]}},
        ("kubelet", "status"): {"status": pod["status"]},
    }
    return [
        {
            "manager": manager,
            "operation": "Update",
            "apiVersion": "v1",
            "time": TIME,
            "fieldsType": "FieldsV1",
            "fieldsV1": _fields_of(fields),
            **({"subresource": part} if part else {}),
        }
        for (manager, part), fields in owned.items()
    ]


def _fields_of(given: Any) -> Object:
    """Return the field names of *given* as FieldsV1 (Kubernetes, "Field management")."""
    if isinstance(given, dict):
        return {f"f:{name}": _fields_of(value) for name, value in given.items()}
    found: Object = {}
    for one in given if isinstance(given, list) else ():
        key = _key_of(one)
        if key is not None:
            found[f"k:{json.dumps(key, separators=(',', ':'))}"] = {".": {}, **_fields_of(one)}
    return found


def _key_of(one: Any) -> Object | None:
    for name in ("name", "type", "mountPath", "uid", "ip"):
        if isinstance(one, dict) and name in one:
            return {name: one[name]}
    return None
