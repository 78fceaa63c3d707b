"""A terminal hub's access to the store: heartbeats, and the terminals that it holds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Store
from controller.store.instance import Hub, refresh_hub, remove_hub
from controller.store.sessions.revocations import StoredRevocation, revocations_after
from controller.store.sessions.session_rows import record_refused_shell
from controller.volcano.names import JOB_CONTAINER


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminal:
    """A terminal session, and the pod of its shell.

    Another ``pod_uid`` is another pod, even with the same name, and needs a new shell.
    ``may_copy`` says whether text may reach a clipboard.
    """

    sid: str
    job: str
    rank: int
    namespace: str
    pod: str
    pod_uid: str
    container: str
    may_copy: bool = True

    @property
    def shell(self) -> tuple[str, str]:
        """The identity of the shell: a route to another shell has another ``target.id``."""
        return self.sid, self.pod_uid


def target_id(hub_id: str, pod_uid: str) -> str:
    """Return the ``id`` of a terminal's target: it differs for another hub or pod."""
    return f"{hub_id}/{pod_uid}"


def target_path(sid: str) -> str:
    """Return the path at which a hub serves the terminal: its target's ``base_path``."""
    return f"/terminals/{sid}"


class TerminalSessions:
    """One hub's view of the store; every method raises StoreUnavailable if that does not respond.

    Call :meth:`refresh` every three seconds or so: a hub without a heartbeat for ten seconds is
    dead, and its terminals move to another one. A terminal is assigned in the store before its
    route is published. Only the hub that it is assigned to may serve it.
    """

    def __init__(self, store: Store, hub: Hub, *, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._revoked_up_to = 0
        self.hub = hub

    async def refresh(self) -> None:
        """Store a heartbeat with this hub's address."""
        async with self._store.write() as transaction:
            await refresh_hub(transaction, self.hub, now=self._clock())

    async def leave(self) -> None:
        """Unregister this hub: its terminals move elsewhere."""
        async with self._store.write() as transaction:
            await remove_hub(transaction, self.hub.id)

    async def find(self, sid: str) -> Terminal | None:
        """Return the terminal if it is live and assigned to this hub."""
        found = await self._select(tables.sessions.c.sid == sid)
        return found.get(sid)

    async def held(self) -> Mapping[str, Terminal]:
        """Return all live terminals that are assigned to this hub, by sid.

        The hub must end a shell that is not among them (compare :attr:`Terminal.shell`).
        """
        return await self._select(sa.true())

    async def moved(self, sids: Collection[str]) -> set[str]:
        """Return which of *sids* are live and assigned to another hub."""
        sessions = tables.sessions.c
        going_on = sa.select(sessions.sid).where(
            sessions.sid.in_(sids), sessions.hub_id != self.hub.id, sessions.ended_at.is_(None)
        )
        async with self._store.read() as transaction:
            return set(await transaction.scalars(going_on))

    async def revocations(self) -> list[StoredRevocation]:
        """Return the revocations since the last call; the first call returns all active ones."""
        after = self._revoked_up_to
        async with self._store.read() as transaction:
            found, up_to = await revocations_after(transaction, after, now=self._clock())
        self._revoked_up_to = max(self._revoked_up_to, up_to)
        return found

    async def record_refused(self, terminal: Terminal) -> None:
        """Store that the API server refused the shell, so that the leader restores the rights."""
        async with self._store.write() as transaction:
            await record_refused_shell(transaction, terminal.sid, now=self._clock())

    async def _select(self, which: sa.ColumnElement[bool]) -> dict[str, Terminal]:
        sessions = tables.sessions.c
        query = (
            sa.select(tables.sessions, tables.jobs.c.namespace)
            .join_from(tables.sessions, tables.jobs)
            .where(
                sessions.kind == "terminal",
                sessions.hub_id == self.hub.id,
                sessions.ended_at.is_(None),
                which,
            )
        )
        async with self._store.read() as transaction:
            return {row.sid: _terminal(row) for row in await transaction.execute(query)}


def _terminal(row: sa.Row[Any]) -> Terminal:
    return Terminal(
        sid=row.sid,
        job=row.job_id,
        rank=row.rank,
        namespace=row.namespace,
        pod=row.pod,
        pod_uid=row.pod_uid,
        container=JOB_CONTAINER,
        may_copy=row.clipboard in (None, "both", "out"),
    )
