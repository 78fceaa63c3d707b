"""The rules that a VolcanoJob of ours could break, told before the cluster is asked.

They are those of Volcano's CRD and admission webhooks and of Kubernetes' pod validation. What
only the cluster knows (whether a queue is open, a quota) comes back from it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from controller.volcano.manifest import Container, PodTemplate, Task, VolcanoJob

Finding = tuple[str, str]
"""A path within the VolcanoJob, and what is wrong there."""

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_QUALIFIED: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]", re.ASCII)
_PORT_NAME: Final = re.compile(r"(?=.*[a-z])(?!.*--)[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?", re.ASCII)
_MOST_ANNOTATION_BYTES: Final = 256 * 1024
_LONGEST_JOB_NAME: Final = 59  # with svc, a volume `<job>-svc` is made
_LONGEST_POD_NAME: Final = 63


def findings(job: VolcanoJob) -> list[Finding]:
    """Return everything that is wrong with *job*; nothing when the cluster should take it."""
    return [*_job(job), *(found for task in job.tasks for found in _task(job, task))]


def _job(job: VolcanoJob) -> Iterator[Finding]:
    if not _LABEL.fullmatch(job.name) or len(job.name) > _LONGEST_JOB_NAME:
        yield "metadata.name", f"not a DNS label of at most {_LONGEST_JOB_NAME} characters"
    for name, value in job.labels.items():
        yield from _label(f"metadata.labels[{name}]", name, value)
    size = sum(len(n.encode()) + len(v.encode()) for n, v in job.annotations.items())
    if size > _MOST_ANNOTATION_BYTES:
        yield "metadata.annotations", f"{size} bytes are more than {_MOST_ANNOTATION_BYTES}"
    if not job.tasks:
        yield "spec.tasks", "there is none"
    total = sum(task.replicas for task in job.tasks)
    if not 1 <= job.min_available <= total:
        yield "spec.minAvailable", f"{job.min_available} is not between 1 and {total} replicas"
    if job.max_retry < 1:
        yield "spec.maxRetry", "less than 1 would be taken as 3"
    if job.retention_seconds < 0:
        yield "spec.ttlSecondsAfterFinished", "is negative"
    yield from _repeated("spec.tasks", (task.name for task in job.tasks))


def _task(job: VolcanoJob, task: Task) -> Iterator[Finding]:
    path = f"spec.tasks[{task.name}]"
    if not _LABEL.fullmatch(task.name):
        yield f"{path}.name", "not a DNS label"
    if task.replicas < 1:
        yield f"{path}.replicas", "is less than 1"
    # Volcano itself checks this with the task's index only, and then retries for ever.
    last = f"{job.name}-{task.name}-{max(task.replicas - 1, 0)}"
    if len(last) > _LONGEST_POD_NAME:
        yield f"{path}.replicas", f"its last pod's name {last} is too long to be a host name"
    yield from _template(f"{path}.template.spec", task.template)


def _template(path: str, template: PodTemplate) -> Iterator[Finding]:
    if not template.containers:
        yield f"{path}.containers", "there is none"
    yield from _repeated(f"{path}.containers", (one.name for one in template.containers))
    yield from _repeated(f"{path}.volumes", (one.name for one in template.volumes))
    for volume in template.volumes:
        if not _LABEL.fullmatch(volume.name):
            yield f"{path}.volumes[{volume.name}]", "its name is not a DNS label"
    known = {volume.name for volume in template.volumes}
    for container in template.containers:
        yield from _container(f"{path}.containers[{container.name}]", container, known)
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
    for port in container.ports:
        if not _PORT_NAME.fullmatch(port.name) or not 1 <= port.port <= 65535:
            yield f"{path}.ports[{port.name}]", "not a port, or not a port's name"
    yield from _repeated(f"{path}.volumeMounts", (one.path for one in container.mounts))
    for mount in container.mounts:
        if not mount.path.startswith("/") or ":" in mount.path:
            yield f"{path}.volumeMounts[{mount.path}]", "not an absolute path without a colon"
        if mount.volume not in volumes:
            yield f"{path}.volumeMounts[{mount.path}]", f"there is no volume {mount.volume}"


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
