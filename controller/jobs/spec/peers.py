"""Jobs that name each other: who may be named, and what a job's plugins are told of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from controller.jobs.spec.endpoints import ports_at
from controller.jobs.spec.model import Job
from controller.jobs.spec.owners import owner_key
from controller.jobs.spec.parameters import PeerParameter
from controller.jobs.spec.problems import Problem, make_path
from controller.store.database import Store
from controller.store.jobs.between_jobs.connections import (
    Caller,
    Peer,
    callers_of,
    find_peers,
    touch_peers_of,
)

_NO_SUCH_JOB = "you have no such job, or it has ended"


def peers_of(job: Job) -> dict[str, PeerParameter]:
    """Return the job's peer parameters by name."""
    return {
        name: given for name, given in job.parameters.items() if isinstance(given, PeerParameter)
    }


def asked_ports(job: Job) -> dict[str, set[int]]:
    """Return the ports that the job asked for by peer; none for those that the peer declares."""
    asked: dict[str, set[int]] = {}
    for parameter in peers_of(job).values():
        asked.setdefault(parameter.job, set()).update(parameter.ports)
    return asked


def declared_ports(job: Job) -> list[int]:
    """Return the ports that the job declares at its first rank."""
    return list(ports_at(job, job.task_of(0) or ""))


def peer_problems(job: Job, others: Mapping[str, Job]) -> Iterator[Problem]:
    """Yield why the job cannot have the peers that it names.

    Args:
        job: The job.
        others: Those of the named jobs that there are and that have not ended, by id.
    """
    for name, parameter in peers_of(job).items():
        path = make_path(["parameters", name])
        other = others.get(parameter.job)
        # One that is somebody else's is not told from one that is not there: nobody can find out
        # which jobs others have.
        if other is None or not _may_name(job, other):
            yield Problem(f"{path}.job", _NO_SUCH_JOB)
        elif not parameter.ports and not declared_ports(other):
            yield Problem(f"{path}.ports", "the job declares no port: name those that are meant")


def _may_name(job: Job, other: Job) -> bool:
    if owner_key(job.owner) == owner_key(other.owner):
        return True
    return any(parameter.job == job.id for parameter in peers_of(other).values())


class Peers:
    """What plugins may know of jobs that name each other, from the store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def find(self, job_ids: Collection[str]) -> Mapping[str, Peer]:
        """Return those of the jobs that there are, by id.

        Raises:
            StoreUnavailable: If the store cannot be read.
        """
        async with self._store.read() as transaction:
            return await find_peers(transaction, job_ids)

    async def callers_of(self, job_id: str) -> Sequence[Caller]:
        """Return the jobs that name this one and have not ended, in order.

        Raises:
            StoreUnavailable: If the store cannot be read.
        """
        async with self._store.read() as transaction:
            return await callers_of(transaction, job_id)

    async def has_ended(self, job_id: str) -> None:
        """Have the jobs that this one names looked at: what they admit of it is to go.

        Raises:
            StoreUnavailable: If it could not be kept.
        """
        async with self._store.write() as transaction:
            await touch_peers_of(transaction, job_id)
