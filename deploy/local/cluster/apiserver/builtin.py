"""The rules of Pods, Secrets, ConfigMaps, Services and Namespaces beyond their fields."""

import base64
import binascii
import re
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from deploy.local.cluster.apiserver import checks
from deploy.local.cluster.apiserver.errors import Problem, bad_request
from deploy.local.cluster.apiserver.kinds import RBAC, Object
from deploy.local.cluster.apiserver.metadata import LABEL_RULE, label_problems, name_problems
from deploy.local.cluster.quantities import NOT_A_QUANTITY, quantity

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_ENVIRONMENT: Final = re.compile(r"[\x20-\x3c\x3e-\x7e]+")
_ENVIRONMENT_RULE: Final = (
    "a valid environment variable name must consist only of printable ASCII characters other than "
    "'='"
)
_DATA_KEY: Final = re.compile(r"[-._a-zA-Z0-9]+")
_DATA_KEY_RULE: Final = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name', "
    " or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_BASE64: Final = frozenset(string.ascii_letters + string.digits + "+/=")
_MOST_DATA: Final = 1_048_576
_TOO_LONG: Final = f"Too long: may not be more than {_MOST_DATA} bytes"
IN_USE: Final = "kubernetes.io/pvc-protection"
_CHANGEABLE: Final = ("activeDeadlineSeconds", "tolerations", "schedulingGates")
_RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")


def _nothing(value: Object, old: Object | None) -> None:
    """Leave *value* unchanged."""


def _no_problem(value: Object, old: Object | None) -> Iterator[Problem]:
    return iter(())


@dataclass(frozen=True, slots=True)
class Semantics:
    """How objects of a kind are completed (in place) and checked, alone and as a change."""

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
        "preemptionPolicy": "PreemptLowerPriority",
    }
    for name, default in defaults.items():
        spec.setdefault(name, default)
    spec["serviceAccount"] = spec["serviceAccountName"]
    for container in _containers(spec):
        _complete_container(container)
    for volume in spec.get("volumes") or []:
        for source in ("configMap", "secret", "downwardAPI", "projected"):
            if isinstance(volume.get(source), dict):
                volume[source].setdefault("defaultMode", 0o644)
    if old is None:
        value["status"] = {"phase": "Pending", "qosClass": _quality(spec)}
        _tolerate_lost_nodes(spec)


def _tolerate_lost_nodes(spec: Object) -> None:
    """Give a new Pod five minutes on a node that is unreachable or not ready."""
    tolerations = spec.setdefault("tolerations", [])
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        known = {toleration.get("key") for toleration in tolerations}
        if key not in known and None not in known:
            lost = {"key": key, "operator": "Exists", "effect": "NoExecute"}
            tolerations.append({**lost, "tolerationSeconds": 300})


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
        yield Problem.unsupported("spec.restartPolicy", spec["restartPolicy"], _RESTART_POLICIES)
    yield from _check_pod_fields(spec)
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
        yield Problem.invalid(f"{path}.name", name, LABEL_RULE)
    if not container.get("image"):
        yield Problem.required(f"{path}.image")
    for position, variable in enumerate(container.get("env") or []):
        called = variable.get("name", "")
        if not called:
            yield Problem.required(f"{path}.env[{position}].name")
        elif not _ENVIRONMENT.fullmatch(called):
            yield Problem.invalid(f"{path}.env[{position}].name", called, _ENVIRONMENT_RULE)
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
            if not _is_quantity(amount):
                where = 'Pod in version "v1" cannot be handled as a Pod'
                raise bad_request(f"{where}: {NOT_A_QUANTITY}")
            if "/" in name and quantity(str(amount)) % 1:
                milli = f"{quantity(str(amount)) * 1000:.0f}m"
                yield Problem.invalid(f"{path}.{group}[{name}]", milli, "must be an integer")
    limits = resources.get("limits") or {}
    for name, amount in (resources.get("requests") or {}).items():
        if name in limits and quantity(str(amount)) > quantity(str(limits[name])):
            why = f"must be less than or equal to {name} limit of {limits[name]}"
            yield Problem.invalid(f"{path}.requests", amount, why)


def _is_quantity(amount: object) -> bool:
    try:
        quantity(str(amount))
    except ValueError:
        return False
    return True


