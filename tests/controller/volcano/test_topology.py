"""Tests the rounding to whole CPUs for a NUMA topology policy."""

from __future__ import annotations

import pytest

from controller.volcano.manifest import Container, PodTemplate, Task, VolcanoJob
from controller.volcano.preflight import fit_init_containers, topology_problems
from controller.volcano.quantities import Quantity


def make_task(
    policy: str | None, *, inits: tuple[int, ...] = (), others: tuple[int, ...] = ()
) -> Task:
    def containers(prefix: str, amounts: tuple[int, ...]) -> list[Container]:
        return [
            Container(name=f"{prefix}-{i}", image="x", resources={"cpu": Quantity(amount)})
            for i, amount in enumerate(amounts)
        ]

    job = Container(name="job", image="x", resources={"cpu": Quantity(2000)})
    template = PodTemplate(
        containers=[job, *containers("side", others)], init_containers=containers("init", inits)
    )
    return Task(name="a", replicas=1, template=template, topology_policy=policy)


@pytest.mark.parametrize(
    ("policy", "given", "made"),
    [
        (None, 50, 50),
        ("none", 50, 50),
        ("best-effort", 50, 1000),
        ("restricted", 1000, 1000),
        ("single-numa-node", 1001, 2000),
    ],
)
def test_init_containers_of_a_policys_task_are_rounded_up(
    policy: str | None, given: int, made: int
) -> None:
    task = make_task(policy, inits=(given,))
    job = VolcanoJob(name="j", namespace="n", tasks=[task])
    fit_init_containers(job)
    fit_init_containers(job)
    (init,) = task.template.init_containers
    assert init.resources == {"cpu": Quantity(made)}
    assert list(topology_problems("t", task)) == []


def test_a_fractional_cpu_is_reported_at_its_path() -> None:
    task = make_task("restricted", inits=(50,), others=(500,))
    task.template.containers[0].resources["cpu"] = Quantity(1500)
    assert [path for path, _ in topology_problems("t", task)] == [
        "t.template.spec.containers[job].resources.cpu",
        "t.topologyPolicy",
        "t.topologyPolicy",
    ]
    task.topology_policy = None
    assert list(topology_problems("t", task)) == []
