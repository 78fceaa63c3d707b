"""Tests embedded addresses, special networks, and the networks that jobs may reach."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest

from shared.networks import NOT_THE_WORLD, Bounds, embedded
from tests.corpora import read_corpus

EVERYWHERE = (ip_network("0.0.0.0/0"), ip_network("::/0"))


def test_addresses_embedded_in_ipv6_are_found() -> None:
    inner = ip_address("10.1.2.3")
    for outer in ("::ffff:10.1.2.3", "64:ff9b::a01:203", "64:ff9b:1::a01:203", "2002:a01:203::1"):
        assert list(embedded(ip_address(outer))) == [ip_address(outer), inner]
    assert list(embedded(ip_address("::1"))) == [ip_address("::1")]
    assert list(embedded(inner)) == [inner]


def test_a_special_network_is_allowed_only_by_a_network_within_it() -> None:
    assert not Bounds(EVERYWHERE).allow("127.0.0.1")
    assert not Bounds((ip_network("126.0.0.0/7"),)).allow("127.0.0.1")
    assert Bounds((ip_network("127.0.0.0/8"),)).allow("127.0.0.1")
    assert Bounds((*EVERYWHERE, ip_network("127.0.0.1/32"))).allow("127.0.0.1")
    assert not Bounds((*EVERYWHERE, ip_network("127.0.0.1/32"))).allow("127.0.0.2")
    api = ip_network("10.96.0.1/32")
    assert not Bounds(EVERYWHERE, (api,)).allow("10.96.0.1")
    assert Bounds(EVERYWHERE, (api,)).allow("10.96.0.2")
    assert Bounds((*EVERYWHERE, api), (api,)).allow("10.96.0.1")


def test_every_address_of_the_corpus_is_judged_as_recorded() -> None:
    """Each line of the corpus has the allowed networks, an address, and whether it is dialled."""
    wrong = []
    for expected, networks, address in read_corpus("targets", 3):
        bounds = Bounds(tuple(map(ip_network, networks.split(","))), (ip_network("10.96.0.1/32"),))
        if bounds.allow(address) != (expected == "in"):
            wrong.append((expected, networks, address))
    assert not wrong


@pytest.mark.parametrize(
    "address",
    [
        "168.63.129.16", "169.254.169.254", "100.100.100.200", "192.0.0.192", "198.18.0.1",
        "10.96.0.1", "127.0.0.1", "0.0.0.0", "224.0.0.1", "255.255.255.255", "192.88.99.1",
        "fd00:ec2::254", "fd20:ce::254", "fe80::1", "fec0::1", "::1", "::a9fe:a9fe",
        "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:a9fe:a9fe::1", "2001:0:a9fe:a9fe::1",
    ],
)  # fmt: skip
def test_default_egress_excludes_nodes_cluster_metadata_and_embedded_addresses(
    address: str,
) -> None:
    assert any(ip_address(address) in network for network in NOT_THE_WORLD)


@pytest.mark.parametrize("address", ["9.9.9.9", "192.0.2.1", "2606:4700::1", "2001:4860:4860::8"])
def test_default_egress_includes_public_addresses(address: str) -> None:
    assert not any(ip_address(address) in network for network in NOT_THE_WORLD)


def test_no_network_exception_is_listed_twice() -> None:
    for one in NOT_THE_WORLD:
        others = [other for other in NOT_THE_WORLD if other != one]
        assert not any(
            one.version == other.version and one.network_address in other for other in others
        )
