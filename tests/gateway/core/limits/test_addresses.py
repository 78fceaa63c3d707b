from __future__ import annotations

from ipaddress import ip_network

import pytest

from gateway.core.limits.addresses import (
    client_address,
    is_within,
    limit_key,
)

PODS = (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))
PROXIES = (ip_network("192.0.2.0/24"), ip_network("2001:db8:1::/48"))


@pytest.mark.parametrize(
    "address", ["10.1.2.3", "10.255.255.255", "fd00::1", "::ffff:10.1.2.3", "::FFFF:a01:203"]
)
def test_allowed_addresses_are_accepted(address: str) -> None:
    assert is_within(address, PODS)


@pytest.mark.parametrize(
    "address",
    [
        "11.0.0.1", "127.0.0.1", "169.254.169.254", "0.0.0.0", "::1", "::", "fe80::1",
        "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "2002:7f00:1::1",
        "::127.0.0.1", "fd00::1%eth0", "", "localhost", "10.1", "0x0a010203", "10.1.2.3 ",
        "010.1.2.3", "167838211",
    ],
)  # fmt: skip
def test_forbidden_addresses_are_refused(address: str) -> None:
    assert not is_within(address, PODS)


@pytest.mark.parametrize("address", ["64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "::a9fe:a9fe"])
def test_an_address_that_embeds_another_is_checked_for_both(address: str) -> None:
    everything_v6 = (ip_network("::/0"),)
    assert not is_within(address, everything_v6)
    assert is_within(address, (*everything_v6, ip_network("169.254.0.0/16")))


@pytest.mark.parametrize(
    ("peer", "said", "client"),
    [
        ("9.9.9.9", b"1.1.1.1", "9.9.9.9"),
        ("192.0.2.1", None, "192.0.2.1"),
        ("192.0.2.1", b"1.1.1.1", "1.1.1.1"),
        ("192.0.2.1", b"evil, 1.1.1.1", "1.1.1.1"),
        ("192.0.2.1", b"8.8.8.8, 1.1.1.1, 192.0.2.2", "1.1.1.1"),
        ("192.0.2.1", b"192.0.2.3, 192.0.2.2", "192.0.2.3"),
        ("192.0.2.1", b"8.8.8.8, , 192.0.2.2", "192.0.2.2"),
        ("192.0.2.1", b"8.8.8.8:80", "8.8.8.8"),
        ("192.0.2.1", b"8.8.8.8:80, 192.0.2.2:65535", "8.8.8.8"),
        ("192.0.2.1", b"[2001:db8::1]:443", "2001:db8::1"),
        ("192.0.2.1", b"[2001:db8::1]", "2001:db8::1"),
        ("192.0.2.1", b"[::ffff:8.8.8.8]:1", "8.8.8.8"),
        ("192.0.2.1", b"9.9.9.9, 8.8.8.8:", "192.0.2.1"),
        ("192.0.2.1", b"9.9.9.9, 8.8.8.8:x", "192.0.2.1"),
        ("192.0.2.1", b"9.9.9.9, 8.8.8.8:123456", "192.0.2.1"),
        ("192.0.2.1", b"9.9.9.9, [2001:db8::1", "192.0.2.1"),
        ("192.0.2.1", b"9.9.9.9, [fe80::1%25eth0]:1", "192.0.2.1"),
        ("192.0.2.1", b"\xff", "192.0.2.1"),
        ("2001:db8:1::9", b"2001:DB8::1", "2001:db8::1"),
        ("192.0.2.1", b"::ffff:1.1.1.1", "1.1.1.1"),
        ("192.0.2.1", b"8.8.8.8, ::ffff:192.0.2.9", "8.8.8.8"),
        ("192.0.2.1", b"8.8.8.8" + b", 192.0.2.2" * 31, "8.8.8.8"),
        ("192.0.2.1", b"8.8.8.8, 192.0.2.3" + b", 192.0.2.2" * 31, "192.0.2.3"),
        ("192.0.2.1", b"8.8.8.8, 192.0.2.4, 192.0.2.3" + b", 192.0.2.2" * 31, "192.0.2.3"),
    ],
)
def test_the_client_is_the_rightmost_address_outside_trusted_proxies(
    peer: str, said: bytes | None, client: str
) -> None:
    assert client_address(peer, said, PROXIES) == client


def test_without_trusted_proxies_x_forwarded_for_is_ignored() -> None:
    assert client_address("192.0.2.1", b"1.1.1.1", ()) == "192.0.2.1"


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8:0:0:ffff:ffff:ffff:ffff", "2001:db8::/64"),
        ("2001:db8:0:1::1", "2001:db8:0:1::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("::ffff:c000:201", "192.0.2.1"),
        ("", ""),
        ("no:address", "no:address"),
    ],
)
def test_an_ipv6_client_is_counted_by_its_network(address: str, key: str) -> None:
    assert limit_key(address) == key
