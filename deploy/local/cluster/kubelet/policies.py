"""Decides which connections NetworkPolicies allow. No I/O.

A connection needs both sides: the ingress policies that select its target, and the egress policies
that select its source. If no policy selects a Pod, every connection is allowed on its side. The
node, and whatever else is not a Pod, is allowed on its side. ``ipBlock`` is for addresses outside
of the cluster and never matches a Pod.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

Object = dict[str, Any]
Labels = Mapping[str, str]
Direction = Literal["ingress", "egress"]
_PEERS: Final[Mapping[Direction, str]] = {"ingress": "from", "egress": "to"}


def allows(
    policies: Iterable[Object],
    namespaces: Mapping[str, Labels],
    source: Object | None,
    target: Object | None,
    *,
    protocol: str,
    port: int,
) -> bool:
    """Whether *source* may open a connection to *target*.

    Args:
        policies: All NetworkPolicies.
        namespaces: The labels of each namespace.
        source: A Pod; None for anything else.
        target: As *source*.
        protocol: ``TCP``, ``UDP`` or ``SCTP``.
        port: The target's port.
    """
    sides: tuple[tuple[Direction, Object | None, Object | None], ...] = (
        ("egress", source, target),
        ("ingress", target, source),
    )
    every = list(policies)
    for direction, own, other in sides:
        chosen = [p for p in every if own is not None and _selects(p, direction, own)]
        rules = [rule for p in chosen for rule in _spec(p).get(direction) or []]
        if chosen and not any(
            _names_port(rule, target, protocol, port)
            and _names_peer(rule.get(_PEERS[direction]), own, other, namespaces)
            for rule in rules
        ):
            # The node itself, for example, may always reach its Pods.
            if direction == "ingress" and source is None:
                continue
            return False
    return True


def matches(selector: Object | None, labels: Labels) -> bool:
    """Whether a label selector in its structured form matches; an empty one always does."""
    selector = selector or {}
    equal = all(
        labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items()
    )
    return equal and all(_meets(e, labels) for e in selector.get("matchExpressions") or [])


def _meets(expression: Object, labels: Labels) -> bool:
    key, values = expression["key"], expression.get("values") or []
    match expression["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    return False


def _selects(policy: Object, direction: Direction, pod: Object) -> bool:
    spec, metadata = _spec(policy), pod["metadata"]
    default = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    return (
        direction.capitalize() in (spec.get("policyTypes") or default)
        and policy["metadata"]["namespace"] == metadata["namespace"]
        and matches(spec.get("podSelector"), metadata.get("labels") or {})
    )


def _spec(policy: Object) -> Object:
    """Return the spec; a missing one selects everything and allows nothing."""
    return policy.get("spec") or {}


def _names_peer(
    peers: list[Object] | None,
    own: Object | None,
    other: Object | None,
    namespaces: Mapping[str, Labels],
) -> bool:
    if not peers:
        return True  # a rule without peers applies to all
    if own is None or other is None:
        return False
    metadata = other["metadata"]
    for peer in peers:
        if "ipBlock" in peer:
            continue
        if "namespaceSelector" in peer:
            where = matches(peer["namespaceSelector"], namespaces.get(metadata["namespace"], {}))
        else:
            where = metadata["namespace"] == own["metadata"]["namespace"]
        if where and matches(peer.get("podSelector"), metadata.get("labels") or {}):
            return True
    return False


def _names_port(rule: Object, target: Object | None, protocol: str, port: int) -> bool:
    ports = rule.get("ports")
    return not ports or any(
        (entry.get("protocol") or "TCP") == protocol and _covers(entry, target, protocol, port)
        for entry in ports
    )


def _covers(entry: Object, target: Object | None, protocol: str, port: int) -> bool:
    first = entry.get("port")
    if first is None:
        return True
    if isinstance(first, str):
        return port in named_ports(target, first, protocol)
    last: int = entry.get("endPort") or first
    return bool(first <= port <= last)


def named_ports(pod: Object | None, name: str, protocol: str = "TCP") -> list[int]:
    """Return the ports of the Pod's containers with the name *name*."""
    containers = pod["spec"]["containers"] if pod else []
    return [
        port["containerPort"]
        for container in containers
        for port in container.get("ports") or []
        if port.get("name") == name and (port.get("protocol") or "TCP") == protocol
    ]
