"""What a NetworkPolicy says of a job's pods, and of whom they may reach outside of the cluster."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from shared.networks import Network

Json: TypeAlias = dict[str, Any]

_LAST_PORT: Final = 65535

NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"
"""Set by the API server on every namespace: nobody can give it to another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dns:
    """Where the cluster's name servers are, as a NetworkPolicy sees them.

    A policy acts on the pod behind a Service: ``ports`` are those on which the name servers' pods
    listen. ``networks`` are for name servers that are no pods, or run in their node's network.
    """

    namespaces: tuple[str, ...]
    networks: tuple[Network, ...]
    ports: tuple[int, ...]


def pods_in(namespace: str, labels: Mapping[str, str]) -> Json:
    """Return what selects pods with *labels* in *namespace*.

    Both selectors in one entry: as two entries they would mean "or".
    """
    return {
        "namespaceSelector": {"matchLabels": {NAMESPACE_LABEL: namespace}},
        "podSelector": {"matchLabels": dict(labels)},
    }


def dns_rule(dns: Dns) -> Json:
    """Return the egress rule for looking up names in the cluster."""
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
) -> list[Json]:
    """Return the egress rule for *networks* but for what of them is in *without*; none for none.

    With *blocked_ports* it names all other ports: then nothing but TCP, UDP and SCTP goes through.
    """
    if not networks:
        return []
    rule: Json = {"to": [{"ipBlock": _block(one, without)} for one in networks]}
    if blocked_ports:
        others = [{"protocol": name, "port": 1, "endPort": _LAST_PORT} for name in ("UDP", "SCTP")]
        rule["ports"] = [*_all_but(blocked_ports), *others]
    return [rule]


def _all_but(ports: Sequence[int]) -> Iterator[Json]:
    first = 1
    for port in (*sorted(set(ports)), _LAST_PORT + 1):
        if first < port:
            yield {"protocol": "TCP", "port": first, "endPort": port - 1}
        first = port + 1


def server_rules(servers: Iterable[tuple[str, int]]) -> list[Json]:
    """Return egress rules for those of the servers that are addresses: names cannot be ruled on."""
    rules = []
    for host, port in servers:
        try:
            network = ipaddress.ip_network(host)
        except ValueError:
            continue
        rules.append(
            {
                "to": [{"ipBlock": {"cidr": str(network)}}],
                "ports": [{"protocol": "TCP", "port": port}],
            }
        )
    return rules


def _block(network: Network, without: Sequence[Network]) -> Json:
    # The API server takes exceptions only that lie within the network.
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
