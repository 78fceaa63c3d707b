"""Mounts the job's files and folders where its program finds them; nothing is copied.

The kubelet creates an empty folder if the source of a mount is missing, and the job would compute
with it. So an init container checks the sources first, and fails the pod with the names of the
missing ones.

If an input is mounted within the output folder, the container runtime creates a folder or an empty
file for it on the volume. After the job, a pod of its own deletes those that did not exist before:
see :mod:`controller.jobs.cluster.mount_points`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from controller.jobs.pipeline.builder import JobBuilder, NestedMounts, make_helper
from controller.jobs.pipeline.plugin import JobPlugin
from controller.jobs.spec.field_types import VolumePath, place_of
from controller.jobs.spec.model import Job
from controller.jobs.spec.storage import ClaimPath, find_place
from controller.store.jobs.folders import HeldPlace
from controller.volcano.manifest import Container, Mount, Task, Variable, Volume
from controller.volcano.names import CLEANING_CONTAINER, FILES_CONTAINER

_ROOTS: Final = "/volumes"

CHECK: Final = """\
status=0 number=0 missing=
tell() { printf '%s: %s\\n' "$name" "$1" >> /dev/termination-log; status=1; }
while [ $# -gt 0 ]; do
  kind=$1 home=$2 rest=$3 name=$4 mounted=$5
  shift 5
  path=$home at=$home left=$rest/ blocked=
  [ -z "$rest" ] || path=$home/$rest
  while [ -n "$left" ] && [ -e "$at" ]; do
    [ ! -d "$at" ] || [ -x "$at" ] || blocked=1
    at=$at/${left%%/*} left=${left#*/}
  done
  if [ -n "$blocked" ]; then tell "permission denied"
  elif [ ! -e "$path" ]; then tell "is not there"
  else
    real=$(readlink -f "$path")/ base=$(readlink -f "$home")/
    case $real in
      "$base"*)
        if [ "$kind" = file ] && [ ! -f "$path" ]; then tell "is no file"; fi
        if [ "$kind" = directory ] && [ ! -d "$path" ]; then tell "is no directory"; fi ;;
      *) tell "leads out of its owner's files" ;;
    esac
  fi
  if [ "$number" = 0 ]; then output=$path; fi
  at=$output/$mounted
  [ "$number" = 0 ] || [ -e "$at" ] || [ -L "$at" ] || missing="$missing$number;"
  number=$((number + 1))
done
[ $status != 0 ] || [ -z "$NOTE_MISSING" ] || printf %s "$missing" > /dev/termination-log
exit $status
"""
"""Checks mount sources; each takes five arguments: kind, owner's folder, path below it, name, and
mount point.

A link may lead anywhere within the owner's folder; the kubelet would follow it anywhere within the
claim, which owners may share. With ``NOTE_MISSING`` the first source is the output folder, and the
script reports the numbers of the others that have no mount point in it yet.
"""

CLEAN: Final = """\
home=$1 path=$1 rest=$2 until=$3 status=0
shift 3
[ -z "$rest" ] || path=$home/$rest
real=$(readlink -f "$home")${rest:+/$rest}
cd "$path" || exit 1
[ "$(pwd -P)" = "$real" ] || { echo "the folder is reached by a link"; exit 1; }
for name; do
  [ "$(date +%s)" -le "$until" ] || exit 1
  at=./$name
  if [ -L "$at" ]; then continue; fi
  if [ -d "$at" ]; then
    rmdir "$at" || [ -n "$(ls -A "$at")" ] || status=1
  elif [ -f "$at" ] && [ ! -s "$at" ]; then
    rm "$at" || status=1
  fi
done
exit $status
"""
"""Deletes empty mount points: in the owner's folder, below the path in it.

A link may lead to another owner's files, or to a folder that other jobs use. The pod may be placed
late: after the third argument (unix seconds) it does nothing, since other jobs may use the folder
by then.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """A mount: its path in the job, its source, and its mount point."""

    path: str
    source: VolumePath
    place: ClaimPath
    at: str
    kind: Literal["file", "directory"]
    read_only: bool
    is_copied: bool

    @property
    def name(self) -> str:
        """The name in the working directory."""
        return self.at.rpartition("/")[2]


