"""Copies data sets into each pod that wants a copy, on its node's disk or in its memory.

An init container makes the copy before the program starts. It fails the pod if a data set is too
large, is missing, or changes meanwhile, so that no program computes with wrong data. The copy is
deleted with its pod, and no file leaves the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, Final

from controller.jobs.pipeline.builder import JobBuilder, make_helper
from controller.jobs.pipeline.plugin import JobPlugin
from controller.jobs.spec.field_types import place_of
from controller.jobs.spec.model import EffectiveTask, Job
from controller.jobs.spec.parameters import JobFile
from controller.jobs.spec.problems import make_path
from controller.jobs.spec.storage import find_place
from controller.volcano.manifest import Container, Mount, PodTemplate, Volume
from controller.volcano.names import DATA_CONTAINER
from controller.volcano.quantities import Quantity

_SOURCES: Final = "/volumes"
_COPIES: Final = "/copies"
_COPY: Final = "data"
"""The name of the copy within its volume: a single file has no volume of its own otherwise."""

STAGE: Final = """\
status=0
tell() { printf '%s: %s\\n' "$name" "$1" >> /dev/termination-log; status=1; }
measure() {
  find "$1" -exec stat -c '%f %s %Z %z' {} + 2> /dev/null | awk '
    { type = substr($1, 1, 1); size = type == "8" ? $2 : 0; split($5, time, ".") }
    type !~ /[48a]/ { others++ }
    { entries++; bytes += size; seconds += $3; parts += time[2]; if ($3 > last) last = $3
      blocks += type == "8" ? int((size + 4095) / 4096) : 1 }
    END { printf "%.0f %.0f %.0f %.0f %.0f ", entries, bytes, seconds, parts, last
      printf "%.0f %.0f\\n", 4096 * (blocks + 1) + 128 * entries, others }'
}
stage() {
  path=$home
  [ -z "$rest" ] || path=$home/$rest
  if [ ! -e "$path" ]; then tell "is not there"; return; fi
  base=$(readlink -f "$home")/ folder=$(readlink -f "$path") from=.
  if [ "$kind" = file ]; then
    if [ ! -f "$folder" ]; then tell "is no file"; return; fi
    from=./${folder##*/} folder=${folder%/*}
  elif [ ! -d "$folder" ]; then tell "is no directory"; return; fi
  if ! cd -P "$folder" 2> /dev/null; then tell "permission denied"; return; fi
  case $(pwd -P)/ in
    "$base"*) ;;
    *) tell "leads out of its owner's files"; return ;;
  esac
  before=$(measure "$from")
  set -- $before
  if [ "$4" = 0 ] && [ "$5" -ge "$(($(date +%s) - 1))" ]; then
    sleep 2
    before=$(measure "$from")
    set -- $before
  fi
  whole="$1 $2"
  if [ "$7" != 0 ]; then tell "holds what is no file, folder or link"; return; fi
  if [ "$6" -gt "$limit" ]; then
    tell "is too large: it takes $6 bytes, and its size_limit is $limit"; return
  fi
  chmod -R u+rwX "$target" 2> /dev/null
  rm -rf "$target"
  said=$(cp -R -P "$from" "$target" 2>&1) || said="could not be copied: $said"
  if [ "$(measure "$from")" != "$before" ]; then said="was changed while it was copied"; fi
  if [ -n "$said" ]; then tell "$said"; return; fi
  set -- $(measure "$target")
  if [ "$1 $2" != "$whole" ]; then tell "could not be copied whole"; fi
  chmod -R a+rX "$target"
}
while [ $# -gt 0 ]; do
  kind=$1 home=$2 rest=$3 name=$4 target=$5 limit=$6
  shift 6
  stage
done
exit $status
"""
"""Copies data sets; each takes six arguments: kind, owner's folder, path below it, name,
destination, and the most bytes.

The source is measured before and after the copy: the number of entries, their bytes, and the sums
of their modification times, which only grow. If ``stat`` has whole seconds and the last
modification is now, the script waits: a later change would have the same time. Sizes count in
blocks of 4 KiB, plus something for folders, since the kubelet evicts pods whose volume exceeds its
limit. Links are copied as links. A link is followed only to the source itself; from then on the
folder is used that it led to.
"""


class DataSetsPlugin(JobPlugin):
    """Mounts a read-only copy of each data set with the policy ``staged`` or ``memory``."""

    name: ClassVar[str] = "data_sets"
    # It reads from the claims of file_mount, and its memory is what kata_container leaves.
    after: ClassVar[tuple[str, ...]] = ("task", "kata_container", "file_mount")
    # If a copy fails, the init container that waits for other ranks must not start.
    before: ClassVar[tuple[str, ...]] = ("multi_node",)
    fields: ClassVar[frozenset[str]] = frozenset({"parameters.staged", "parameters.memory"})

    async def on_create(self, job: Job, builder: JobBuilder) -> None:
        """Add volumes, mounts, and the copying init container."""
        copied = [file for file in job.files() if file.is_copied]
        if not copied or builder.problems:
            return
        for task in job.effective_tasks:
            for path, message in self._problems(builder.container(task.name), task, copied):
                builder.refuse(path, message)
        for task in job.effective_tasks:
            template, container = builder.task(task.name).template, builder.container(task.name)
            staged = _total(file for file in copied if file.policy == "staged")
            if staged:
                # No limit: it would include what the program writes itself.
                container.requests["ephemeral-storage"] = staged
            for index, file in enumerate(copied):
                template.volumes.append(_volume(index, file))
                at = place_of(file.name or "", self.context.jobs.working_directory)
                container.mounts.append(
                    Mount(volume=_name(index), path=at, sub_path=_COPY, read_only=True)
                )
            template.init_containers.append(self._stage(job, template, copied))

    def _problems(
        self, container: Container, task: EffectiveTask, copied: Sequence[JobFile]
    ) -> Iterator[tuple[str, str]]:
        """Find data sets that do not fit into the program's memory limit."""
        memory, least = container.resources["memory"], self.context.jobs.pods.helper_memory
        in_memory = [file for file in copied if file.policy == "memory"]
        if in_memory and _total(in_memory).milli + least.milli > memory.milli:
            for file in in_memory:
                path = make_path(["parameters", file.parameter, "size_limit"])
                text = f"counts in the memory of the task {task.name}, which is {memory}"
                yield path, text

    def _stage(self, job: Job, template: PodTemplate, copied: Sequence[JobFile]) -> Container:
        claims = {
            one.source["persistentVolumeClaim"]["claimName"]: one.name
            for one in template.volumes
            if "persistentVolumeClaim" in one.source
        }
        arguments: list[str] = []
        mounts: dict[str, Mount] = {}
        for index, file in enumerate(copied):
            place = find_place(file.source, job.owner, self.context.jobs.pods.volumes)
            root, copy = f"{_SOURCES}/{claims[place.claim]}", f"{_COPIES}/{_name(index)}"
            limit = (file.size_limit or Quantity(0)).milli // 1000
            arguments += [file.kind, place.folder_in(root), file.source.sub_path, str(file.source)]
            arguments += [f"{copy}/{_COPY}", str(limit)]
            mounts[root] = Mount(volume=claims[place.claim], path=root, read_only=True)
            mounts[copy] = Mount(volume=_name(index), path=copy)
        helper = make_helper(
            DATA_CONTAINER,
            STAGE,
            arguments,
            defaults=self.context.jobs,
            mounts=list(mounts.values()),
        )
        # Its writes into memory count against its own limit until it ends.
        in_memory = _total(file for file in copied if file.policy == "memory")
        helper.resources["memory"] = Quantity(helper.resources["memory"].milli + in_memory.milli)
        return helper


def _total(files: Iterable[JobFile]) -> Quantity:
    return Quantity(sum(file.size_limit.milli for file in files if file.size_limit is not None))


def _name(index: int) -> str:
    return f"data-{index}"


def _volume(index: int, file: JobFile) -> Volume:
    source = {"sizeLimit": str(file.size_limit)}
    if file.policy == "memory":
        source["medium"] = "Memory"
    return Volume(name=_name(index), source={"emptyDir": source})
