"""The rules for a VolcanoJob, checked before a request to the cluster.

They are the rules of Volcano's CRD and admission webhooks, and of the pod validation of Kubernetes.
A dry run before the acceptance finds the problems that only the cluster knows, such as a missing
queue or a quota (``controller.jobs.submission.dry_run``).

Volcano's webhook requires whole processors of every container of a task with a topology policy,
also of init containers (``validateTaskTopoPolicy`` in its
``pkg/webhooks/admission/jobs/validate``): only those get exclusive cores from the kubelet's static
CPU manager.

The OpenAPI document of the cluster has the schema of its release of Volcano (``Capabilities``). An
API server silently drops fields that a CustomResourceDefinition does not have, and a job would run
without the topology that it requested. So unknown fields are refused.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from hashlib import sha256
from typing import Any, Final

from controller.volcano.manifest import Container, PodTemplate, Task, VolcanoJob
from controller.volcano.names import JOB_CONTAINER
from controller.volcano.policies import Rule, problems_of
from controller.volcano.quantities import Quantity

POLICIES: Final = (None, "none", "best-effort", "restricted", "single-numa-node")
_WHOLE: Final = 1000


def fit_init_containers(job: VolcanoJob) -> None:
    """Round the processors of init containers up to whole ones, in tasks with a topology policy.

    That costs nothing: a pod needs the maximum of its largest init container and the sum of its
    containers, which have at least one processor (Kubernetes, "Init Containers").
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


Finding = tuple[str, str]
"""A path within the VolcanoJob, and the problem there."""

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_QUALIFIED: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]", re.ASCII)
_PORT_NAME: Final = re.compile(r"(?=.*[a-z])(?!.*--)[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?", re.ASCII)
_MOST_ANNOTATION_BYTES: Final = 256 * 1024
_LONGEST_JOB_NAME: Final = 59  # the svc plugin adds a volume `<job>-svc`
_LONGEST_POD_NAME: Final = 63
_LONGEST_CLASS_NAME: Final = 253
_MOST_BYTES: Final = 1_400_000  # etcd accepts 1.5 MiB, of which the server needs some
_PLUGINS: Final = frozenset(
    {"svc", "env", "ssh", "tensorflow", "mpi", "pytorch", "ray", "hcclrank"}
)
_NEEDS: Final = {
    "tensorflow": {"svc"},
    "pytorch": {"svc"},
    "ray": {"svc"},
    "mpi": {"svc", "ssh"},
}


def findings(job: VolcanoJob) -> list[Finding]:
    """Return all problems of *job*; none if the cluster should accept it."""
    return [
        *_job(job),
        *_together(job),
        *(found for task in job.tasks for found in _task(job, task)),
    ]


def _job(job: VolcanoJob) -> Iterator[Finding]:
    if not _LABEL.fullmatch(job.name) or len(job.name) > _LONGEST_JOB_NAME:
        yield "metadata.name", f"not a DNS label of at most {_LONGEST_JOB_NAME} characters"
    for name, value in job.labels.items():
        yield from _label(f"metadata.labels[{name}]", name, value)
    yield from annotation_findings("metadata.annotations", job.annotations)
    if job.retention_seconds < 0:
        yield "spec.ttlSecondsAfterFinished", "is negative"
    if not _LABEL.fullmatch(job.queue) or job.queue == "root":
        yield "spec.queue", "not a queue's name"
    if job.priority_class is not None and len(job.priority_class) > _LONGEST_CLASS_NAME:
        yield "spec.priorityClassName", "is too long"
    if job.policies:
        yield from _policies("spec.policies", job.policies)


def _policies(path: str, rules: Sequence[Rule]) -> Iterator[Finding]:
    for index, message in problems_of(rules):
        yield f"{path}[{index}]", message


def annotation_findings(path: str, annotations: Mapping[str, str]) -> Iterator[Finding]:
    """Find annotations at *path* that are too large together."""
    size = sum(len(n.encode()) + len(v.encode()) for n, v in annotations.items())
    if size > _MOST_ANNOTATION_BYTES:
        yield path, f"{size} bytes are more than {_MOST_ANNOTATION_BYTES}"


def _counts(job: VolcanoJob) -> Iterator[Finding]:
    total = sum(task.replicas for task in job.tasks)
    if not 1 <= job.min_available <= total:
        yield "spec.minAvailable", f"{job.min_available} is not between 1 and {total} replicas"
    if job.min_success is not None and not 1 <= job.min_success <= total:
        yield "spec.minSuccess", f"{job.min_success} is not between 1 and {total} replicas"
    if job.max_retry < 1:
        yield "spec.maxRetry", "less than 1 would be taken as 3"


