"""What Pods, Secrets, ConfigMaps, Services and Namespaces demand beyond their fields."""

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from deploy.local.cluster.apiserver.errors import Problem
from deploy.local.cluster.apiserver.kinds import Object

_QUANTITY: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+|[numkMGTPE]|[KMGTPE]i)?")
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_ENVIRONMENT: Final = re.compile(r"[^=\x00-\x1f\x7f]+")
_CHANGEABLE: Final = ("activeDeadlineSeconds", "tolerations", "nodeName", "schedulingGates")
_RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")


def _nothing(value: Object, old: Object | None) -> None:
    """Leave *value* as it is."""


def _no_problem(value: Object, old: Object | None) -> Iterator[Problem]:
    return iter(())


@dataclass(frozen=True, slots=True)
class Semantics:
    """How one kind is completed (in place) and checked, alone and against what it was."""

    complete: Callable[[Object, Object | None], None] = _nothing
    check: Callable[[Object, Object | None], Iterator[Problem]] = _no_problem


def _complete_pod(value: Object, old: Object | None) -> None:
    spec = value.setdefault("spec", {})
    defaults: Object = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "serviceAccountName": "default",
        "enableServiceLinks": True,
    }
    for name, default in defaults.items():
        spec.setdefault(name, default)
    spec["serviceAccount"] = spec["serviceAccountName"]
    for container in _containers(spec):
        _complete_container(container)
    if old is None:
        value["status"] = {"phase": "Pending", "qosClass": _quality(spec)}


def _complete_container(container: Object) -> None:
    tag = str(container.get("image", "")).rpartition("/")[2]
    latest = ":" not in tag or tag.endswith(":latest")
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
    resources = container.setdefault("resources", {})
    for group in ("limits", "requests"):
        if isinstance(resources.get(group), dict):
            resources[group] = {name: str(amount) for name, amount in resources[group].items()}
    if resources.get("limits"):
        resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}
    for port in container.get("ports") or []:
        port.setdefault("protocol", "TCP")
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        if isinstance(container.get(name), dict):
            _complete_probe(container[name])


