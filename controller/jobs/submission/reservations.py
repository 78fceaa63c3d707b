"""Reservations: the resources of a job that other jobs may claim, too.

These are public names, predecessors, peers, and places of files. Whether a job can have them is
decided, and stored, in the transaction that accepts the job. So of two calls that claim the same
resource, one comes first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Final

from controller.jobs.spec.accepted import owner_of, read_spec
from controller.jobs.spec.endpoints import asked_ports, exposed_by, peer_problems
from controller.jobs.spec.model import Job, OwnerKey, owner_key
from controller.jobs.spec.problems import JobRejected, Problem
from controller.jobs.submission.checking import SubmissionResult
from controller.loop_turn import LoopTurn
from controller.store.database import Store, Transaction
from controller.store.jobs.folders import HeldPlace, hold_places, others_places
from controller.store.jobs.job_rows import JobRecord, lock_job, lock_jobs
from controller.store.jobs.public_links import (
    has_links,
    link_conflicts,
    release_links,
    take_links,
)
from controller.store.jobs.relations import record_connections, record_predecessors
from controller.store.sessions.session_rows import (
    Session,
    insert_session,
    live_sessions_of,
    make_sid,
)

_NO_SUCH_JOB: Final = "there is no such job"
_CIRCLE: Final = "it would wait for itself, or for jobs that do"


def predecessor_problems(
    jobs: Mapping[str, Job], known: Mapping[str, OwnerKey]
) -> dict[str, tuple[Problem, ...]]:
    """Return the jobs among *jobs* that cannot wait for the jobs that they name, with the reasons.

    Args:
        jobs: The jobs of one call, which may wait for each other.
        known: The owners of existing jobs.
    """
    within = {id_: [one for one in job.after if one in jobs] for id_, job in jobs.items()}
    sorter = TopologicalSorter(within)
    with suppress(CycleError):  # it continues up to the cycle
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
        # Another owner's job is reported as a missing one.
        if owners.get(one) != owner_key(job.owner):
            yield Problem(f"after[{index}]", _NO_SUCH_JOB)


log = logging.getLogger(__name__)


async def why_not_links_of(transaction: Transaction, job: Job, *, now: float) -> list[Problem]:
    """Return why the job cannot have its links; they stay free until the transaction ends."""
    if not job.links:
        return []
    owner = owner_key(job.owner).encode()
    found = await link_conflicts(transaction, job.links, owner=owner, job_id=job.id, now=now)
    return [Problem(f"links[{index}]", problem) for index, problem in found]


async def take_links_of(
    transaction: Transaction, job: Job, *, now: float, random: Callable[[int], bytes]
) -> None:
    """Reserve the links of the stored job, and create the session to which they lead.

    The session is like others: its own host requires a token. The orchestrator decides whether a
    user gets one.
    """
    where = exposed_by(job)
    if not job.links or where is None:
        return
    owner = owner_key(job.owner).encode()
    await take_links(transaction, job.links, owner=owner, job_id=job.id)
    session = Session(
        sid=make_sid(random),
        job_id=job.id,
        rank=where.rank,
        kind="web",
        endpoint=where.endpoint,
        port=where.port,
        base_path=where.base_path,
        created_at=now,
        links=tuple(job.links),
    )
    await insert_session(transaction, session)


@dataclass(slots=True, eq=False, repr=False)
class PublicLinks:
    """The operations of plugins on links; both raise StoreUnavailable if nothing was stored."""

    store: Store
    _: KW_ONLY
    clock: Callable[[], float]
    """Unix seconds."""
    random: Callable[[int], bytes]
    enqueue: Callable[[str], None]
    """Called with the id of a job whose routes may have changed."""

    async def expose(self, job: Job) -> None:
        """Make the job's links lead to it; idempotent.

        They were reserved at its acceptance. An adopted job reserves them here; if another job has
        them by now, the job has none.
        """
        now = self.clock()
        async with self.store.write() as transaction:
            record = await lock_job(transaction, job.id)
            problems = await why_not_links_of(transaction, job, now=now)
            if problems:
                why = "; ".join(f"{one.path} {one.message}" for one in problems)
                log.warning(
                    "an adopted job cannot have its links", extra={"job": job.id, "why": why}
                )
                return
            sessions = await live_sessions_of(transaction, [job.id])
            if record is None or record.outcome or any(one.links for one in sessions):
                return
            await take_links_of(transaction, job, now=now, random=self.random)
        self.enqueue(job.id)

    async def release(self, job_id: str) -> None:
        """Detach the job's links from it; their owners keep them."""
        async with self.store.read() as transaction:
            # Most jobs have none, and a write waits for the disk.
            if not await has_links(transaction, job_id):
                return
        async with self.store.write() as transaction:
            await release_links(transaction, job_id, now=self.clock())