def _together(job: VolcanoJob) -> Iterator[Finding]:
    """Find limits that only all parts together exceed."""
    if not job.tasks:
        yield "spec.tasks", "there is none"
    yield from _repeated("spec.tasks", (task.name for task in job.tasks))
    yield from _counts(job)
    yield from _plugins(job)
    known = {task.name for task in job.tasks}
    graph = {task.name: set(task.depends_on) & known for task in job.tasks}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError:
        yield "spec.tasks", "tasks wait for each other in a circle"
    size = len(json.dumps(job.manifest()).encode())
    if size > _MOST_BYTES:
        yield "spec.tasks", f"{size} bytes are more than the {_MOST_BYTES} that a cluster keeps"


def _plugins(job: VolcanoJob) -> Iterator[Finding]:
    for name in job.plugins.keys() - _PLUGINS:
        yield f"spec.plugins.{name}", "Volcano has no such plugin"
    for name in job.plugins:
        for missing in sorted(_NEEDS.get(name, set()) - job.plugins.keys()):
            yield f"spec.plugins.{name}", f"needs the plugin {missing}"
    if "mpi" in job.plugins and not any(task.name == "master" for task in job.tasks):
        yield "spec.tasks", "mpi needs a task master"


def _task(job: VolcanoJob, task: Task) -> Iterator[Finding]:
    path = f"spec.tasks[{task.name}]"
    if not _LABEL.fullmatch(task.name):
        yield f"{path}.name", "not a DNS label"
    if task.replicas < 1:
        yield f"{path}.replicas", "is less than 1"
    # Volcano checks this only with the index of the task, and then retries for ever.
    last = f"{job.name}-{task.name}-{max(task.replicas - 1, 0)}"
    if len(last) > _LONGEST_POD_NAME:
        yield f"{path}.replicas", f"its last pod's name {last} is too long to be a host name"
    if task.min_available is not None and not 1 <= task.min_available <= task.replicas:
        yield f"{path}.minAvailable", f"is not between 1 and {task.replicas} replicas"
    if task.policies:
        yield from _policies(f"{path}.policies", task.policies)
    known = {one.name for one in job.tasks}
    for index, other in enumerate(task.depends_on):
        if other not in known:
            yield f"{path}.dependsOn.name[{index}]", f"there is no task {other}"
    yield from topology_problems(path, task)
    # Otherwise only the pods are refused, and the job waits for them for ever.
    yield from annotation_findings(
        f"{path}.template.metadata.annotations", task.template.annotations
    )
    yield from _template(f"{path}.template.spec", task.template)


def _template(path: str, template: PodTemplate) -> Iterator[Finding]:
    if not template.containers:
        yield f"{path}.containers", "there is none"
    everyone = [*template.init_containers, *template.containers]
    yield from _repeated(f"{path}.containers", (one.name for one in everyone))
    yield from _repeated(f"{path}.volumes", (one.name for one in template.volumes))
    for volume in template.volumes:
        if not _LABEL.fullmatch(volume.name):
            yield f"{path}.volumes[{volume.name}]", "its name is not a DNS label"
    known = {volume.name for volume in template.volumes}
    for container in template.containers:
        yield from _container(f"{path}.containers[{container.name}]", container, known)
    for container in template.init_containers:
        yield from _container(f"{path}.initContainers[{container.name}]", container, known)
    for name, value in template.labels.items():
        yield from _label(f"{path}.labels[{name}]", name, value)


def _container(path: str, container: Container, volumes: set[str]) -> Iterator[Finding]:
    if not container.image.strip() or container.image != container.image.strip():
        yield f"{path}.image", "is empty or has spaces around it"
    for needed in ("cpu", "memory"):
        if not container.resources.get(needed):
            yield f"{path}.resources.{needed}", "is not limited"
    yield from _repeated(f"{path}.env", (one.name for one in container.environment))
    yield from _repeated(f"{path}.ports", (one.name for one in container.ports))
    # Only by the CRD's schema: Kubernetes accepts it in a pod.
    yield from _repeated(f"{path}.ports", (str(one.port) for one in container.ports))
    for port in container.ports:
        if not _PORT_NAME.fullmatch(port.name) or not 1 <= port.port <= 65535:
            yield f"{path}.ports[{port.name}]", "not a port, or not a port's name"
    yield from _repeated(f"{path}.volumeMounts", (one.path for one in container.mounts))
    for mount in container.mounts:
        if not mount.path.startswith("/") or ":" in mount.path:
            yield f"{path}.volumeMounts[{mount.path}]", "not an absolute path without a colon"
        if mount.volume not in volumes:
            yield f"{path}.volumeMounts[{mount.path}]", f"there is no volume {mount.volume}"
        if mount.sub_path.startswith("/") or ".." in mount.sub_path.split("/"):
            yield f"{path}.volumeMounts[{mount.path}]", "its subPath leads out of the volume"


