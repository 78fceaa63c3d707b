"""The files that a job names, and whose places these have always been."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Literal

from controller.jobs.spec.accepted import read_spec
from controller.jobs.spec.model import Job
from controller.jobs.spec.parameters import DirectoryParameter, FileParameter
from controller.jobs.spec.paths import parse_path
from controller.jobs.spec.problems import JobRejected, make_path
from controller.jobs.spec.volumes import VolumeSource, find_place
from controller.store.database import Store, Transaction
from controller.store.jobs.job_rows import JobRecord, oldest_jobs
from controller.store.jobs.places import HeldPlace, any_places, hold_places, others_places

_AT_ONCE: Final = 200


def files_of(job: Job) -> Iterator[tuple[str, str, Literal["file", "directory"], bool]]:
    """Give the files that *job* names: its path in the job, the file's, kind, read-only or not."""
    # The output folder first: what is mounted within it comes after it.
    if job.output is not None:
        yield "output", job.output, "directory", False
    for name, parameter in job.parameters.items():
        if not isinstance(parameter, FileParameter | DirectoryParameter):
            continue
        path = make_path(["parameters", name, "path"])
        for index, raw in enumerate(parameter.paths):
            where = path if isinstance(parameter.path, str) else f"{path}[{index}]"
            yield where, raw, parameter.type, parameter.read_only


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
    for _, raw, _, _ in files_of(job):
        try:
            place = find_place(parse_path(raw), job.owner, volumes)
        except ValueError:
            continue  # of a volume that is no more
        held = HeldPlace(record.namespace, place.claim, place.folder, place.holder)
        if place.holder and not (await others_places(transaction, [held]))[held]:
            await hold_places(transaction, [held])
