"""Tests the kubelet's decisions: images, listeners, probes, hosts, status, mounts."""

from __future__ import annotations

import os
import random
import socket
from pathlib import Path
from typing import Any

import pytest

from deploy.local.cluster.kubelet.addresses import NETWORK, Addresses
from deploy.local.cluster.kubelet.container import make_hosts
from deploy.local.cluster.kubelet.images import IMAGES, Image, find_image
from deploy.local.cluster.kubelet.listeners import Listeners, parse_listeners
from deploy.local.cluster.kubelet.mounts import make_mounts
from deploy.local.cluster.kubelet.probes import Verdict
from deploy.local.cluster.kubelet.status import Container, make_phase, make_status, terminated
from deploy.local.cluster.kubelet.volumes import Volume


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("jupyter/base-notebook", True),
        ("jupyter/base-notebook:2026-01-01", True),
        ("registry.example:5000/jupyter/base-notebook@sha256:0", True),
        ("localhost/shell", True),
        ("jupyter/other", False),
        ("team/shell", False),
        ("", False),
    ],
)
def test_an_image_is_found_without_registry_and_tag(name: str, known: bool) -> None:
    assert (find_image(name) is not None) == known


def test_every_image_starts_a_program_in_its_own_folder() -> None:
    for image in IMAGES.values():
        assert image.entrypoint or image.command
        assert image.working_dir.startswith("/")
        assert image.user != 0


LISTENERS = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:22B8 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1
   1: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 2
   2: 0200407F:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 3
   3: 00000000:22B9 00000000:0000 01 00000000:00000000 00:00000000 00000000  1000        0 4
