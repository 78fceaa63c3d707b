"""Checks Services, NetworkPolicies, Leases, claims, quotas, bindings and Events."""

import ipaddress
import re
from collections.abc import Iterator
from typing import Any, Final

from deploy.local.cluster.apiserver.errors import Problem, bad_request
from deploy.local.cluster.apiserver.kinds import RBAC, Object
from deploy.local.cluster.apiserver.metadata import label_problems
from deploy.local.cluster.quantities import NOT_A_QUANTITY, quantity

_TIME: Final = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?P<fraction>\.\d{6})(?P<zone>Z|[+-]\d\d:\d\d)"
)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
_LAYOUT: Final = "2006-01-02T15:04:05.000000Z07:00"
_PORTS: Final = "must be between 1 and 65535, inclusive"
_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_CIDR: Final = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
_QUOTA: Final = re.compile(
    r"(cpu|memory|storage|ephemeral-storage|pods|services|replicationcontrollers|resourcequotas|"
    r"secrets|configmaps|persistentvolumeclaims|services\.(nodeports|loadbalancers)|"
    r"(requests|limits)\.(cpu|memory|storage|ephemeral-storage))"
)


def check_ports(ports: list[Object]) -> Iterator[Problem]:
    """Yield the problems with the ports of a Service."""
    for position, port in enumerate(ports):
        path = f"spec.ports[{position}]"
        if len(ports) > 1 and not port.get("name"):
            yield Problem.required(f"{path}.name")
        for field in ("port", "targetPort"):
            number = port.get(field)
            if isinstance(number, int) and not 0 < number < 65536:
                yield Problem.invalid(f"{path}.{field}", number, _PORTS)


def complete_network_policy(value: Object, old: Object | None) -> None:
    """Fill in, in place, the directions that the policy applies to."""
    spec = value.setdefault("spec", {})
    spec.setdefault("podSelector", {})
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", *(["Egress"] if spec.get("egress") else [])]
    for _, rule in _rules(spec):
        for port in rule.get("ports") or []:
            port.setdefault("protocol", "TCP")


def check_network_policy(value: Object, old: Object | None) -> Iterator[Problem]:
    """Yield the problems with selectors, ports and blocks of addresses."""
    spec = value["spec"]
    for position, way in enumerate(spec["policyTypes"]):
        if way not in ("Ingress", "Egress"):
            field = f"spec.policyTypes[{position}]"
            yield Problem.unsupported(field, way, ("Ingress", "Egress"))
    matched = spec["podSelector"].get("matchLabels") or {}
    yield from label_problems("spec.podSelector.matchLabels", matched)
    for path, rule in _rules(spec):
        for position, port in enumerate(rule.get("ports") or []):
            yield from _check_policy_port(port, f"{path}.ports[{position}]")
        side = "from" if ".ingress" in path else "to"
        for position, peer in enumerate(rule.get(side) or []):
            yield from _check_block(peer.get("ipBlock") or {}, f"{path}.{side}[{position}].ipBlock")


def _rules(spec: Object) -> Iterator[tuple[str, Object]]:
    for way in ("ingress", "egress"):
        for position, rule in enumerate(spec.get(way) or []):
            yield f"spec.{way}[{position}]", rule


def _check_policy_port(port: Object, path: str) -> Iterator[Problem]:
    first, last = port.get("port"), port.get("endPort")
    if isinstance(first, int) and not 0 < first < 65536:
        yield Problem.invalid(f"{path}.port", first, _PORTS)
    if isinstance(first, int) and isinstance(last, int) and last < first:
        # A real server shows the port here, not the endPort.
        yield Problem.invalid(f"{path}.endPort", first, "must be greater than or equal to `port`")


def _check_block(block: Object, path: str) -> Iterator[Problem]:
    if not block:
        return
    network = _network(block.get("cidr", ""))
    if network is None:
        yield Problem.invalid(f"{path}.cidr", block.get("cidr", ""), _CIDR)
        return
    for position, text in enumerate(block.get("except") or []):
        hole = _network(text)
        if hole is None:
            yield Problem.invalid(f"{path}.except[{position}]", text, _CIDR)
        elif hole == network or hole.version != network.version or not _within(hole, network):
            why = "must be a strict subset of `cidr`"
            yield Problem.invalid(f"{path}.except[{position}]", text, why)


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False) if "/" in text else None
    except ValueError:
        return None


