"""Tests names, the name server's responses, and packets, without a network."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.local.cluster.kubelet.firewall import Attempt, read_attempt
from deploy.local.cluster.kubelet.names import addresses_of, answer, endpoints, target_port
from deploy.local.cluster.kubelet.netlink import attribute, attributes, message, nested, split
from deploy.local.cluster.kubelet.services import backends

Object = dict[str, Any]


def pod(address: str, *, ready: bool = True, hostname: str = "", **rest: Any) -> Object:
    """Return a Pod of the Service ``gang``."""
    spec: Object = {"containers": [{"ports": [{"name": "web", "containerPort": 8000}]}]}
    if hostname:
        spec |= {"hostname": hostname, "subdomain": "gang"}
    condition = {"type": "Ready", "status": str(ready)}
    return {
        "metadata": {"namespace": "n", "labels": {"app": "x"}, **rest},
        "spec": spec,
        "status": {"podIP": address, "phase": "Running", "conditions": [condition]},
    }


def service(name: str, address: str, **spec: Any) -> dict[tuple[str, str], Object]:
    """Return a Service by its key."""
    ports = [{"port": 80, "targetPort": "web"}, {"port": 53, "protocol": "UDP"}]
    spec = {"clusterIP": address, "selector": {"app": "x"}, "ports": ports, **spec}
    return {("n", name): {"metadata": {"namespace": "n", "name": name}, "spec": spec}}


SERVICES = {
    **service("gang", "None"),
    **service("web", "127.128.1.1"),
    **service("early", "None", publishNotReadyAddresses=True),
    **service("bare", "None", selector=None),
}
PODS = [
    pod("127.64.0.2", hostname="r0"),
    pod("127.64.0.3", hostname="r1", ready=False),
    pod("127.64.0.4", deletionTimestamp="now"),
]


@pytest.mark.parametrize(
    ("name", "addresses"),
    [
        ("web.n", ["127.128.1.1"]),
        ("WEB.n", ["127.128.1.1"]),
        ("gang.n", ["127.64.0.2"]),
        ("early.n", ["127.64.0.2", "127.64.0.3", "127.64.0.4"]),
        ("r0.gang.n", ["127.64.0.2"]),
        ("r1.gang.n", None),
        ("r0.web.n", None),
        ("bare.n", []),
        ("gang.m", None),
        ("a.r0.gang.n", None),
        ("n", None),
    ],
)
def test_a_name_resolves_to_its_addresses(name: str, addresses: list[str] | None) -> None:
    assert addresses_of(f"{name}.svc.cluster.local.", SERVICES, PODS) == addresses


def test_external_names_are_not_resolved() -> None:
    assert addresses_of("example.com", SERVICES, PODS) is None


def _query(name: str, kind: int = 1) -> bytes:
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    return struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 0) + labels + struct.pack("!BHH", 0, kind, 1)


@pytest.mark.parametrize(
    ("found", "kind", "code", "records"),
    [
        (["127.64.0.2", "127.64.0.3"], 1, 0, [b"\x7f\x40\0\x02", b"\x7f\x40\0\x03"]),
        (["127.64.0.2"], 28, 0, []),
        ([], 1, 0, []),
        (None, 1, 3, []),
    ],
)
def test_a_dns_response_repeats_the_question(
    found: list[str] | None, kind: int, code: int, records: list[bytes]
) -> None:
    asked = []

    def resolve(name: str) -> list[str] | None:
        asked.append(name)
        return found

    query = _query("gang.n", kind)
    said = answer(query, resolve)
    assert said is not None
    identifier, flags, questions, answers, *_ = struct.unpack_from("!HHHHHH", said)
    assert (identifier, flags & 15, questions, answers) == (7, code, 1, len(records))
    assert flags & 0x8000
    assert said[12 : len(query)] == query[12:]
    rest = said[len(query) :]
    assert [rest[at + 12 : at + 16] for at in range(0, len(rest), 16)] == records
    assert asked == ["gang.n"]


@given(st.binary(max_size=80))
def test_malformed_packets_do_not_stop_the_name_server(query: bytes) -> None:
    said = answer(query, lambda name: ["127.64.0.2"])
    assert said is None or said[:2] == query[:2]


def test_a_service_resolves_to_its_ready_pods() -> None:
    assert backends(SERVICES, PODS) == {("127.128.1.1", 80): [("127.64.0.2", 8000)]}
    ended = pod("127.64.0.9")
    ended["status"]["phase"] = "Succeeded"
    assert endpoints(SERVICES["n", "early"], [ended]) == []
    assert target_port({"port": 80, "targetPort": "none"}, PODS[0]) is None
    assert target_port({"port": 80}, PODS[0]) == 80


def test_a_packet_is_read_as_connection_attempt() -> None:
    ends = bytes([127, 64, 0, 2, 127, 64, 0, 3])
    head = bytes([0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0]) + ends
    tcp = struct.pack("!HH", 40000, 8000)
    assert read_attempt(head + tcp) == Attempt("127.64.0.2", "127.64.0.3", "TCP", 8000)
    longer = bytes([0x46]) + head[1:] + b"opts"
    assert read_attempt(longer + tcp).port == 8000
    ping = head[:9] + bytes([1]) + head[10:]
    assert read_attempt(ping + tcp) == Attempt("127.64.0.2", "127.64.0.3", "", 0)
    assert read_attempt(head).port == 0


def test_netlink_messages_round_trip() -> None:
    body = attribute(3, b"eth0\0") + nested(18, attribute(1, b"veth"))
    both = message(16, 5, body) + message(17, 5, b"")
    assert [kind for kind, _ in split(both)] == [16, 17]
    found = attributes(split(both)[0][1])
    assert found[3] == b"eth0\0"
    assert attributes(found[18]) == {1: b"veth"}
