"""Admission that depends on other objects: namespaces, accounts, priorities, addresses."""

from ipaddress import IPv4Address, IPv4Network
from typing import Final

from deploy.local.cluster.apiserver.errors import (
    ApiError,
    Problem,
    bad_request,
    forbidden,
    invalid,
    not_found,
)
from deploy.local.cluster.apiserver.kinds import Kind, KindTable, Object
from deploy.local.cluster.apiserver.quotas import quota_problem
from deploy.local.cluster.apiserver.store import Store

NAMESPACES: Final = ("", "namespaces")


def check_namespace(store: Store, kinds: KindTable, kind: Kind, namespace: str, name: str) -> None:
    """Refuse to create in a namespace that is missing (404) or being deleted (403)."""
    if not kind.namespaced:
        return
    space = store.get(NAMESPACES, "", namespace)
    if space is None:
        raise not_found(kinds.by_key(NAMESPACES), namespace)
    if space.value["metadata"].get("deletionTimestamp"):
        why = (
            f"unable to create new content in namespace {namespace} because it is being terminated"
        )
        error = forbidden(kind, name, why)
        causes = [
            {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
        ]
        error.details = {**(error.details or {}), "causes": causes}
        raise error


def admit(store: Store, kind: Kind, value: Object, services: IPv4Network) -> None:
    """Complete, in place, or refuse a new object, depending on the existing objects.

    A Service without an address gets one from *services*.
    """
    match kind.key:
        case ("", "pods"):
            _admit_pod(store, kind, value)
        case ("", "services"):
            _give_address(store, kind, value, services)
        case _:
            pass
    _check_quotas(store, kind, value)


def _check_quotas(store: Store, kind: Kind, value: Object) -> None:
    namespace = value["metadata"].get("namespace", "")
    quotas = store.items(("", "resourcequotas"), namespace) if namespace else []
    if quotas:
        others = (stored.value for stored in store.items(kind.key, namespace))
        problem = quota_problem((q.value for q in quotas), kind, value, others)
        if problem:
            raise forbidden(kind, value["metadata"].get("name", ""), problem)


def _admit_pod(store: Store, kind: Kind, pod: Object) -> None:
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    account = pod["spec"]["serviceAccountName"]
    if store.get(("", "serviceaccounts"), namespace, account) is None:
        missing = f'serviceaccount "{account}" not found'
        why = f"error looking up service account {namespace}/{account}: {missing}"
        raise forbidden(kind, name, why)
    priority = pod["spec"].get("priorityClassName")
    if priority:
        found = store.get(("scheduling.k8s.io", "priorityclasses"), "", priority)
        if found is None:
            raise forbidden(kind, name, f"no PriorityClass with name {priority} was found")
        pod["spec"]["priority"] = found.value["value"]
    else:
        pod["spec"].setdefault("priority", 0)
    if runtime := pod["spec"].get("runtimeClassName"):
        raise forbidden(kind, name, f'pod rejected: RuntimeClass "{runtime}" not found')
    if pod["spec"].get("schedulingGates"):
        gated = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": None,
            "lastTransitionTime": pod["metadata"]["creationTimestamp"],
        }
        pod["status"]["conditions"] = [gated]


def _within(address: str, network: IPv4Network) -> bool:
    try:
        return IPv4Address(address) in network
    except ValueError:
        return False


def _give_address(store: Store, kind: Kind, service: Object, network: IPv4Network) -> None:
    spec = service["spec"]
    given = spec.get("clusterIP")
    if given not in (None, "", "None") and not _within(given, network):
        why = (
            f"failed to allocate IP {given}: the provided network does not match the current range"
        )
        problem = Problem.invalid("spec.clusterIPs", [given], why)
        raise invalid(kind, service["metadata"]["name"], [problem])
    if given or spec["type"] == "ExternalName":
        return
    taken = {item.value["spec"].get("clusterIP") for item in store.items(("", "services"))}
    first, last = int(network[1]), int(network[-1])
    free = (str(IPv4Address(n)) for n in range(first, last) if str(IPv4Address(n)) not in taken)
    address = next(free, None)
    if address is None:
        raise ApiError(500, "failed to allocate a serviceIP: range is full")
    spec["clusterIP"] = address
    spec["clusterIPs"] = [address]


def disrupt(pod: Object, now: str) -> None:
    """Write into *pod*, in place, that it is evicted."""
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
        "lastTransitionTime": now,
    }
    others = [c for c in pod["status"].get("conditions", []) if c["type"] != condition["type"]]
    pod["status"]["conditions"] = [*others, condition]


def bind(pod: Object, binding: Object, now: str) -> None:
    """Put *pod* on the node that *binding* names, in place.

    Raises:
        ApiError: 409 if it is on a node already, 400 without a target.
    """
    name = pod["metadata"]["name"]
    node = (binding.get("target") or {}).get("name")
    if not node:
        raise bad_request("a binding needs target.name")
    if pod["spec"].get("nodeName"):
        raise ApiError(
            409,
            f'Operation cannot be fulfilled on pods/binding "{name}": pod {name} is already '
            f'assigned to node "{pod["spec"]["nodeName"]}"',
        )
    pod["spec"]["nodeName"] = node
    conditions = [c for c in pod["status"].get("conditions", []) if c["type"] != "PodScheduled"]
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now}
    pod["status"]["conditions"] = [*conditions, scheduled]