def _within(inner: Any, outer: Any) -> bool:
    return bool(inner.subnet_of(outer))


def complete_lease(value: Object, old: Object | None) -> None:
    """Write the Lease's times in the server's format.

    Raises:
        ApiError: 400 for a text that is no time to the microsecond.
    """
    spec = value.setdefault("spec", {})
    for name in ("renewTime", "acquireTime"):
        text = spec.get(name)
        if text is None:
            continue
        match = _TIME.fullmatch(text)
        if match is None:
            raise bad_request(
                f'Lease in version "v1" cannot be handled as a Lease: parsing time "{text}" as '
                f'"{_LAYOUT}": cannot parse {_unparsed(text)}'
            )
        if match["zone"] == "+00:00":
            spec[name] = f"{match['date']}{match['fraction']}Z"


def _unparsed(text: str) -> str:
    """Return the text at which Go's time package stopped."""
    date = _DATE.match(text)
    return f'"{text[date.end() :]}" as ".000000"' if date else f'"{text}" as "2006"'


def check_lease(value: Object, old: Object | None) -> Iterator[Problem]:
    """Yield the numbers that are out of range."""
    spec = value["spec"]
    if spec.get("leaseDurationSeconds", 1) <= 0:
        seconds = spec["leaseDurationSeconds"]
        yield Problem.invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0")
    if spec.get("leaseTransitions", 0) < 0:
        number, why = spec["leaseTransitions"], "must be greater than or equal to 0"
        yield Problem.invalid("spec.leaseTransitions", number, why)


def check_claim_fields(spec: Object) -> Iterator[Problem]:
    """Yield the unknown access modes, and an invalid size."""
    for mode in spec.get("accessModes") or []:
        if mode not in _MODES:
            yield Problem.unsupported("spec.accessModes", mode, _MODES)
    size = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if size and quantity(str(size)) <= 0:
        yield Problem.invalid("spec.resources[storage]", str(size), "must be greater than zero")


def complete_quota(value: Object, old: Object | None) -> None:
    """Refuse a quota with an amount that is no quantity.

    Raises:
        ApiError: 400.
    """
    hard = value.setdefault("spec", {}).get("hard") or {}
    try:
        for amount in hard.values():
            quantity(str(amount))
    except ValueError as error:
        where = 'ResourceQuota in version "v1" cannot be handled as a ResourceQuota'
        raise bad_request(f"{where}: {NOT_A_QUANTITY}") from error
    value["spec"]["hard"] = {name: str(amount) for name, amount in hard.items()}


def check_quota(value: Object, old: Object | None) -> Iterator[Problem]:
    """Yield the resources that no quota covers, and amounts below zero."""
    for name, amount in (value["spec"].get("hard") or {}).items():
        field = f"spec.hard[{name}]"
        if "/" not in name and not _QUOTA.fullmatch(name):
            if "." not in name:
                why = "must be a standard resource type or fully qualified"
                yield Problem.invalid(field, name, why)
            yield Problem.invalid(field, name, "must be a standard resource for quota")
        if quantity(str(amount)) < 0:
            yield Problem.invalid(field, amount, "must be greater than or equal to 0")


def check_binding(value: Object, old: Object | None) -> Iterator[Problem]:
    """Yield the problems with the role that a binding refers to, which can never change."""
    role = value.get("roleRef") or {}
    if old is not None and role != (old.get("roleRef") or {}):
        shown = {name: role.get(name[0].lower() + name[1:], "") for name in ("Kind", "Name")}
        group = role.get("apiGroup", RBAC)
        yield Problem.invalid("roleRef", {"APIGroup": group, **shown}, "cannot change roleRef")
        return
    if role.get("kind") not in ("Role", "ClusterRole"):
        allowed = ("Role", "ClusterRole")
        yield Problem.unsupported("roleRef.kind", role.get("kind", ""), allowed)
    if not role.get("name"):
        yield Problem.required("roleRef.name")


def check_event(value: Object, old: Object | None) -> Iterator[Problem]:
    """Yield the problem of an Event about an object in another namespace."""
    about = (value.get("involvedObject") or {}).get("namespace", "")
    own = value["metadata"].get("namespace", "")
    if about != own and (about or own != "default"):
        why = "does not match event.namespace"
        yield Problem.invalid("involvedObject.namespace", about, why)
