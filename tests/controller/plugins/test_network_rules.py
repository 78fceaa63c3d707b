from __future__ import annotations

import ipaddress

from hypothesis import given
from hypothesis import strategies as st

from controller.plugins.connect_to_job import dns_rule, network_rules, server_rules
from controller.site.job_defaults import Dns
from controller.volcano.manifest import pods_in
from shared.settings import networks

PORTS = st.integers(1, 65535)


@given(st.lists(PORTS, min_size=1, max_size=8), PORTS)
def test_all_ports_but_the_blocked_ones_are_named_once(blocked: list[int], port: int) -> None:
    (rule,) = network_rules(networks("0.0.0.0/0"), (), blocked_ports=blocked)
    for tried in (port, *blocked):
        hits = [
            one
            for one in rule["ports"]
            if one["protocol"] == "TCP" and one["port"] <= tried <= one["endPort"]
        ]
        assert len(hits) == (0 if tried in blocked else 1)


@given(st.lists(st.ip_addresses(v=4), max_size=4), st.integers(0, 32), st.integers(0, 32))
def test_exceptions_lie_within_the_network_and_are_not_all_of_it(
    addresses: list[ipaddress.IPv4Address], wide: int, narrow: int
) -> None:
    (whole,) = networks(f"{ipaddress.ip_network(f'10.9.8.7/{wide}', strict=False)}")
    given_ = [ipaddress.ip_network(f"{one}/{narrow}", strict=False) for one in addresses]
    (rule,) = network_rules([whole], [*given_, *networks("fc00::/7")])
    (entry,) = rule["to"]
    for one in map(ipaddress.ip_network, entry["ipBlock"].get("except", ())):
        assert isinstance(one, ipaddress.IPv4Network)
        assert isinstance(whole, ipaddress.IPv4Network)
        assert one.subnet_of(whole)
        assert one != whole


def test_without_egress_no_rule_is_written_instead_of_an_empty_one() -> None:
    # A rule without a destination would admit every destination.
    assert network_rules((), networks("10.0.0.0/8"), blocked_ports=(25,)) == []
    assert server_rules([("licences.example.com", 27000)]) == []


def test_a_mapped_address_of_a_server_is_the_ipv4_address_that_packets_have() -> None:
    """API servers from 1.36 on refuse mapped addresses (``StrictIPCIDRValidation``)."""
    rules = server_rules([("::ffff:10.0.0.5", 27000), ("::ffff:a00:6", 1), ("fd00::1", 2)])
    blocks = [one["to"][0]["ipBlock"]["cidr"] for one in rules]
    assert blocks == ["10.0.0.5/32", "10.0.0.6/32", "fd00::1/128"]


def test_every_egress_rule_has_a_destination() -> None:
    dns = Dns(namespaces=("dns",), networks=networks("10.0.0.10/32"), ports=(53, 5353))
    rules = [dns_rule(dns), *network_rules(networks("::/0"), ()), *server_rules([("fd00::1", 1)])]
    assert all(rule["to"] for rule in rules)
    assert rules[0] == {
        "to": [
            {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "dns"}}},
            {"ipBlock": {"cidr": "10.0.0.10/32"}},
        ],
        "ports": [
            {"protocol": "UDP", "port": 53},
            {"protocol": "TCP", "port": 53},
            {"protocol": "UDP", "port": 5353},
            {"protocol": "TCP", "port": 5353},
        ],
    }
    assert rules[-1]["to"] == [{"ipBlock": {"cidr": "fd00::1/128"}}]


def test_pods_are_selected_by_namespace_and_labels_in_one_entry() -> None:
    entry = pods_in("there", {"a": "b"})
    assert set(entry) == {"namespaceSelector", "podSelector"}
