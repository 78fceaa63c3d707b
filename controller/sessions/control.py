"""The operations on a job's sessions that plugins may call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

from controller.store.database import Store
from controller.store.sessions.session_rows import end_sessions_of, live_sessions_of
from shared.audit import AuditRecord, write_audit


@dataclass(slots=True, eq=False, repr=False)
class JobSessions:
    """Ends a job's sessions, and has its routes reconciled."""

    store: Store
    _: KW_ONLY
    clock: Callable[[], float]
    """Unix seconds."""
    enqueue: Callable[[str], None]
    """Called with the id of a job whose routes may have changed."""

    async def routes_may_have_changed(self, job_id: str) -> None:
        """Have the routes of the job's sessions reconciled soon."""
        self.enqueue(job_id)

    async def end_sessions(self, job_id: str, *, reason: str) -> None:
        """End all sessions of the job for good.

        Raises:
            StoreUnavailable: If the store cannot be written.
        """
        async with self.store.read() as transaction:
            # Most jobs have no session, and a writing transaction waits for the disk.
            live = await live_sessions_of(transaction, [job_id])
        if not live:
            return
        async with self.store.write() as transaction:
            await end_sessions_of(transaction, job_id, reason=reason, now=self.clock())
        for one in live:
            write_audit(
                AuditRecord(
                    event="ended",
                    time=self.clock(),
                    sid=one.sid,
                    job=job_id,
                    rank=one.rank,
                    kind=one.kind,
                    reason=reason,
                )
            )
        self.enqueue(job_id)
