"""Tests the choice of ports: one for each name, and no port for two systems."""

from __future__ import annotations

import socket
import subprocess
import sys

from deploy.local.ports import ANY, Ports


def test_each_name_has_its_own_port() -> None:
    ports = Ports()
    given = {name: ports[name] for name in map(str, range(100))}
    assert len(set(given.values())) == 100
    assert all(ports[name] == port for name, port in given.items())


def test_ports_are_outside_the_ephemeral_range() -> None:
    assert Ports()["api"] in ANY


def test_the_next_port_is_used_if_the_wanted_one_is_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        wanted = taken.getsockname()[1]
        assert wanted < Ports().take("page", wanted) < wanted + 100


def test_two_concurrent_starts_get_different_ports() -> None:
    one, two = Ports(), Ports()
    wanted = one.take("public")
    assert wanted < two.take("public", wanted) < wanted + 100


def test_a_port_is_free_after_its_owner_exits() -> None:
    code = "from deploy.local.ports import Ports; print(Ports().take('public'))"
    port = int(subprocess.check_output([sys.executable, "-c", code], text=True))
    assert Ports().take("public", port) == port