"""


def test_only_sockets_listening_at_the_pod_address_count() -> None:
    assert parse_listeners(LISTENERS, "127.64.0.2") == {8888, 80}
    six = LISTENERS.replace("00000000:22B8", "0" * 32 + ":22B8")
    assert parse_listeners(six, "127.64.0.3") == {8888}


def opened_tables() -> list[int]:
    return [os.open(f"/proc/self/net/{name}", os.O_RDONLY) for name in ("tcp", "tcp6")]


def listeners(by: str) -> Listeners:
    if by == "tables":
        return Listeners(opened_tables(), None)
    if by == "a kernel that cannot say":
        kernel, gone = socket.socketpair()
        gone.close()
        return Listeners(opened_tables(), kernel)
    try:
        return Listeners((), socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4))
    except OSError:
        pytest.skip("this kernel has no sock_diag")


@pytest.mark.parametrize("by", ["kernel", "tables", "a kernel that cannot say"])
def test_listening_sockets_are_found_and_lost_again(by: str) -> None:
    found = listeners(by)
    hosts = {"127.0.0.9": True, "0.0.0.0": True, "127.0.0.8": False}
    for host, answers in hosts.items() | ({("::", True)} if socket.has_ipv6 else set()):
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as server:
            server.bind((host, 0))
            port = server.getsockname()[1]
            assert port not in found.ports("127.0.0.9")
            server.listen()
            assert (port in found.ports("127.0.0.9")) == answers, host
        assert port not in found.ports("127.0.0.9")
    found.close()
    assert found.ports("127.0.0.9") == set()


def test_a_probe_result_needs_consecutive_outcomes() -> None:
    verdict = Verdict(success_threshold=2, failure_threshold=3)
    outcomes = [True, True, False, False, True, False, False, False]
    expected = [None, True, None, None, None, None, None, False]
    assert [verdict.take(outcome) for outcome in outcomes] == expected


def test_addresses_are_in_the_network_and_unique() -> None:
    for seed in range(4):
        addresses = Addresses(random.Random(seed))
        taken = [addresses.take() for _ in range(300)]
        assert len(set(taken)) == 300
        assert all(NETWORK.supernet_of(_network(address)) for address in taken)
        addresses.give_back(taken[0])
        addresses.close()


def _network(address: str) -> Any:
    return type(NETWORK)(f"{address}/32")


def test_a_hosts_file_has_the_pod_its_domain_and_its_aliases() -> None:
    spec = {
        "hostname": "h",
        "subdomain": "s",
        "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["x", "y"]}],
    }
    pod = {
        "metadata": {"name": "a", "namespace": "n"},
        "spec": spec,
        "status": {"podIP": "127.64.0.2"},
    }
    lines = make_hosts(pod).splitlines()
    assert "127.64.0.2\th.s.n.svc.cluster.local\th" in lines
    assert "10.0.0.1\tx y" in lines


def _container(state: dict[str, Any], **rest: Any) -> Container:
    return Container("main", "busybox", state, rest.pop("last_state", {}), **rest)


WAITING = {"waiting": {"reason": "ContainerCreating"}}
RUNNING = {"running": {"startedAt": "now"}}
DONE, BROKEN = terminated(0, "then", "now", "id"), terminated(1, "then", "now", "id")


@pytest.mark.parametrize(
    ("policy", "inits", "mains", "phase"),
    [
        ("Never", [], [WAITING], "Pending"),
        ("Never", [], [RUNNING, WAITING], "Pending"),
        ("Never", [], [RUNNING], "Running"),
        ("Never", [], [DONE, RUNNING], "Running"),
        ("Never", [], [DONE], "Succeeded"),
        ("Never", [], [DONE, BROKEN], "Failed"),
        ("OnFailure", [], [BROKEN], "Running"),
        ("OnFailure", [], [DONE], "Succeeded"),
        ("Always", [], [DONE], "Running"),
        ("Never", [RUNNING], [WAITING], "Pending"),
        ("Never", [BROKEN], [WAITING], "Failed"),
        ("Always", [BROKEN], [WAITING], "Pending"),
        ("Never", [DONE], [RUNNING], "Running"),
    ],
)
def test_pod_phases_follow_container_states(
    policy: str, inits: list[Any], mains: list[Any], phase: str
) -> None:
    pod = {"spec": {"restartPolicy": policy}}
    made = [[_container(state) for state in states] for states in (inits, mains)]
    assert make_phase(pod, *made) == phase


def test_a_signal_is_an_exit_code_above_128() -> None:
    state = terminated(-9, "then", "now", "id")["terminated"]
    assert (state["exitCode"], state["signal"], state["reason"]) == (137, 9, "Error")


def test_a_condition_keeps_its_time_until_it_changes() -> None:
    pod: dict[str, Any] = {"spec": {"restartPolicy": "Never"}, "status": {}}
    common = {"address": "127.64.0.2", "host": "127.0.0.1", "started_at": "t0"}
    first = make_status(pod, [], [_container(RUNNING)], now="t1", **common)
    pod["status"] = first
    second = make_status(pod, [], [_container(RUNNING, ready=True)], now="t2", **common)
    times = {c["type"]: c["lastTransitionTime"] for c in second["conditions"]}
    assert times["Initialized"] == "t1"
    assert times["Ready"] == "t2"


def test_a_parent_is_mounted_before_its_subfolders() -> None:
    container = {
        "volumeMounts": [
            {"name": "v", "mountPath": "/work/deep/er/"},
            {"name": "v", "mountPath": "/work/deep", "readOnly": True, "subPath": "x"},
        ]
    }
    volumes = {"v": Volume(Path("/volumes/v"))}
    image = Image(visible=(Path("/venv"), Path("/venv/lib")))
    steps = make_mounts(container, image, volumes, own=Path("/own"), environment={})
    targets = [step["target"] for step in steps]
    assert targets[-4:] == ["/work", "/work/deep", "/work/deep/er", "/venv"]
    deep = steps[-3]
    assert (deep["source"], deep["read_only"]) == ("/volumes/v/x", True)


@pytest.mark.parametrize("below", ["../other", "/etc", "a/../../b"])
def test_a_sub_path_cannot_leave_its_volume(below: str) -> None:
    container = {"volumeMounts": [{"name": "v", "mountPath": "/m", "subPath": below}]}
    volumes = {"v": Volume(Path("/volumes/v"))}
    with pytest.raises(LookupError, match="subPath"):
        make_mounts(container, Image(), volumes, own=Path("/own"), environment={})
