"""Provides the jobs whose manifests are kept as golden files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from controller.store.jobs.relations import Caller, Peer

PRODUCTS: Final = """\
products:
  gpu-1:
    title: One GPU
    cpu: 8
    memory: 64Gi
    gpu: 1
    node_labels: {machine: gpu, zone: [a, b]}
    tolerations: [{key: gpu, value: "yes", effect: NoSchedule}]
    network: {egress: 10G}
    price: {amount: "1.25", unit: EUR}
"""
VOLUMES: Final = "home=home-{user}, sets=datasets/public:ro"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A job, the deployment's settings, and the plugins that run (all, if none are named).

    ``shows`` is the path, within the result, of what the plugin's documentation page shows.
    """

    name: str
    job: Mapping[str, Any]
    plugins: Sequence[str] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    peers: Sequence[Peer] = ()
    callers: Sequence[Caller] = ()
    shows: tuple[str | int, ...] = ("VolcanoJob", "spec", "tasks", 0, "template", "spec")


_LEAST: Final = {"id": "j1", "owner": {"user": "ada"}, "image": "busybox"}
_POD: Final = ("VolcanoJob", "spec", "tasks", 0, "template", "spec")


def _case(
    name: str,
    *,
    shows: tuple[str | int, ...] = _POD,
    settings: Mapping[str, str] | None = None,
    peers: Sequence[Peer] = (),
    callers: Sequence[Caller] = (),
    plugin: str = "",
    **job: Any,
) -> Case:
    plugins = ("task",) if name == "task" else ("task", plugin or name)
    return Case(
        name=name,
        job={**_LEAST, **job},
        plugins=plugins,
        settings=settings or {},
        peers=peers,
        callers=callers,
        shows=shows,
    )


WHOLE: Final = Case(
    name="whole",
    job={
        "id": "j2",
        "owner": {"user": "ada", "project": "sun"},
        "name": "train",
        "labels": {"team": "x"},
        "kind": "training",
        "image": "registry.example/img:1",
        "product": "gpu-1",
        "queue": "batch",
        "priority": "high",
        "framework": "pytorch",
        "tasks": [
            {"name": "master", "policies": [{"exit_code": 3, "action": "RestartJob"}]},
            {
                "name": "worker",
                "replicas": 3,
                "min_available": 2,
                "resources": {"cpu": 4},
                "depends_on": ["master"],
            },
        ],
        "invocation": {
            "command": [
                "train",
                {"parameter": "epochs", "prefix": "--epochs="},
                {"parameter": "data"},
                "$HOME",
            ],
            "environment": {"LR": {"parameter": "lr"}, "TOKEN": {"parameter": "token"}},
        },
        "parameters": {
            "epochs": {"type": "integer", "value": 3},
            "lr": {"type": "floating", "value": 0.1},
            "data": {"type": "directory", "path": "/home/set1", "read_only": True},
            "token": {"type": "secret", "value": "canary"},
            "lic": {"type": "licence", "address": "10.0.0.5", "port": 27000, "key": "canary"},
            "lab": {"type": "peer", "job": "j1", "hostname": "lab"},
        },
        "output": "/home/Jobs/train",
        "topology": {"numa": "single-numa-node", "network": {"mode": "hard", "tier": 1}},
        "interactive": {
            "board": {"kind": "web", "port": 6006, "task": "master"},
            "desk": {"kind": "vnc", "port": 5900, "password": {"parameter": "token"}},
        },
        "network": {"ingress": "100M", "egress": "100M"},
        "policies": [{"event": "PodFailed", "action": "RestartTask"}],
        "max_retry": 3,
        "time_allocation_seconds": 7200,
        "links": ["my-demo"],
    },
    settings={
        "FUMAROLE_CONTROLLER_VOLUMES": VOLUMES,
        "FUMAROLE_CONTROLLER_LICENCE_SERVERS": "10.0.0.5",
        "FUMAROLE_CONTROLLER_PRIORITIES": "high=site-high",
        "FUMAROLE_CONTROLLER_FAIR_SHARE": "on",
    },
    peers=(Peer("j1", "other", ended=False, address="10.96.0.7"),),
)