class FileMountPlugin(JobPlugin):
    """Mounts the output folder as the working directory, and inputs by name in it."""

    name: ClassVar[str] = "file_mount"
    after: ClassVar[tuple[str, ...]] = ("task",)
    # If a file is missing, the init container that waits for other ranks must not start.
    before: ClassVar[tuple[str, ...]] = ("multi_node",)
    fields: ClassVar[frozenset[str]] = frozenset(
        {"output", "parameters.file", "parameters.directory", "parameters.artefacts"}
    )

    async def on_create(self, job: Job, builder: JobBuilder) -> None:
        """Add volumes, mounts, and the checking init container."""
        files = list(self._files(job, builder))
        for path, message in _clashes(files):
            builder.refuse(path, message)
        if not files or builder.problems:
            return
        claims = _claims(files)
        is_to_be_cleaned = self._is_to_be_cleaned(files)
        # data_sets mounts and checks the copies.
        files = [file for file in files if not file.is_copied]
        for task in builder.volcano_job.tasks:
            _add_volumes(task, claims)
            builder.container(task.name).mounts.extend(_seen(files, claims))
            if files:
                task.template.init_containers.append(self._look(files, claims))
        # A copy, too, is mounted on a folder that another job may have created.
        if is_to_be_cleaned:
            builder.nested_mounts = self._nested_mounts(files)

    def _files(self, job: Job, builder: JobBuilder) -> Iterator[_File]:
        work = self.context.jobs.working_directory
        for file in job.files():
            try:
                place = find_place(file.source, job.owner, self.context.jobs.pods.volumes)
            except ValueError as error:
                builder.refuse(file.at, str(error))
                continue
            if place.holder:
                builder.places[file.at] = HeldPlace(
                    builder.volcano_job.namespace, place.claim, place.folder, place.holder
                )
            at = work if file.name is None else place_of(file.name, work)
            for problem in _unmountable(at, file.at, place):
                builder.refuse(file.at, problem)
            yield _File(
                path=file.at,
                source=file.source,
                place=place,
                at=at,
                kind=file.kind,
                read_only=file.read_only or place.read_only,
                is_copied=file.is_copied,
            )

    def _look(self, files: list[_File], claims: dict[str, str]) -> Container:
        arguments: list[str] = []
        for file in files:
            home = file.place.folder_in(f"{_ROOTS}/{claims[file.place.claim]}")
            arguments += [file.kind, home, file.source.sub_path, str(file.source), file.name]
        mounts = [
            Mount(volume=volume, path=f"{_ROOTS}/{volume}", read_only=True)
            for volume in claims.values()
        ]
        note = [Variable(name="NOTE_MISSING", value="yes")]
        return make_helper(
            FILES_CONTAINER,
            CHECK,
            arguments,
            defaults=self.context.jobs,
            mounts=mounts,
            environment=note if self._is_to_be_cleaned(files) else (),
        )

    def _is_to_be_cleaned(self, files: list[_File]) -> bool:
        """Return whether something is mounted within the output folder, the first mount."""
        within = len(files) > 1 and files[0].path == "output"
        return within and self.context.jobs.pods.remove_mount_points

    def _nested_mounts(self, files: list[_File]) -> NestedMounts:
        output, *others = files
        place, volume = output.place, _claims(files)[output.place.claim]
        root = f"{_ROOTS}/{volume}"
        cleaner = make_helper(
            CLEANING_CONTAINER,
            CLEAN,
            [place.folder_in(root), output.source.sub_path],
            defaults=self.context.jobs,
            mounts=[Mount(volume=volume, path=root)],
        )
        return NestedMounts(
            claim=place.claim,
            folder=place.sub_path,
            names=tuple(file.name for file in others),
            cleaner=cleaner,
            volume=_volume(place.claim, volume),
        )


def _unmountable(at: str, path: str, place: ClaimPath) -> Iterator[str]:
    if at == "/":
        yield "the working directory is /, where nothing can be mounted"
    if ":" in at:
        yield "what has a colon in its name cannot be mounted"
    if path == "output" and place.read_only:
        yield "the volume is read-only"


def _clashes(files: list[_File]) -> Iterator[tuple[str, str]]:
    sources = Counter(file.source for file in files)
    places = Counter(file.at for file in files)
    for file in files:
        if sources[file.source] > 1:
            yield file.path, "is mounted twice"
        elif places[file.at] > 1:
            yield file.path, f"another one is called {file.name} too"


def _claims(files: list[_File]) -> dict[str, str]:
    """Return the volume's name of each claim."""
    claims = dict.fromkeys(file.place.claim for file in files)
    return {claim: f"files-{index}" for index, claim in enumerate(claims)}


def _add_volumes(task: Task, claims: dict[str, str]) -> None:
    task.template.volumes.extend(_volume(claim, name) for claim, name in claims.items())


def _volume(claim: str, name: str) -> Volume:
    return Volume(name=name, source={"persistentVolumeClaim": {"claimName": claim}})


def _seen(files: list[_File], claims: dict[str, str]) -> Iterator[Mount]:
    for file in files:
        yield Mount(
            volume=claims[file.place.claim],
            path=file.at,
            sub_path=file.place.sub_path,
            read_only=file.read_only,
        )
