"""The files that a job names, and whose places these have always been."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from controller.jobs.spec.accepted import read_spec
from controller.jobs.spec.model import Job
from controller.jobs.spec.parameters import (
    COPIED,
    ArtefactsParameter,
    DataPolicy,
    DirectoryParameter,
    FileParameter,
)
from controller.jobs.spec.problems import JobRejected, make_path
from controller.jobs.spec.storage.paths import VolumePath, parse_path
from controller.jobs.spec.storage.volumes import VolumeSource, find_place
from controller.store.database import Store, Transaction
from controller.store.jobs.between_jobs.places import (
    HeldPlace,
    any_places,
    hold_places,
    others_places,
)
from controller.store.jobs.job_rows import JobRecord, oldest_jobs
from controller.volcano.quantity import Quantity

_AT_ONCE: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile:
    """A file that a job names: ``at`` says where in the job, ``source`` which one it is.

    ``parameter`` says it, and ``name`` is what it is called inside of the job; the output folder
    has neither.
    """

    at: str
    source: VolumePath
    kind: Literal["file", "directory"]
    parameter: str = ""
    name: str | None = None
    read_only: bool = False
    policy: DataPolicy = "direct"
    size_limit: Quantity | None = None

    @property
    def is_copied(self) -> bool:
        """Whether each pod has a copy of it."""
        return self.policy in COPIED


def files_of(job: Job) -> Iterator[JobFile]:
    """Give the files that *job* names."""
    # The output folder first: what is mounted within it comes after it.
    if job.output is not None:
        yield JobFile(at="output", source=parse_path(job.output), kind="directory")
    for name, parameter in job.parameters.items():
        match parameter:
            case FileParameter() | DirectoryParameter():
                yield from _mounted(name, parameter)
            case ArtefactsParameter(path=str(raw)):
                yield JobFile(
                    at=make_path(["parameters", name, "job"]),
                    source=parse_path(raw),
                    kind="directory",
                    parameter=name,
                    name=parameter.job,
                    read_only=True,
                )


def _mounted(name: str, parameter: FileParameter | DirectoryParameter) -> Iterator[JobFile]:
    path = make_path(["parameters", name, "path"])
    for index, raw in enumerate(parameter.paths):
        source = parse_path(raw)
        yield JobFile(
            at=path if isinstance(parameter.path, str) else f"{path}[{index}]",
            source=source,
            kind=parameter.type,
            parameter=name,
            name=source.basename,
            # What is shared is not written to, and what is written to a copy would be lost.
            read_only=parameter.read_only or parameter.policy != "direct",
            policy=parameter.policy,
            size_limit=parameter.size_limit,
        )


async def remember_places(store: Store, volumes: Mapping[str, VolumeSource]) -> None:
    """Return once the jobs of a store that knows of no places hold theirs.

    They were accepted before places were kept: the oldest job's owner keeps a place.
    """
    if not any("{" in f"{one.claim}/{one.folder}" for one in volumes.values()):
        return
    async with store.read() as transaction:
        if await any_places(transaction):
            return
    last = (-1.0, "")
    while True:
        async with store.write() as transaction:
            records = await oldest_jobs(transaction, after=last, limit=_AT_ONCE)
            for record in records:
                await _remember(transaction, record, volumes)
        if len(records) < _AT_ONCE:
            return
        last = (records[-1].created_at, records[-1].id)


async def _remember(
    transaction: Transaction, record: JobRecord, volumes: Mapping[str, VolumeSource]
) -> None:
    try:
        job = read_spec(record.spec, {})
    except JobRejected:
        return  # of another version, which keeps its places itself
    for file in files_of(job):
        try:
            place = find_place(file.source, job.owner, volumes)
        except ValueError:
            continue  # of a volume that is no more
        held = HeldPlace(record.namespace, place.claim, place.folder, place.holder)
        if place.holder and not (await others_places(transaction, [held]))[held]:
            await hold_places(transaction, [held])