def _complete_probe(probe: Object) -> None:
    defaults = {
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    for name, default in defaults.items():
        probe.setdefault(name, default)
    if isinstance(probe.get("httpGet"), dict):
        probe["httpGet"].setdefault("path", "/")
        probe["httpGet"].setdefault("scheme", "HTTP")


def _check_pod(value: Object, old: Object | None) -> Iterator[Problem]:
    spec = value["spec"]
    if old is not None:
        if _frozen(spec) != _frozen(old["spec"]):
            yield Problem.forbidden(
                "spec",
                "pod updates may not change fields other than `spec.containers[*].image`,"
                "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` "
                "(only additions to existing tolerations),`spec.terminationGracePeriodSeconds` "
                "(allow it to be set to 1 if it was previously negative)",
            )
        return
    if not spec.get("containers"):
        yield Problem.required("spec.containers")
    if spec["restartPolicy"] not in _RESTART_POLICIES:
        yield Problem.unsupported(
            "spec.restartPolicy", spec["restartPolicy"], sorted(_RESTART_POLICIES)
        )
    yield from _check_volumes(spec)
    seen: set[str] = set()
    for field in ("initContainers", "containers"):
        for position, container in enumerate(spec.get(field) or []):
            path = f"spec.{field}[{position}]"
            yield from _check_container(container, path, spec)
            name = container.get("name", "")
            if name in seen:
                yield Problem(f"{path}.name", "FieldValueDuplicate", f'Duplicate value: "{name}"')
            seen.add(name)


def _check_container(container: Object, path: str, spec: Object) -> Iterator[Problem]:
    name = container.get("name")
    if not name:
        yield Problem.required(f"{path}.name")
    elif not _LABEL.fullmatch(name):
        yield Problem.invalid(f"{path}.name", name, "a lowercase RFC 1123 label must be given")
    if not container.get("image"):
        yield Problem.required(f"{path}.image")
    for position, variable in enumerate(container.get("env") or []):
        if not _ENVIRONMENT.fullmatch(variable.get("name", "")):
            yield Problem.required(f"{path}.env[{position}].name")
        if variable.get("value") and variable.get("valueFrom"):
            yield Problem.invalid(
                f"{path}.env[{position}].valueFrom",
                "",
                "may not be specified when `value` is not empty",
            )
    yield from _check_resources(container.get("resources") or {}, f"{path}.resources")
    yield from _check_mounts_and_ports(container, path, spec)


def _check_mounts_and_ports(container: Object, path: str, spec: Object) -> Iterator[Problem]:
    volumes = {volume.get("name") for volume in spec.get("volumes") or []}
    for position, mount in enumerate(container.get("volumeMounts") or []):
        if mount.get("name") not in volumes:
            yield Problem(
                f"{path}.volumeMounts[{position}].name",
                "FieldValueNotFound",
                f'Not found: "{mount.get("name")}"',
            )
        if not mount.get("mountPath"):
            yield Problem.required(f"{path}.volumeMounts[{position}].mountPath")
    for position, port in enumerate(container.get("ports") or []):
        number = port.get("containerPort")
        if not (isinstance(number, int) and 0 < number < 65536):
            yield Problem.invalid(
                f"{path}.ports[{position}].containerPort",
                number,
                "must be between 1 and 65535, inclusive",
            )


def _check_resources(resources: Object, path: str) -> Iterator[Problem]:
    for group in ("limits", "requests"):
        for name, amount in (resources.get(group) or {}).items():
            if not _QUANTITY.fullmatch(str(amount)):
                yield Problem.invalid(
                    f"{path}.{group}[{name}]",
                    amount,
                    "quantities must match the regular expression "
                    "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
                )


def _check_volumes(spec: Object) -> Iterator[Problem]:
    seen: set[str] = set()
    for position, volume in enumerate(spec.get("volumes") or []):
        path = f"spec.volumes[{position}]"
        name = volume.get("name", "")
        if not _LABEL.fullmatch(name):
            yield Problem.required(f"{path}.name")
        if name in seen:
            yield Problem(f"{path}.name", "FieldValueDuplicate", f'Duplicate value: "{name}"')
        seen.add(name)
        sources = [key for key, source in volume.items() if key != "name" and source is not None]
        if not sources:
            volume["emptyDir"] = {}
        if len(sources) > 1:
            yield Problem.forbidden(
                f"{path}.{sources[1]}", "may not specify more than 1 volume type"
            )


def _frozen(spec: Object) -> Object:
    """Return what of a Pod's spec may never change."""
    kept = {name: value for name, value in spec.items() if name not in _CHANGEABLE}
    for field in ("containers", "initContainers"):
        if field in kept:
            kept[field] = [{**c, "image": None} for c in kept[field]]
    return kept


def _containers(spec: Object) -> Iterator[Object]:
    for field in ("initContainers", "containers"):
        for container in spec.get(field) or []:
            if isinstance(container, dict):
                yield container


def _quality(spec: Object) -> str:
    """Return the QoS class, by which a kubelet decides whom to evict first."""
    resources = [container.get("resources") or {} for container in _containers(spec)]
    if not any(r.get("requests") or r.get("limits") for r in resources):
        return "BestEffort"
    equal = all(
        r.get("limits") and r.get("requests") == r.get("limits") and len(r["limits"]) > 1
        for r in resources
    )
    return "Guaranteed" if equal else "Burstable"


def _complete_secret(value: Object, old: Object | None) -> None:
    value.setdefault("type", "Opaque")
    for name, text in (value.pop("stringData", None) or {}).items():
        value.setdefault("data", {})[name] = base64.b64encode(str(text).encode()).decode()


def _check_secret(value: Object, old: Object | None) -> Iterator[Problem]:
    for name, text in (value.get("data") or {}).items():
        try:
            base64.b64decode(text or "", validate=True)
        except (binascii.Error, ValueError, TypeError):
            yield Problem.invalid(f"data[{name}]", "<secret>", "illegal base64 data")
    if old is not None and value["type"] != old["type"]:
        yield Problem.invalid("type", value["type"], "field is immutable")
    yield from _check_immutable(value, old)


def _check_immutable(value: Object, old: Object | None) -> Iterator[Problem]:
    if old is None or not old.get("immutable"):
        return
    if not value.get("immutable"):
        yield Problem.forbidden("immutable", "field is immutable when `immutable` is set")
    for field in ("data", "binaryData"):
        if value.get(field) != old.get(field):
            yield Problem.forbidden(field, "field is immutable when `immutable` is set")


def _complete_service(value: Object, old: Object | None) -> None:
    spec = value.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    spec.setdefault("internalTrafficPolicy", "Cluster")
    if old is not None and "clusterIP" in old["spec"]:
        spec.setdefault("clusterIP", old["spec"]["clusterIP"])
    if "clusterIP" in spec:
        spec["clusterIPs"] = [spec["clusterIP"]]
    for port in spec.get("ports") or []:
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))
    value.setdefault("status", {"loadBalancer": {}})


