"""Tells every rank its number and the names of the others, in files that any program can read.

Most files are in one projected volume: a ConfigMap that all ranks share, and the pod's own
annotations and processors from the downward API. The downward API can neither add two numbers nor
end a line. So if a task has several replicas, an init container writes these files.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Final

from controller.jobs.pipeline.builder import Companion, JobBuilder, make_helper
from controller.jobs.pipeline.plugin import JobPlugin
from controller.jobs.spec.model import EffectiveTask, Job
from controller.volcano.manifest import Container, Mount, PodTemplate, Variable, Volume
from controller.volcano.names import (
    JOB_CONTAINER,
    RANKS_CONTAINER,
    TASK_INDEX_LABEL,
    companion_name,
    pod_name,
    volcano_job_name,
)
from controller.volcano.quantities import Quantity

MOST_BYTES: Final = 1_000_000
"""The limit of the ConfigMap; an API server accepts a mebibyte."""

_COMPANION: Final = "ranks"
_VOLUME: Final = "ranks"
_WRITTEN: Final = "ranks-written"
_SOURCE: Final = "/ranks/source"
_TARGET: Final = "/ranks/written"
_RANK_ANNOTATION: Final = "fumarole.dev/rank"
_CORES_ANNOTATION: Final = "fumarole.dev/cores"

PREPARE: Final = """\
source=$1 target=$2 first=$3 seconds=$4
shift 4
cp -L "$source"/* "$target"/ || exit 1
rank=$((first + INDEX))
echo "$rank" > "$target/rank.txt" || exit 1
cores=$(cat "$source/cores.txt") || exit 1
echo "$cores" > "$target/cores.txt" || exit 1
end=$(($(date +%s) + seconds))
domain=$(sed -n 's/^search \\([^ ]*\\).*/\\1/p' /etc/resolv.conf)
known() {
  getent hosts "$1" > /dev/null 2>&1 || nslookup -type=a "$1.$domain" > /dev/null 2>&1
}
for range in "$@"; do
  node=${range%-*}
  while [ "$node" -le "${range#*-}" ]; do
    name=$(cat "$source/node-$node.txt")
    until known "$name"; do
      if [ "$(date +%s)" -ge "$end" ]; then
        echo "$name has no address after $seconds s; going on without"
        break 3
      fi
      sleep 1
    done
    node=$((node + 1))
  done
done
"""
"""Copies the known files, writes the rank, and waits until the ranks in its ranges have addresses.

Every file ends with a line break, which the downward API does not write. BusyBox has no ``getent``,
and its ``nslookup`` does not use the search domains.
"""


class MultiNodePlugin(JobPlugin):
    """Writes ``rank.txt``, ``number_of_nodes.txt``, ``nodes.txt`` and ``node-<rank>.txt``.

    It also writes ``cores.txt`` and ``job_id.txt``. The host names are those of Volcano's ``svc``
    plugin, and resolve within the job's namespace.
    """

    name: ClassVar[str] = "multi_node"
    # After task, which orders the ranks, and kata_container, which changes the processors.
    after: ClassVar[tuple[str, ...]] = ("task", "kata_container")

    async def on_create(self, job: Job, builder: JobBuilder) -> None:
        """Add the ConfigMap, and mount the folder in every task."""
        data = _data(job)
        size = sum(len(name) + len(text) for name, text in data.items())
        if size > MOST_BYTES:
            builder.refuse("replicas", f"the names of {job.ranks} ranks are too long to be written")
            return
        name = companion_name(job.id, _COMPANION)
        builder.add_companion(
            Companion(kind="ConfigMap", name=name, manifest={"data": data}, when="before")
        )
        for task in job.effective_tasks:
            self._add_to(builder, job, task, name)

    def _add_to(self, builder: JobBuilder, job: Job, task: EffectiveTask, name: str) -> None:
        template = builder.task(task.name).template
        seconds = self.context.jobs.pods.wait_for_names_seconds if job.ranks > 1 else 0
        cores = builder.container(task.name).resources["cpu"]
        source = _source(task, template, name, cores)
        template.volumes.append(Volume(name=_VOLUME, source=source))
        volume = _VOLUME
        if seconds or task.replicas > 1:
            volume = _WRITTEN
            template.volumes.append(Volume(name=volume, source={"emptyDir": {"sizeLimit": "16Mi"}}))
            template.init_containers.append(self._prepare(job, task, seconds))
        folder = self.context.jobs.pods.ranks_folder
        mount = Mount(volume=volume, path=folder, read_only=True)
        builder.container(task.name).mounts.append(mount)

    def _prepare(self, job: Job, task: EffectiveTask, seconds: int) -> Container:
        awaited = [one for one in job.effective_tasks if seconds and not one.depends_on]
        ranges = [f"{one.first}-{one.first + one.replicas - 1}" for one in awaited]
        return make_helper(
            RANKS_CONTAINER,
            PREPARE,
            [_SOURCE, _TARGET, str(task.first), str(seconds), *ranges],
            defaults=self.context.jobs,
            mounts=[
                Mount(volume=_VOLUME, path=_SOURCE, read_only=True),
                Mount(volume=_WRITTEN, path=_TARGET),
            ],
            environment=[Variable(name="INDEX", field=_annotation(TASK_INDEX_LABEL))],
        )


def _data(job: Job) -> dict[str, str]:
    nodes = list(_nodes(job))
    return {
        "job_id.txt": f"{job.id}\n",
        "number_of_nodes.txt": f"{len(nodes)}\n",
        "nodes.txt": "".join(f"{node}\n" for node in nodes),
        **{f"node-{rank}.txt": f"{node}\n" for rank, node in enumerate(nodes)},
    }


def _nodes(job: Job) -> Iterator[str]:
    for task in job.effective_tasks:
        for index in range(task.replicas):
            yield f"{pod_name(job.id, task.name, index)}.{volcano_job_name(job.id)}"


def _source(
    task: EffectiveTask, template: PodTemplate, name: str, cores: Quantity
) -> dict[str, Any]:
    cores_field: dict[str, Any] = {
        "resourceFieldRef": {
            "containerName": JOB_CONTAINER,
            "resource": "limits.cpu",
            "divisor": "1",
        }
    }
    rank = TASK_INDEX_LABEL
    if task.replicas == 1:
        rank = _RANK_ANNOTATION
        template.annotations[rank] = f"{task.first}\n"
        template.annotations[_CORES_ANNOTATION] = f"{-(-cores.milli // 1000)}\n"
        cores_field = {"fieldRef": {"fieldPath": _annotation(_CORES_ANNOTATION)}}
    items = [
        {"path": "rank.txt", "fieldRef": {"fieldPath": _annotation(rank)}},
        {"path": "cores.txt", **cores_field},
    ]
    return {
        "projected": {"sources": [{"configMap": {"name": name}}, {"downwardAPI": {"items": items}}]}
    }


def _annotation(name: str) -> str:
    return f"metadata.annotations['{name}']"
