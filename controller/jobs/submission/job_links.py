"""Public links in the store: taken with a job, led to it by a session of nobody's, released."""

from __future__ import annotations

import logging
from collections.abc import Callable

from controller.jobs.spec.link_names import exposed_by
from controller.jobs.spec.model import Job
from controller.jobs.spec.owners import owner_key
from controller.jobs.spec.problems import Problem
from controller.store.database import Store, Transaction
from controller.store.jobs.between_jobs.public_links import (
    has_links,
    release_links,
    take_links,
    why_not_links,
)
from controller.store.jobs.job_rows import lock_job
from controller.store.sessions.session_rows import (
    Session,
    insert_session,
    live_sessions_of,
    make_sid,
)

log = logging.getLogger(__name__)


async def why_not_links_of(transaction: Transaction, job: Job, *, now: float) -> list[Problem]:
    """Return why the job cannot have its links; until the transaction ends nobody takes one."""
    if not job.links:
        return []
    owner = owner_key(job.owner).encode()
    found = await why_not_links(transaction, job.links, owner=owner, job_id=job.id, now=now)
    return [Problem(f"links[{index}]", problem) for index, problem in found]


async def take_links_of(
    transaction: Transaction, job: Job, *, now: float, random: Callable[[int], bytes]
) -> None:
    """Give the job, which is in the store, its links, and the session to which they lead.

    It is a session like others, whose own host asks for a token; that nobody is given one is for
    the orchestrator to decide.
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


class PublicLinks:
    """What plugins may do with links.

    Args:
        store: Where they are.
        clock: Unix seconds.
        random: Random bytes.
        wake: Is told the id of a job whose routes may have changed.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Callable[[], float],
        random: Callable[[int], bytes],
        wake: Callable[[str], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._random = random
        self._wake = wake

    async def expose(self, job: Job) -> None:
        """See to it that the job's links lead to it, where it has them; again changes nothing.

        They were taken when it was accepted. One that was adopted from the cluster takes them
        here; where somebody else has them by now, it goes without.

        Raises:
            StoreUnavailable: If it could not be kept.
        """
        now = self._clock()
        async with self._store.write() as transaction:
            record = await lock_job(transaction, job.id)
            problems = await why_not_links_of(transaction, job, now=now)
            if problems:
                why = "; ".join(f"{one.path} {one.message}" for one in problems)
                log.warning("links are gone", extra={"job": job.id, "why": why})
                return
            sessions = await live_sessions_of(transaction, [job.id])
            if record is None or record.outcome or any(one.links for one in sessions):
                return
            await take_links_of(transaction, job, now=now, random=self._random)
        self._wake(job.id)

    async def release(self, job_id: str) -> None:
        """Take the job's links from it; whose they are is remembered.

        Raises:
            StoreUnavailable: If it could not be kept.
        """
        async with self._store.read() as transaction:
            # Most jobs have none, and whoever writes waits for the disk.
            if not await has_links(transaction, job_id):
                return
        async with self._store.write() as transaction:
            await release_links(transaction, job_id, now=self._clock())
