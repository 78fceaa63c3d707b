"""Volcano's plugins for distributed frameworks: what each requires, and what it does to pods.

This module follows the sources of Volcano, and adds checks that the plugins lack: ``mpi`` without
workers crashes Volcano's controller, and a second ``master`` of ``pytorch`` gets the rank of the
first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from controller.volcano.names import JOB_CONTAINER

MANY: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """A framework.

    Args:
        tasks: The names of its tasks, and the most replicas of each.
        needs: The required tasks; of those in one tuple, any one.
        others: Whether tasks with other names are allowed.
        arguments: The arguments of its Volcano plugin.
        ssh: Whether its pods use ssh.
        ports: The ports that it opens, by the name that it gives them.
        ports_in: The task whose pods open them; None: all.
        variables: The variables that it sets.
        own_command: The tasks whose command it sets.
    """

    tasks: Mapping[str, int]
    needs: tuple[tuple[str, ...], ...]
    others: bool = True
    arguments: tuple[str, ...] = ()
    ssh: bool = False
    ports: Mapping[str, int] = field(default_factory=dict)
    ports_in: str | None = None
    variables: frozenset[str] = frozenset()
    own_command: frozenset[str] = frozenset()


FRAMEWORKS: Final[Mapping[str, Framework]] = MappingProxyType(
    {
        "pytorch": Framework(
            tasks={"master": 1, "worker": MANY},
            needs=(("master",),),
            arguments=("--master=master", "--worker=worker", "--port=23456"),
            ports={"pytorchjob-port": 23456},
            variables=frozenset({"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK"}),
        ),
        "tensorflow": Framework(
            tasks={"chief": 1, "ps": MANY, "worker": MANY, "evaluator": 1},
            needs=(("chief", "worker"),),
            # A task of another name would have that as its type, which TensorFlow refuses.
            others=False,
            arguments=("--ps=ps", "--worker=worker", "--chief=chief", "--evaluator=evaluator",
                       "--port=2222"),
            variables=frozenset({"TF_CONFIG"}),
        ),
        "mpi": Framework(
            tasks={"master": 1, "worker": MANY},
            needs=(("master",), ("worker",)),
            arguments=("--master=master", "--worker=worker"),
            ssh=True,
            variables=frozenset({"MPI_HOST"}),
        ),
        "ray": Framework(
            tasks={"head": 1, "worker": MANY},
            needs=(("head",),),
            arguments=(
                "--head=head",
                "--worker=worker",
                f"--headContainer={JOB_CONTAINER}",
                f"--workerContainer={JOB_CONTAINER}",
                "--port=6379",
                "--dashboardPort=8265",
                "--clientPort=10001",
            ),
            ports={"gcs": 6379, "dashboard": 8265, "client-server": 10001},
            ports_in="head",
            own_command=frozenset({"head", "worker"}),
        ),
    }
)  # fmt: skip
