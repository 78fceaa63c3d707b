"""What a job takes that is not its own alone: public names, and a place beside its peers.

Whether it can is decided, and kept, in the transaction that accepts the job: of two calls that want
the same, one comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from controller.jobs.spec.accepted import read_spec
from controller.jobs.spec.endpoints import with_url
from controller.jobs.spec.model import Job, Owner
from controller.jobs.spec.owners import OwnerKey, owner_key
from controller.jobs.spec.peers import asked_ports, peer_problems, peers_of
from controller.jobs.spec.problems import JobRejected, Problem
from controller.jobs.submission.job_links import take_links_of, why_not_links_of
from controller.jobs.submission.predecessors import predecessor_problems
from controller.kube.loop_turn import LoopTurn
from controller.store.database import Transaction
from controller.store.jobs.between_jobs.connections import record_connections
from controller.store.jobs.between_jobs.places import HeldPlace, hold_places, others_places
from controller.store.jobs.between_jobs.predecessors import record_predecessors
from controller.store.jobs.job_rows import JobRecord, hold_jobs
from controller.store.sessions.session_rows import Session, insert_session, make_sid


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a job cannot have what it claims: it is another's, or there is no such thing."""

    result: Literal["conflict", "rejected"]
    problems: tuple[Problem, ...]


async def refuse_claims(
    transaction: Transaction,
    jobs: Mapping[str, Job],
    *,
    places: Mapping[str, Mapping[str, HeldPlace]],
    now: float,
) -> dict[str, Refusal]:
    """Return which of *jobs*, all of them new, cannot have what they claim, and why.

    They may name each other as peers, but none that is refused itself. *places* are those of
    owners' files, by job and path; each stays its first owner's.
    """
    if not any(_claims(job) or places.get(id_) for id_, job in jobs.items()):
        return {}
    # In this order: whoever changes a job holds it before the row that links are guarded by.
    held = await _hold_named(transaction, jobs)
    known, owners = _living(held), {id_: _owner_of(one) for id_, one in held.items()}
    refused = await _refuse_links(transaction, jobs, now=now)
    refused |= await _refuse_places(transaction, places)
    while True:
        standing = {id_: job for id_, job in jobs.items() if id_ not in refused}
        others = {**known, **standing}
        found = {id_: tuple(peer_problems(job, others)) for id_, job in standing.items()}
        for id_, problems in predecessor_problems(standing, owners).items():
            found[id_] += problems
        new = {id_: Refusal("rejected", why) for id_, why in found.items() if why}
        if not new:
            return refused
        refused |= new


async def take_claims(
    transaction: Transaction,
    job: Job,
    *,
    places: Collection[HeldPlace],
    now: float,
    random: Callable[[int], bytes],
) -> None:
    """Keep what the job, which is in the store and was not refused, claims."""
    await hold_places(transaction, list(places))
    await take_links_of(transaction, job, now=now, random=random)
    for name, endpoint in with_url(job).items():
        session = Session(
            sid=make_sid(random),
            job_id=job.id,
            rank=0,
            kind="web",
            endpoint=name,
            port=endpoint.port,
            base_path=endpoint.base_path,
            service_workers=endpoint.service_workers,
            created_at=now,
        )
        await insert_session(transaction, session)
    await record_connections(transaction, job.id, asked_ports(job))
    await record_predecessors(transaction, job.id, job.after)


async def _refuse_links(
    transaction: Transaction, jobs: Mapping[str, Job], *, now: float
) -> dict[str, Refusal]:
    refused: dict[str, Refusal] = {}
    taken: set[str] = set()
    turn = LoopTurn()
    for job in jobs.values():
        problems = await why_not_links_of(transaction, job, now=now)
        problems += [
            Problem(f"links[{index}]", "is another job's")
            for index, name in enumerate(job.links)
            if name in taken
        ]
        if problems:
            refused[job.id] = Refusal("conflict", tuple(problems))
        else:
            taken.update(job.links)
        await turn.rest()
    return refused


async def _refuse_places(
    transaction: Transaction, places: Mapping[str, Mapping[str, HeldPlace]]
) -> dict[str, Refusal]:
    refused: dict[str, Refusal] = {}
    # Most jobs of a call are one owner's, and have the same places.
    wanted = list(dict.fromkeys(place for named in places.values() for place in named.values()))
    against = await others_places(transaction, wanted) if wanted else {}
    held: set[HeldPlace] = set()  # by others of this call
    for id_, named in places.items():
        problems = [
            Problem(path, "is where another owner's files are")
            for path, place in named.items()
            if against[place] or any(place.excludes(other) for other in held)
        ]
        if problems:
            refused[id_] = Refusal("rejected", tuple(problems))
        else:
            held.update(named.values())
    return refused


def _claims(job: Job) -> bool:
    return bool(job.links or job.after or peers_of(job))


async def _hold_named(transaction: Transaction, jobs: Mapping[str, Job]) -> dict[str, JobRecord]:
    """Return the jobs in the store that these name as peers or wait for."""
    named = {one.job for job in jobs.values() for one in peers_of(job).values()}
    named |= {one for job in jobs.values() for one in job.after}
    return await hold_jobs(transaction, named - jobs.keys())


def _owner_of(record: JobRecord) -> OwnerKey:
    return owner_key(Owner(user=record.owner_user, project=record.owner_project))


def _living(held: Mapping[str, JobRecord]) -> dict[str, Job]:
    """Return those of the jobs that have not ended, and do not for now."""
    living: dict[str, Job] = {}
    for record in held.values():
        if record.is_final or record.outcome is not None or record.desired == "ended":
            continue
        try:
            living[record.id] = read_spec(record.spec, {})
        except JobRejected:
            continue
    return living
