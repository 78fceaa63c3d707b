"""What is filled into a job when it is accepted, and kept with it. No I/O.

What its kind says for jobs that do not say it themselves, and where the artefacts of its
predecessors are: settings change, and records of predecessors are forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from controller.jobs.spec.model import MOST_PARAMETERS, Job, Owner, OwnerKey, owner_key
from controller.jobs.spec.parameters import LONGEST_PATH, ArtefactsParameter, Parameter
from controller.jobs.spec.problems import JobRejected, Problem, make_path
from controller.site.kinds import Kinds
from controller.store.jobs.job_rows import JobRecord

ARTEFACTS: Final = "artefacts"
"""The folder below a job's output that other jobs may read."""


@dataclass(frozen=True, slots=True)
class PredecessorJob:
    """A job that others may follow: whose it is, and its output."""

    owner: OwnerKey
    output: str | None

    @classmethod
    def of(cls, job: Job) -> PredecessorJob:
        """Return what matters of *job*."""
        return cls(owner_key(job.owner), job.output)

    @classmethod
    def recorded(cls, record: JobRecord) -> PredecessorJob:
        """Return what matters of a job in the store."""
        owner = Owner(user=record.owner_user, project=record.owner_project)
        # One that a newer version has accepted may be kept as anything.
        output = record.spec.get("output") if isinstance(record.spec, Mapping) else None
        return cls(owner_key(owner), output if isinstance(output, str) else None)


def artefacts_named(jobs: Sequence[Job | JobRejected]) -> set[str]:
    """Return the jobs whose artefacts *jobs* read."""
    accepted = (job for job in jobs if isinstance(job, Job))
    return {one.job for job in accepted for _, one in _artefacts(job)}


class Completion:
    """Completes jobs.

    Args:
        kinds: What kinds fill in.
        predecessors: The jobs whose artefacts may be read, by id.
    """

    def __init__(self, kinds: Kinds, predecessors: Mapping[str, PredecessorJob]) -> None:
        self._kinds = kinds
        self._predecessors = predecessors

    def complete(self, job: Job) -> tuple[Job, list[Problem]]:
        """Return *job* with what is filled in, and why something cannot be."""
        problems: list[Problem] = []
        update: dict[str, Any] = {}
        filled: list[str] = []
        parameters: dict[str, Parameter] = {}
        kind = self._kinds.find(job.kind)
        if kind is not None:
            parameters |= kind.defaults(job)
            filled += [f"parameters.{name}" for name in parameters]
            if job.framework is None and kind.framework is not None:
                update["framework"] = kind.framework
                filled.append("framework")
        for name, parameter in _artefacts(job):
            found = self._folder(job, name, parameter)
            if isinstance(found, Problem):
                problems.append(found)
            else:
                parameters[name] = parameter.model_copy(update={"path": found})
                filled.append(f"parameters.{name}.path")
        parameters = {**job.parameters, **parameters}
        if len(parameters) > MOST_PARAMETERS:
            text = f"with those of its kind, it has more than {MOST_PARAMETERS}"
            return job, [*problems, Problem("parameters", text)]
        if not filled:
            return job, problems
        update |= {"parameters": parameters, "filled": sorted(filled)}
        return job.model_copy(update=update), problems

    def _folder(self, job: Job, name: str, parameter: ArtefactsParameter) -> str | Problem:
        where = make_path(["parameters", name, "job"])
        if parameter.path is not None:
            return Problem(make_path(["parameters", name, "path"]), "unknown field")
        if parameter.job not in job.after:
            return Problem(where, "is none of the jobs that this one waits for (after)")
        one = self._predecessors.get(parameter.job)
        # One that is somebody else's is not told from one that is not there.
        if one is None or one.owner != owner_key(job.owner):
            return Problem(where, "there is no such job")
        if one.output is None:
            return Problem(where, "has no output, and so no artefacts")
        path = f"{one.output}/{ARTEFACTS}"
        if len(path) > LONGEST_PATH:
            return Problem(where, "has artefacts whose path is too long")
        return path


def _artefacts(job: Job) -> Iterator[tuple[str, ArtefactsParameter]]:
    for name, parameter in job.parameters.items():
        if isinstance(parameter, ArtefactsParameter):
            yield name, parameter