CASES: Final[tuple[Case, ...]] = (
    _case(
        "task",
        shows=("VolcanoJob", "spec"),
        product="gpu-1",
        framework="pytorch",
        tasks=[{"name": "master"}, {"name": "worker", "replicas": 3, "depends_on": ["master"]}],
        policies=[{"event": "PodFailed", "action": "RestartJob"}],
        max_retry=2,
    ),
    _case(
        "parameter",
        shows=(*_POD, "containers", 0),
        invocation={
            "command": [
                "train",
                {"parameter": "epochs", "prefix": "--epochs="},
                {"parameter": "set", "prefix": "--set="},
                {"parameter": "debug", "optional": True},
                "costs $(HOME)",
                {"parameter": "token", "prefix": "--token="},
            ],
            "environment": {"TOKEN": {"parameter": "token"}},
        },
        parameters={
            "epochs": {"type": "integer", "value": 3},
            "set": {"type": "text", "value": ["a", "b c"]},
            "token": {"type": "secret", "value": "canary"},
        },
    ),
    _case(
        "file_mount",
        settings={"FUMAROLE_CONTROLLER_VOLUMES": VOLUMES},
        parameters={
            "data": {"type": "directory", "path": "/sets/mnist"},
            "start": {"type": "file", "path": "/home/models/start.pt", "read_only": True},
        },
        output="/home/Jobs/train",
    ),
    Case(
        name="data_sets",
        job={
            **_LEAST,
            "parameters": {
                "images": {
                    "type": "directory", "path": "/sets/mnist", "policy": "staged",
                    "size_limit": "20Gi",
                },
                "index": {
                    "type": "file", "path": "/home/index.db", "policy": "memory",
                    "size_limit": "256Mi",
                },
                "words": {"type": "file", "path": "/home/words", "policy": "shared"},
            },
        },
        plugins=("task", "file_mount", "data_sets"),
        settings={"FUMAROLE_CONTROLLER_VOLUMES": VOLUMES},
    ),
    _case(
        "multi_node",
        shows=("VolcanoJob", "spec", "tasks", 1, "template", "spec"),
        tasks=[{"name": "master"}, {"name": "worker", "replicas": 3}],
    ),
    _case("shared_memory", resources={"memory": "4Gi"}),
    _case("network_limit", shows=("VolcanoJob", "spec", "tasks", 0, "template", "metadata"),
          network={"ingress": "100M", "egress": "1G"}),
    _case("kata_container", runtime="kata", resources={"cpu": 4, "memory": "8Gi"}),
    _case(
        "minikube",
        shows=("companions",),
        settings={"FUMAROLE_CONTROLLER_MINIKUBE": "on"},
        interactive={"lab": {"kind": "web", "port": 8888}},
    ),
    _case("miscellaneous", settings={"FUMAROLE_CONTROLLER_RUN_AS_USER": "1000"}),
    _case(
        "proxy",
        shows=("companions",),
        interactive={"lab": {"kind": "web", "port": 8888}},
    ),
    _case(
        "rank_services",
        plugin="proxy",
        shows=("companions",),
        settings={"FUMAROLE_CONTROLLER_RANK_SERVICES": "yes"},
        tasks=[{"name": "master"}, {"name": "worker", "replicas": 2}],
        interactive={
            "board": {"kind": "web", "port": 6006, "task": "worker"},
            "log": {"kind": "web", "port": 9000, "task": "worker"},
        },
    ),
    _case("fair_share", shows=("shared",), settings={"FUMAROLE_CONTROLLER_FAIR_SHARE": "on"}),
    _case(
        "connect_to_job",
        shows=("companions",),
        parameters={"lab": {"type": "peer", "job": "j2", "hostname": "lab"}},
        peers=[Peer("j2", "fumarole-jobs", ended=False, address="10.96.0.7")],
        callers=[Caller("j7", "fumarole-jobs", (5432,))],
    ),
    _case("expiry", shows=("job",), time_allocation_seconds=7200),
    _case("accounting", shows=("job",)),
    _case("ingress", shows=("job",), links=["my-demo"],
          interactive={"lab": {"kind": "web", "port": 8888}}),
    WHOLE,
)  # fmt: skip
