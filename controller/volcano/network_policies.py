"""Peers and rules of NetworkPolicies on the pods of a job."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shared.networks import Network, read_address

_LAST_PORT: Final = 65535

NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"
"""The API server sets it on every namespace, and nobody can give it to another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dns:
    """The cluster's name servers, as a NetworkPolicy selects them.

    A policy applies to the pods behind a Service: ``ports`` are the ports of the name servers'
    pods. ``networks`` are for name servers that are no pods, or run in the host network.
    """

    namespaces: tuple[str, ...]
    networks: tuple[Network, ...]
    ports: tuple[int, ...]


def pods_in(namespace: str, labels: Mapping[str, str]) -> dict[str, Any]:
    """Return the peer that selects pods with *labels* in *namespace*.

    Both selectors are in one entry: two entries would mean "or".
    """
    return {
        "namespaceSelector": {"matchLabels": {NAMESPACE_LABEL: namespace}},
        "podSelector": {"matchLabels": dict(labels)},
    }


def dns_rule(dns: Dns) -> dict[str, Any]:
    """Return the egress rule for name resolution in the cluster."""
    pods = [
        {"namespaceSelector": {"matchLabels": {NAMESPACE_LABEL: name}}} for name in dns.namespaces
    ]
    blocks = [{"ipBlock": {"cidr": str(network)}} for network in dns.networks]
    ports = [
        {"protocol": protocol, "port": port} for port in dns.ports for protocol in ("UDP", "TCP")
    ]
    return {"to": [*pods, *blocks], "ports": ports}


def network_rules(
    networks: Sequence[Network], without: Sequence[Network], *, blocked_ports: Sequence[int] = ()
) -> list[dict[str, Any]]:
    """Return the egress rule for *networks* except *without*; none without networks.

    With *blocked_ports* it names all other ports. Then only TCP, UDP and SCTP are admitted.
    """
    if not networks:
        return []
    rule: dict[str, Any] = {"to": [{"ipBlock": _block(one, without)} for one in networks]}
    if blocked_ports:
        others = [{"protocol": name, "port": 1, "endPort": _LAST_PORT} for name in ("UDP", "SCTP")]
        rule["ports"] = [*_all_but(blocked_ports), *others]
    return [rule]


def _all_but(ports: Sequence[int]) -> Iterator[dict[str, Any]]:
    first = 1
    for port in (*sorted(set(ports)), _LAST_PORT + 1):
        if first < port:
            yield {"protocol": "TCP", "port": first, "endPort": port - 1}
        first = port + 1


def server_rules(servers: Iterable[tuple[str, int]]) -> list[dict[str, Any]]:
    """Return egress rules for servers that are addresses: a policy cannot name hosts."""
    rules = []
    for host, port in servers:
        if (address := read_address(host)) is None:
            continue
        rules.append(
            {
                "to": [{"ipBlock": {"cidr": f"{address}/{address.max_prefixlen}"}}],
                "ports": [{"protocol": "TCP", "port": port}],
            }
        )
    return rules


def _block(network: Network, without: Sequence[Network]) -> dict[str, Any]:
    # The API server accepts only exceptions within the network.
    within = [
        str(one)
        for one in without
        if one.version == network.version and one != network and _is_within(one, network)
    ]
    return {"cidr": str(network), **({"except": within} if within else {})}


def _is_within(one: Network, other: Network) -> bool:
    if isinstance(one, ipaddress.IPv4Network) and isinstance(other, ipaddress.IPv4Network):
        return one.subnet_of(other)
    if isinstance(one, ipaddress.IPv6Network) and isinstance(other, ipaddress.IPv6Network):
        return one.subnet_of(other)
    return False