def _check_service(value: Object, old: Object | None) -> Iterator[Problem]:
    spec = value["spec"]
    if not spec.get("ports") and spec.get("clusterIP") != "None":
        yield Problem.required("spec.ports")
    if old is not None and spec.get("clusterIP") != old["spec"].get("clusterIP"):
        yield Problem.invalid("spec.clusterIPs[0]", spec.get("clusterIP"), "field is immutable")


def _complete_namespace(value: Object, old: Object | None) -> None:
    metadata: dict[str, Any] = value["metadata"]
    metadata.setdefault("labels", {})["kubernetes.io/metadata.name"] = metadata["name"]
    value["spec"] = old["spec"] if old else {"finalizers": ["kubernetes"]}
    value.setdefault("status", {"phase": "Active"})


def _complete_claim(value: Object, old: Object | None) -> None:
    value.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
    value.setdefault("status", {"phase": "Pending"})


def _check_claim(value: Object, old: Object | None) -> Iterator[Problem]:
    spec = value["spec"]
    if not spec.get("accessModes"):
        yield Problem.required("spec.accessModes")
    if not ((spec.get("resources") or {}).get("requests") or {}).get("storage"):
        yield Problem.required("spec.resources[storage]")
    if old is not None:
        # Only the size may change, and what binding decides while it is not decided.
        decided = {f for f in ("volumeName", "storageClassName") if f in old["spec"]}
        free = {"resources", "volumeName", "storageClassName"} - decided
        before, now = ({k: v for k, v in s.items() if k not in free} for s in (old["spec"], spec))
        if before != now:
            yield Problem.forbidden(
                "spec",
                "spec is immutable after creation except resources.requests and "
                "volumeAttributesClassName for bound claims",
            )


def _complete_volume(value: Object, old: Object | None) -> None:
    spec = value.setdefault("spec", {})
    spec.setdefault("volumeMode", "Filesystem")
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    value.setdefault("status", {"phase": "Available"})


def _complete_class(value: Object, old: Object | None) -> None:
    value.setdefault("reclaimPolicy", "Delete")
    value.setdefault("volumeBindingMode", "Immediate")


SEMANTICS: Final[dict[tuple[str, str], Semantics]] = {
    ("", "pods"): Semantics(_complete_pod, _check_pod),
    ("", "secrets"): Semantics(_complete_secret, _check_secret),
    ("", "configmaps"): Semantics(check=_check_immutable),
    ("", "services"): Semantics(_complete_service, _check_service),
    ("", "namespaces"): Semantics(_complete_namespace),
    ("", "persistentvolumeclaims"): Semantics(_complete_claim, _check_claim),
    ("", "persistentvolumes"): Semantics(_complete_volume),
    ("storage.k8s.io", "storageclasses"): Semantics(_complete_class),
}
