"""Tests the peers' configurations in the benchmark of one attacker's cost to others."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import beside_peers
from benchmarks.beside_peers import ATTACKED
from benchmarks.install import Programs
from tests.pressure.attackers import ATTACKERS

PORTS = {"honest": 10_001, "attacked": 10_002, "port": 10_003}


@pytest.mark.parametrize("name", ["nginx", "haproxy", "envoy"])
def test_the_configuration_of_a_peer_names_the_attacked_host_and_all_ports(
    tmp_path: Path, name: str
) -> None:
    programs = Programs(found={name: f"/usr/sbin/{name}"})
    command = beside_peers._command(name, programs, tmp_path, PORTS)
    assert command[0] == f"/usr/sbin/{name}"
    (config,) = (path for path in tmp_path.iterdir() if str(path) in command)
    text = config.read_text()
    assert ATTACKED in text
    assert all(str(port) in text for port in PORTS.values())
    assert "{{" not in text


def test_every_attack_on_peers_exists_for_the_gateway() -> None:
    assert set(beside_peers.NAMES) <= set(ATTACKERS)