def _check_pod_fields(spec: Object) -> Iterator[Problem]:
    if spec.get("hostname"):
        yield from name_problems("spec.hostname", spec["hostname"], label=True)
    yield from label_problems("spec.nodeSelector", spec.get("nodeSelector") or {})
    for position, toleration in enumerate(spec.get("tolerations") or []):
        if toleration.get("operator") == "Exists" and toleration.get("value"):
            field = f"spec.tolerations[{position}].operator"
            why = "value must be empty when `operator` is 'Exists'"
            yield Problem.invalid(field, toleration["value"], why)
    for field, least in (("activeDeadlineSeconds", 1), ("securityContext.runAsUser", 0)):
        outer, _, inner = field.partition(".")
        number = (spec.get(outer) or {}).get(inner) if inner else spec.get(outer)
        if number is not None and not least <= number < 2**31:
            why = f"must be between {least} and 2147483647, inclusive"
            yield Problem.invalid(f"spec.{field}", number, why)


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
    """Return the part of a Pod's spec that may never change."""
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
    """Return the QoS class, by which a kubelet decides which Pod to evict first."""
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
    size = 0
    for name, text in (value.get("data") or {}).items():
        try:
            size += len(base64.b64decode(text or "", validate=True))
        except (binascii.Error, ValueError, TypeError) as error:
            where = 'Secret in version "v1" cannot be handled as a Secret'
            first = next((i for i, c in enumerate(text) if c not in _BASE64), len(text))
            raise bad_request(f"{where}: illegal base64 data at input byte {first}") from error
        if not _DATA_KEY.fullmatch(name):
            yield Problem.invalid(f"data[{name}]", name, _DATA_KEY_RULE)
    if size > _MOST_DATA:
        yield Problem("data", "FieldValueTooLong", _TOO_LONG)
    if old is not None and value["type"] != old["type"]:
        yield Problem.invalid("type", value["type"], "field is immutable")
    yield from _check_immutable(value, old)


def _check_config_map(value: Object, old: Object | None) -> Iterator[Problem]:
    for field in ("data", "binaryData"):
        for name in value.get(field) or {}:
            if not _DATA_KEY.fullmatch(name):
                yield Problem.invalid(f"{field}[{name}]", name, _DATA_KEY_RULE)
    if sum(len(text) for text in (value.get("data") or {}).values()) > _MOST_DATA:
        yield Problem("[]", "FieldValueTooLong", _TOO_LONG)
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
    if spec["type"] != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
        # A headless Service without a selector needs no addresses: it gets both families.
        both = spec.get("clusterIP") == "None" and not spec.get("selector")
        spec.setdefault("ipFamilies", ["IPv4", "IPv6"] if both else ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "RequireDualStack" if both else "SingleStack")
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
    outside = spec["type"] == "ExternalName"
    if not spec.get("ports") and spec.get("clusterIP") != "None" and not outside:
        yield Problem.required("spec.ports")
    yield from checks.check_ports(spec.get("ports") or [])
    if old is not None and spec.get("clusterIP") != old["spec"].get("clusterIP"):
        given = [spec.get("clusterIP")]
        yield Problem.invalid("spec.clusterIPs[0]", given, "may not change once set")


def _complete_namespace(value: Object, old: Object | None) -> None:
    metadata: dict[str, Any] = value["metadata"]
    metadata.setdefault("labels", {})["kubernetes.io/metadata.name"] = metadata["name"]
    value["spec"] = old["spec"] if old else {"finalizers": ["kubernetes"]}
    value.setdefault("status", {"phase": "Active"})


def _complete_claim(value: Object, old: Object | None) -> None:
    value.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
    value.setdefault("status", {"phase": "Pending"})
    if old is None:
        # Until no Pod uses it: a client that deletes the claim gets the claim as the response.
        finalizers = value["metadata"].setdefault("finalizers", [])
        if IN_USE not in finalizers:
            finalizers.append(IN_USE)


def _check_claim(value: Object, old: Object | None) -> Iterator[Problem]:
    spec = value["spec"]
    if not spec.get("accessModes"):
        yield Problem.required("spec.accessModes")
    yield from checks.check_claim_fields(spec)
    if not ((spec.get("resources") or {}).get("requests") or {}).get("storage"):
        yield Problem.required("spec.resources[storage]")
    if old is not None:
        # Only the size may change, and the fields that binding sets, as long as they are not set.
        decided = {f for f in ("volumeName", "storageClassName") if f in old["spec"]}
        free = {"volumeName", "storageClassName"} - decided
        if (old.get("status") or {}).get("phase") == "Bound":
            free.add("resources")
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
    ("", "configmaps"): Semantics(check=_check_config_map),
    ("", "services"): Semantics(_complete_service, _check_service),
    ("", "resourcequotas"): Semantics(checks.complete_quota, checks.check_quota),
    ("", "events"): Semantics(check=checks.check_event),
    ("coordination.k8s.io", "leases"): Semantics(checks.complete_lease, checks.check_lease),
    ("networking.k8s.io", "networkpolicies"): Semantics(
        checks.complete_network_policy, checks.check_network_policy
    ),
    (RBAC, "rolebindings"): Semantics(check=checks.check_binding),
    (RBAC, "clusterrolebindings"): Semantics(check=checks.check_binding),
    ("", "namespaces"): Semantics(_complete_namespace),
    ("", "persistentvolumeclaims"): Semantics(_complete_claim, _check_claim),
    ("", "persistentvolumes"): Semantics(_complete_volume),
    ("storage.k8s.io", "storageclasses"): Semantics(_complete_class),
}
