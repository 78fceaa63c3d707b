"""Tests listening sockets: the families and addresses that they accept."""

from __future__ import annotations

import socket

import pytest

from shared.runtime.listeners import listen

needs_ipv6 = pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")


def reaches(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


def test_an_ipv4_address_binds_ipv4_alone() -> None:
    (sock,) = listen("127.0.0.1", 0)
    with sock:
        assert sock.family == socket.AF_INET
        assert reaches("127.0.0.1", sock.getsockname()[1])


@needs_ipv6
def test_the_unspecified_ipv6_address_binds_both_families() -> None:
    (sock,) = listen("::", 0)
    with sock:
        port = sock.getsockname()[1]
        assert reaches("::1", port)
        assert reaches("127.0.0.1", port)


@needs_ipv6
def test_any_other_ipv6_address_binds_ipv6_alone() -> None:
    (sock,) = listen("::1", 0)
    with sock:
        port = sock.getsockname()[1]
        assert reaches("::1", port)
        assert not reaches("127.0.0.1", port)


def test_a_host_name_binds_all_its_addresses_at_one_port(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [(socket.AF_INET, 1, 6, "", (host, 0)) for host in ("127.0.0.1", "127.0.0.2")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_kw: [*found, found[0]])
    sockets = listen("two.example", 0)
    names = [sock.getsockname() for sock in sockets]
    for sock in sockets:
        sock.close()
    assert [name[0] for name in names] == ["127.0.0.1", "127.0.0.2"]
    assert names[0][1] == names[1][1]


def test_if_one_address_is_in_use_none_is_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.2", 0)) as taken:
        port = taken.getsockname()[1]
        found = [(socket.AF_INET, 1, 6, "", (host, port)) for host in ("127.0.0.3", "127.0.0.2")]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_kw: found)
        with pytest.raises(OSError, match=r"cannot listen at .*:\d+: .*in use"):
            listen("two.example", port)
        monkeypatch.undo()
        # Other tests have this port at 127.0.0.1.
        assert not reaches("127.0.0.3", port)
