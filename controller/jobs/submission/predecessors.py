"""Whether jobs can wait for those that they name under ``after``. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from typing import Final

from controller.jobs.spec.model import Job
from controller.jobs.spec.owners import OwnerKey, owner_key
from controller.jobs.spec.problems import Problem

_NO_SUCH_JOB: Final = "there is no such job"
_CIRCLE: Final = "it would wait for itself, or for jobs that do"


def predecessor_problems(
    jobs: Mapping[str, Job], known: Mapping[str, OwnerKey]
) -> dict[str, tuple[Problem, ...]]:
    """Return which of *jobs* cannot wait for what they name, and why.

    Args:
        jobs: Those of one call, which may wait for each other.
        known: Whose the jobs are that there are already.
    """
    within = {id_: [one for one in job.after if one in jobs] for id_, job in jobs.items()}
    sorter = TopologicalSorter(within)
    with suppress(CycleError):  # it goes on up to the circle
        sorter.prepare()
    refused: dict[str, tuple[Problem, ...]] = {}
    owners = dict(known)
    left = set(jobs)
    while ready := sorter.get_ready():
        for id_ in ready:
            left.discard(id_)
            problems = tuple(_unknown(jobs[id_], owners))
            if problems:
                refused[id_] = problems
            else:
                owners[id_] = owner_key(jobs[id_].owner)
        sorter.done(*ready)
    return refused | {id_: (Problem("after", _CIRCLE),) for id_ in left}


def _unknown(job: Job, owners: Mapping[str, OwnerKey]) -> Iterator[Problem]:
    for index, one in enumerate(job.after):
        # One that is somebody else's is not told from one that is not there.
        if owners.get(one) != owner_key(job.owner):
            yield Problem(f"after[{index}]", _NO_SUCH_JOB)
