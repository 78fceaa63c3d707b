"""What a NUMA topology policy asks of a task's containers. No I/O.

Volcano's webhook demands whole processors of every container of a task with a policy, init
containers too (``validateTaskTopoPolicy`` in its ``pkg/webhooks/admission/jobs/validate``): only
those get cores of their own from the kubelet's static CPU manager.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from controller.volcano.manifest import Container, Task, VolcanoJob
from controller.volcano.names import JOB_CONTAINER
from controller.volcano.quantity import Quantity

POLICIES: Final = (None, "none", "best-effort", "restricted", "single-numa-node")
_WHOLE: Final = 1000


def fit_init_containers(job: VolcanoJob) -> None:
    """Give init containers of tasks with a policy whole processors: what they have, rounded up.

    That costs nothing: a pod needs as much as the largest of its init containers or all of its
    containers together, and those have at least one (Kubernetes, "Init Containers").
    """
    for task in job.tasks:
        if _has_policy(task):
            for container in task.template.init_containers:
                if (cpu := _fraction(container)) is not None:
                    container.resources["cpu"] = Quantity(-(-cpu.milli // _WHOLE) * _WHOLE)


def topology_problems(path: str, task: Task) -> Iterator[tuple[str, str]]:
    """Yield what the webhook would refuse of *task*, which is at *path*."""
    if task.topology_policy not in POLICIES:
        yield f"{path}.topologyPolicy", "is none of Volcano's"
    if not _has_policy(task):
        return
    for container in (*task.template.containers, *task.template.init_containers):
        if (cpu := _fraction(container)) is None:
            continue
        if container.name == JOB_CONTAINER:
            where = f"{path}.template.spec.containers[{container.name}].resources.cpu"
            yield where, "a topology policy needs whole processors"
        else:
            text = f"needs whole processors, and the container {container.name} has {cpu}"
            yield f"{path}.topologyPolicy", text


def _has_policy(task: Task) -> bool:
    return task.topology_policy not in (None, "none")


def _fraction(container: Container) -> Quantity | None:
    cpu = container.resources.get("cpu")
    return cpu if cpu is not None and cpu.milli % _WHOLE else None