async def refuse_claims(
    transaction: Transaction,
    jobs: Mapping[str, Job],
    *,
    places: Mapping[str, Mapping[str, HeldPlace]],
    now: float,
) -> dict[str, SubmissionResult]:
    """Return the new jobs among *jobs* whose claims conflict, with the reasons.

    The jobs may name each other as peers, but not a job that is itself refused. *places* are the
    places of owners' files, by job and path; each belongs to its first owner.
    """
    # Lock order: a job is locked before the row that guards links.
    held = await _lock_named(transaction, jobs)
    known, owners = _active(held), {id_: owner_of(one) for id_, one in held.items()}
    refused = await _refuse_links(transaction, jobs, now=now)
    refused |= await _refuse_places(transaction, places)
    while True:
        standing = {id_: job for id_, job in jobs.items() if id_ not in refused}
        others = {**known, **standing}
        found = {id_: tuple(peer_problems(job, others)) for id_, job in standing.items()}
        for id_, problems in predecessor_problems(standing, owners).items():
            found[id_] += problems
        new = {id_: SubmissionResult(id_, "rejected", why) for id_, why in found.items() if why}
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
    """Store the claims of a job that is stored and was not refused."""
    await hold_places(transaction, list(places))
    await take_links_of(transaction, job, now=now, random=random)
    for name, endpoint in job.endpoints_with_url().items():
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
) -> dict[str, SubmissionResult]:
    refused: dict[str, SubmissionResult] = {}
    taken: set[str] = set()
    turn = LoopTurn()
    for job in jobs.values():
        problems = await why_not_links_of(transaction, job, now=now)
        problems += [
            Problem(f"links[{index}]", "is in use by another job")
            for index, name in enumerate(job.links)
            if name in taken
        ]
        if problems:
            refused[job.id] = SubmissionResult(job.id, "conflict", tuple(problems))
        else:
            taken.update(job.links)
        await turn.rest()
    return refused


async def _refuse_places(
    transaction: Transaction, places: Mapping[str, Mapping[str, HeldPlace]]
) -> dict[str, SubmissionResult]:
    refused: dict[str, SubmissionResult] = {}
    # Most jobs of a call have one owner, and so the same places.
    wanted = list(dict.fromkeys(place for named in places.values() for place in named.values()))
    against = await others_places(transaction, wanted) if wanted else {}
    held: set[HeldPlace] = set()  # by other jobs of this call
    for id_, named in places.items():
        problems = [
            Problem(path, "is a place of another owner's files")
            for path, place in named.items()
            if against[place] or any(place.excludes(other) for other in held)
        ]
        if problems:
            refused[id_] = SubmissionResult(id_, "rejected", tuple(problems))
        else:
            held.update(named.values())
    return refused


async def _lock_named(transaction: Transaction, jobs: Mapping[str, Job]) -> dict[str, JobRecord]:
    """Lock and return the stored jobs that these name as peers or predecessors."""
    named = {one.job for job in jobs.values() for one in job.peers().values()}
    named |= {one for job in jobs.values() for one in job.after}
    return await lock_jobs(transaction, named - jobs.keys())


def _active(held: Mapping[str, JobRecord]) -> dict[str, Job]:
    """Return those of the jobs that have not ended, and are not about to."""
    living: dict[str, Job] = {}
    for record in held.values():
        if record.is_final or record.outcome is not None or record.desired == "ended":
            continue
        try:
            living[record.id] = read_spec(record.spec, {})
        except JobRejected:
            continue
    return living
