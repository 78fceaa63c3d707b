"""Tests the choice of ports: one for each name, and no port for two systems."""

from __future__ import annotations

import socket
import subprocess
import sys

from deploy.local.ports import ANY, Ports


def test_a_name_has_one_port_and_no_two_names_the_same() -> None:
    ports = Ports()
    given = {name: ports[name] for name in map(str, range(100))}
    assert len(set(given.values())) == 100
    assert all(ports[name] == port for name, port in given.items())


def test_any_port_is_none_that_the_kernel_gives_to_connections() -> None:
    assert Ports()["api"] in ANY


def test_the_next_one_is_given_where_the_wanted_one_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        wanted = taken.getsockname()[1]
        assert wanted < Ports().take("page", wanted) < wanted + 100


def test_two_systems_that_start_at_once_are_not_given_the_same_port() -> None:
    one, two = Ports(), Ports()
    wanted = one.take("public")
    assert wanted < two.take("public", wanted) < wanted + 100


def test_a_port_is_free_again_when_its_owner_is_gone() -> None:
    code = "from deploy.local.ports import Ports; print(Ports().take('public'))"
    port = int(subprocess.check_output([sys.executable, "-c", code], text=True))
    assert Ports().take("public", port) == port