def _label(path: str, name: str, value: str) -> Iterator[Finding]:
    prefix, _, plain = name.rpartition("/")
    if not _QUALIFIED.fullmatch(plain) or len(prefix) > 253:
        yield path, "not a label's name"
    if value and not _QUALIFIED.fullmatch(value):
        yield path, "not a label's value"


def _repeated(path: str, names: Iterable[str]) -> Iterator[Finding]:
    for name, times in Counter(names).items():
        if times > 1:
            yield f"{path}[{name}]", f"is there {times} times"


Json = Mapping[str, Any]

PATH: Final = "apis/batch.volcano.sh/v1alpha1"
"""Where the document is, below ``/openapi/v3``."""

_READ: Final = frozenset(
    {"enum", "maxLength", "pattern", "minimum", "maximum", "x-kubernetes-preserve-unknown-fields"}
)
_KIND: Final = {"group": "batch.volcano.sh", "version": "v1alpha1", "kind": "Job"}


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The schema of a VolcanoJob; without one nothing is known, and nothing is refused.

    ``digest`` is the same for the same schema, in every process.
    """

    schema: Json | None = None
    digest: str = ""

    def lacks(self, manifest: Json) -> list[Finding]:
        """Return what of *manifest* this Volcano does not accept, each with its path."""
        if self.schema is None:
            return []
        return list(_of_value(_part(self.schema, "spec"), manifest.get("spec"), "spec"))


def read_openapi(document: Json) -> Capabilities:
    """Return the capabilities in an OpenAPI 3 document of Volcano's group.

    Raises:
        ValueError: If a VolcanoJob is not in it.
    """
    schemas = (document.get("components") or {}).get("schemas") or {}
    for schema in schemas.values():
        kinds = schema.get("x-kubernetes-group-version-kind") or ()
        if any(_KIND.items() <= kind.items() for kind in kinds):
            return _with_digest({"properties": {"spec": _read_of(_part(schema, "spec"))}})
    raise ValueError("the cluster's OpenAPI document has no VolcanoJob")


def _with_digest(schema: Json) -> Capabilities:
    text = json.dumps(schema, sort_keys=True)
    return Capabilities(schema, sha256(text.encode()).hexdigest())


def _part(schema: Json, name: str) -> Json:
    found: Json = (schema.get("properties") or {}).get(name) or {}
    return found


def _read_of(schema: Json) -> Json:
    """Return the part of *schema* that is used: most of it is descriptions."""
    kept = {name: value for name, value in schema.items() if name in _READ}
    if (fields := schema.get("properties")) is not None:
        kept["properties"] = {name: _read_of(one) for name, one in fields.items()}
    for name in ("items", "additionalProperties"):
        if name in schema:
            one = schema[name]
            kept[name] = _read_of(one) if isinstance(one, Mapping) else one
    return kept


def _of_value(schema: Json, value: Any, path: str) -> Iterator[Finding]:
    if isinstance(value, Mapping):
        yield from _of_fields(schema, value, path)
    elif isinstance(value, list):
        items = schema.get("items")
        for index, one in enumerate(value if items else ()):
            yield from _of_value(items or {}, one, f"{path}[{index}]")
    else:
        yield from _of_scalar(schema, value, path)


def _of_fields(schema: Json, value: Json, path: str) -> Iterator[Finding]:
    known = schema.get("properties")
    others = schema.get("additionalProperties")
    keeps = schema.get("x-kubernetes-preserve-unknown-fields")
    for name, one in value.items():
        if known is not None and name in known:
            yield from _of_value(known[name], one, f"{path}.{name}")
        elif isinstance(others, Mapping):
            yield from _of_value(others, one, f"{path}.{name}")
        elif known is not None and not keeps and not others:
            yield f"{path}.{name}", "the cluster's Volcano does not know this"


def _of_scalar(schema: Json, value: Any, path: str) -> Iterator[Finding]:
    allowed = schema.get("enum")
    if allowed is not None and value not in allowed:
        yield path, f"the cluster's Volcano does not know {value}"
    if isinstance(value, str):
        if len(value) > schema.get("maxLength", len(value)):
            yield path, "is longer than the cluster's Volcano takes"
        pattern = schema.get("pattern")
        if pattern is not None and not _matches(pattern, value):
            yield path, "is not what the cluster's Volcano takes"
    elif isinstance(value, int) and not _is_in_range(schema, value):
        yield path, "is out of the range that the cluster's Volcano takes"


def _is_in_range(schema: Json, value: int) -> bool:
    return bool(schema.get("minimum", value) <= value <= schema.get("maximum", value))


def _matches(pattern: str, value: str) -> bool:
    try:
        return re.search(pattern, value) is not None
    except re.error:
        return True  # another dialect of regular expressions: the server decides
