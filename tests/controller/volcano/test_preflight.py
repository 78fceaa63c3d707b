from __future__ import annotations

from collections.abc import Callable

import pytest

from controller.volcano.manifest import (
    Container,
    Mount,
    PodTemplate,
    Port,
    Task,
    Variable,
    VolcanoJob,
    Volume,
)
from controller.volcano.policies import Rule
from controller.volcano.preflight import findings
from controller.volcano.quantities import Quantity


def make_good() -> VolcanoJob:
    amounts = {"cpu": Quantity(1000), "memory": Quantity(2**30 * 1000)}
    container = Container(name="job", image="x", resources=amounts)
    return VolcanoJob(
        name="j-1",
        namespace="n",
        min_available=1,
        tasks=[
            Task(name="job", replicas=1, template=PodTemplate(containers=[container])),
        ],
    )


def container(job: VolcanoJob) -> Container:
    return job.tasks[0].template.containers[0]


def twice(job: VolcanoJob) -> None:
    job.tasks.append(job.tasks[0])


def two_mounts(job: VolcanoJob) -> None:
    container(job).mounts += [Mount(volume="v", path="/a"), Mount(volume="v", path="/a")]
    job.tasks[0].template.volumes.append(Volume(name="v", source={"emptyDir": {}}))


def long_name(job: VolcanoJob) -> None:
    job.name, job.tasks[0].replicas = "j" * 58, 100_000


def half_a_processor(job: VolcanoJob) -> None:
    job.tasks[0].topology_policy = "restricted"
    container(job).resources["cpu"] = Quantity(500)


BREAKS: list[tuple[str, str, Callable[[VolcanoJob], object]]] = [
    ("a name that is no label", "metadata.name", lambda j: setattr(j, "name", "J")),
    ("a name too long for svc", "metadata.name", lambda j: setattr(j, "name", "j" * 60)),
    ("a label's value", "metadata.labels[a]", lambda j: j.labels.update(a="b c")),
    ("a label's name", "metadata.labels[a b]", lambda j: j.labels.update({"a b": "c"})),
    ("too much to remember", "metadata.annotations",
     lambda j: j.annotations.update(a="x" * 300_000)),
    ("too much for its pods to remember", "spec.tasks[job].template.metadata.annotations",
     lambda j: j.tasks[0].template.annotations.update(a="x" * 300_000)),
    ("no task", "spec.tasks", lambda j: j.tasks.clear()),
    ("two tasks of a name", "spec.tasks[job]", twice),
    ("a gang larger than the job", "spec.minAvailable", lambda j: setattr(j, "min_available", 2)),
    ("an empty gang", "spec.minAvailable", lambda j: setattr(j, "min_available", 0)),
    ("no retry is taken for three", "spec.maxRetry", lambda j: setattr(j, "max_retry", 0)),
    ("a negative time", "spec.ttlSecondsAfterFinished",
     lambda j: setattr(j, "retention_seconds", -1)),
    ("a task's name", "spec.tasks[A].name", lambda j: setattr(j.tasks[0], "name", "A")),
    ("no replica", "spec.tasks[job].replicas", lambda j: setattr(j.tasks[0], "replicas", 0)),
    ("the last pod's name", "spec.tasks[job].replicas",
     long_name),
    ("no container", "containers", lambda j: j.tasks[0].template.containers.clear()),
    ("an empty image", "image", lambda j: setattr(container(j), "image", "")),
    ("no limit", "resources.memory", lambda j: container(j).resources.pop("memory")),
    ("a variable twice", "env[A]",
     lambda j: container(j).environment.extend([Variable(name="A"), Variable(name="A")])),
    ("a port's name", "ports[8080]",
     lambda j: container(j).ports.append(Port(name="8080", port=8080))),
    ("a port's name with two hyphens", "ports[a--b]",
     lambda j: container(j).ports.append(Port(name="a--b", port=8080))),
    ("a port's number twice", "ports[8080]",
     lambda j: container(j).ports.extend(Port(name=name, port=8080) for name in "ab")),
    ("a port out of range", "ports[a]",
     lambda j: container(j).ports.append(Port(name="a", port=0))),
    ("a mount's path", "volumeMounts[a:b]",
     lambda j: container(j).mounts.append(Mount(volume="v", path="a:b"))),
    ("a volume that is missing", "volumeMounts[/a]",
     lambda j: container(j).mounts.append(Mount(volume="v", path="/a"))),
    ("two mounts in one place", "volumeMounts[/a]", two_mounts),
    ("a queue's name", "spec.queue", lambda j: setattr(j, "queue", "A")),
    ("Volcano's own queue", "spec.queue", lambda j: setattr(j, "queue", "root")),
    ("a class' name", "spec.priorityClassName",
     lambda j: setattr(j, "priority_class", "x" * 254)),
    ("more successes than replicas", "spec.minSuccess", lambda j: setattr(j, "min_success", 2)),
    ("a policy twice", "spec.policies[0]",
     lambda j: setattr(j, "policies", (Rule(action="AbortJob", event="PodFailed"),) * 2)),
    ("a task's policy", "spec.tasks[job].policies[0]",
     lambda j: setattr(j.tasks[0], "policies", (Rule(action="AbortJob", exit_code=0),))),
    ("a plugin that is not there", "spec.plugins.nope", lambda j: j.plugins.update(nope=[])),
    ("a framework without svc", "spec.plugins.pytorch", lambda j: j.plugins.update(pytorch=[])),
    ("mpi without ssh", "spec.plugins.mpi", lambda j: j.plugins.update(mpi=[], svc=[])),
    ("mpi without a master", "spec.tasks", lambda j: j.plugins.update(mpi=[], svc=[], ssh=[])),
    ("a task larger than itself", "spec.tasks[job].minAvailable",
     lambda j: setattr(j.tasks[0], "min_available", 2)),
    ("a task that waits for nobody", "spec.tasks[job].dependsOn.name[0]",
     lambda j: setattr(j.tasks[0], "depends_on", ("x",))),
    ("a task that waits for itself", "spec.tasks",
     lambda j: setattr(j.tasks[0], "depends_on", ("job",))),
    ("a topology that is none", "spec.tasks[job].topologyPolicy",
     lambda j: setattr(j.tasks[0], "topology_policy", "all")),
    ("half a processor", "resources.cpu", half_a_processor),
    ("two containers of a name", "containers[job]",
     lambda j: j.tasks[0].template.init_containers.append(container(j))),
    ("an init container without a limit", "initContainers[i].resources.memory",
     lambda j: j.tasks[0].template.init_containers.append(
         Container(name="i", image="x", resources={"cpu": Quantity(1)}))),
    ("a path that leads out of its volume", "volumeMounts[/a]",
     lambda j: container(j).mounts.append(Mount(volume="v", path="/a", sub_path="x/../.."))),
    ("more than a cluster keeps", "spec.tasks",
     lambda j: container(j).command.append("x" * 1_500_000)),
    ("a volume's name", "volumes[V]",
     lambda j: j.tasks[0].template.volumes.append(Volume(name="V", source={}))),
]  # fmt: skip


def test_a_valid_job_has_no_finding() -> None:
    assert findings(make_good()) == []


@pytest.mark.parametrize(("path", "change"), [b[1:] for b in BREAKS], ids=[b[0] for b in BREAKS])
def test_a_broken_rule_is_reported_at_its_path(
    path: str, change: Callable[[VolcanoJob], object]
) -> None:
    job = make_good()
    change(job)
    found = findings(job)
    assert any(where.endswith(path) for where, _ in found), found
