"""Opens, shows, ends and revokes interactive sessions in the store; the publisher does the rest.

A session is one opening of one endpoint of one rank of a job. Its identifier proves nothing and is
not secret: the orchestrator's tokens decide who may use it.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field, replace
from typing import Annotated, Literal, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict, Field

from controller.jobs.spec.endpoints import link_host
from controller.jobs.tools.plans import tool_at
from controller.sessions.session_requests import (
    SessionItem,
    SessionMaker,
    is_as_requested,
    tool_of,
)
from controller.site.product_list import Catalogue
from controller.store.database import Store, Transaction
from controller.store.instance import raise_revision, read_leadership, read_store_metadata
from controller.store.jobs.job_rows import ending_jobs, lock_jobs
from controller.store.jobs.tools import tools_at
from controller.store.paging import Key, scan
from controller.store.sessions.revocations import revoke
from controller.store.sessions.session_rows import (
    Session,
    SessionFilter,
    end_session,
    end_sessions_of,
    find_session,
    find_sessions,
    insert_session,
    live_sessions_of,
    make_sid,
    newest_sessions,
    sessions_among,
)
from shared.audit import AuditRecord, write_audit
from shared.errors import FumaroleError
from shared.events import GrantRevoked
from shared.reports import Activity
from shared.routes.route import Clipboard, Kind

SessionState = Literal["starting", "ready", "ended"]


class KeyReused(FumaroleError):
    """The idempotency key belongs to a request for other sessions; none was opened."""


class SessionAnswer(BaseModel):
    """A session as the orchestrator sees it."""

    model_config = ConfigDict(frozen=True)

    sid: Annotated[str, Field(pattern="^[a-z2-7]{26}$")] = Field(
        description="The session's id, which is not secret."
    )
    hosts: Annotated[list[str], Field(min_length=1)] = Field(
        description="The session's own host first, then its public links."
    )
    job: str = Field(description="The job's id.")
    rank: int = Field(description="The job's rank.")
    kind: Kind = Field(description="The kind of the session.")
    endpoint: str | None = Field(
        description="The endpoint's name; None for a terminal or an undeclared port."
    )
    clipboard: Clipboard = Field(
        description="The allowed directions of text; `in` is into the session."
    )
    state: SessionState = Field(description="`ready` once the program responds.")
    created_at: float = Field(description="In unix seconds.")
    ended_at: float | None = Field(
        description="In unix seconds; null for a moment after the end of its job was requested."
    )
    end_reason: str | None = Field(description="Why the session ended, in words.")
    connected: list[str] | None = Field(
        default=None,
        description="Users who are connected now, as gateways report; None if it is not known.",
    )
    last_input_at: float | None = Field(
        default=None, description="The last input by a user, in steps of 10 s."
    )
    last_output_at: float | None = Field(
        default=None, description="The last output of the app, in steps of 10 s."
    )
    bytes_in: int | None = Field(default=None, description="Bytes sent to the app.")
    bytes_out: int | None = Field(default=None, description="Bytes received from the app.")


class Opened(NamedTuple):
    """Sessions, and whether this request has opened them."""

    views: list[SessionAnswer]
    are_new: bool


ActivitiesOf = Callable[[Sequence[str]], Awaitable[Mapping[str, Activity]]]
"""Returns what gateways report of sessions, as far as it is known. It never fails."""


async def nothing_reported(_sids: Sequence[str]) -> Mapping[str, Activity]:
    """Return no activity."""
    return {}


StatesOf = Callable[[Collection[str]], Awaitable[Mapping[str, Literal["starting", "ready"]]]]
"""Returns the last published states of live sessions."""


class NotifyRevocation(Protocol):
    """Notifies gateways of a revocation that is in the store. It never fails."""

    async def __call__(self, event: GrantRevoked, *, term: int) -> None:
        """Notify gateways of *event*; *term* is the leader's term in the store."""


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class SessionService:
    """Sessions as the API offers them; every method raises StoreUnavailable."""

    store: Store
    base_domain: str
    """The parent domain of the sessions' hosts."""
    clock: Callable[[], float]
    """Unix seconds."""
    random: InitVar[Callable[[int], bytes]]
    states_of: StatesOf
    """Returns the published states of live sessions."""
    until_published: Callable[[Collection[str]], Awaitable[None]]
    """Waits a while until sessions are published."""
    enqueue: Callable[[str], None]
    """Called with the id of a job whose sessions changed."""
    tell: NotifyRevocation
    """Notifies gateways of a revocation at once."""
    catalogue: InitVar[Catalogue | None] = None
    """The products' features."""
    rank_services: InitVar[bool] = False
    """Whether only declared ports can be reached."""
    activities_of: ActivitiesOf = nothing_reported
    """Returns what gateways report of sessions."""
    _maker: SessionMaker = field(init=False)

    def __post_init__(
        self, random: Callable[[int], bytes], catalogue: Catalogue | None, rank_services: bool
    ) -> None:
        self._maker = SessionMaker(
            clock=self.clock,
            random=random,
            catalogue=catalogue or Catalogue(),
            rank_services=rank_services,
        )

    async def open(self, wanted: Sequence[SessionItem], *, key: str | None = None) -> Opened:
        """Open the sessions, in order: all or none; with a known *key*, open none.

        The sessions' ids are derived from the key. So a repeated request finds them as they are
        now, as long as their records exist.

        Raises:
            SessionsRefused: With every problem.
            KeyReused: If the key belongs to another request.
            StoreUnavailable: If the store does not respond; with a key, a retry is safe.
        """
        async with self.store.write() as transaction:
            # Locked: a job that ends concurrently must not keep a live session.
            records = await lock_jobs(transaction, {one.job for one in wanted})
            sids = await _sids_of(transaction, key, len(wanted))
            sessions = await _opened_before(transaction, wanted, sids)
            are_new = not sessions
            if are_new:
                led = {tool_of(one) for one in wanted if tool_at(one.endpoint) is not None}
                tools = await tools_at(transaction, led) if led else {}
                sessions = self._maker.make(wanted, records, tools)
                if sids:
                    sessions = [
                        replace(one, sid=sid) for one, sid in zip(sessions, sids, strict=False)
                    ]
            for session in sessions if are_new else ():
                await insert_session(transaction, session)
        for job_id in {session.job_id for session in sessions}:
            self.enqueue(job_id)
        await self.until_published([one.sid for one in sessions if one.ended_at is None])
        return Opened(await self._views(sessions), are_new)

    async def get(self, sid: str) -> SessionAnswer | None:
        """Return the session, even if it has ended; None if it does not exist."""
        async with self.store.read() as transaction:
            session = await find_session(transaction, sid)
        return None if session is None else (await self._reported([await self._view(session)]))[0]

    async def find(
        self, wanted: SessionFilter, *, states: Collection[str], after: Key | None, limit: int
    ) -> tuple[list[SessionAnswer], Key | None]:
        """Return a page of sessions, newest first, and the key after which the next page begins."""

        async def candidates(place: Key | None, count: int) -> list[Key]:
            async with self.store.read() as transaction:
                return await newest_sessions(transaction, wanted, after=place, count=count)

        views: dict[str, SessionAnswer] = {}

        async def fits(sids: Collection[str]) -> Collection[str]:
            async with self.store.read() as transaction:
                found = await sessions_among(transaction, wanted, sids)
            some = {one.sid: one for one in await self._views(found)}
            views.update(some)
            return {sid for sid, one in some.items() if not states or one.state in states}

        keys, following = await scan(candidates, fits, after=after, limit=limit)
        return await self._reported([views[key.id] for key in keys]), following

    async def end(self, sid: str) -> SessionAnswer | None:
        """End the session for good; None if it does not exist. A repeated call changes nothing."""
        async with self.store.write() as transaction:
            await end_session(transaction, sid, reason="ended", now=self.clock())
            session = await find_session(transaction, sid)
        if session is None:
            return None
        self.enqueue(session.job_id)
        return await self._view(session)

    async def revoke(
        self, sid: str, *, jti: str | None = None, sub: str | None = None
    ) -> SessionAnswer | None:
        """Revoke the grants of one token, one user, or everybody; None without such a session.

        When this returns, the revocation is durable.
        """
        async with self.store.write() as transaction:
            session = await find_session(transaction, sid)
            if session is None:
                return None
            event = await revoke(transaction, now=self.clock(), sid=sid, jti=jti, sub=sub)
            term = (await read_leadership(transaction)).term
        self.enqueue(session.job_id)
        await self.tell(event, term=term)
        return await self._view(session)

    async def revoke_key(self, kid: str) -> None:
        """Revoke the grants of all tokens that were signed with the key *kid*, on every session."""
        async with self.store.write() as transaction:
            event = await revoke(transaction, now=self.clock(), kid=kid)
            term = (await read_leadership(transaction)).term
        await self.tell(event, term=term)

    async def _reported(self, views: Sequence[SessionAnswer]) -> list[SessionAnswer]:
        """Return *views* with the gateways' reports."""
        known = await self.activities_of([view.sid for view in views])
        return [
            _with_activity(view, known[view.sid]) if view.sid in known else view for view in views
        ]

    async def _view(self, session: Session) -> SessionAnswer:
        (view,) = await self._views([session])
        return view

    async def _views(self, sessions: Sequence[Session]) -> list[SessionAnswer]:
        live = [session for session in sessions if session.ended_at is None]
        # Their routes are removed at once, and their ends are recorded a moment later.
        ending = await self._ending({session.job_id for session in live})
        routed = [session.sid for session in live if session.job_id not in ending]
        states = await self.states_of(routed) if routed else {}
        return [self._seen(session, states.get(session.sid, "ended")) for session in sessions]

    async def _ending(self, job_ids: Collection[str]) -> Collection[str]:
        if not job_ids:
            return ()
        async with self.store.read() as transaction:
            return await ending_jobs(transaction, job_ids)

    def _seen(self, session: Session, state: SessionState) -> SessionAnswer:
        return SessionAnswer(
            sid=session.sid,
            hosts=[
                host_of(session.sid, self.base_domain),
                *(link_host(name, self.base_domain) for name in session.links),
            ],
            job=session.job_id,
            rank=session.rank,
            kind=session.kind,
            endpoint=session.endpoint,
            clipboard=session.clipboard,
            state=state,
            created_at=session.created_at,
            ended_at=session.ended_at,
            end_reason=session.end_reason,
        )


def _with_activity(view: SessionAnswer, activity: Activity) -> SessionAnswer:
    names = ("last_input_at", "last_output_at", "bytes_in", "bytes_out")
    reported = {name: getattr(activity, name) for name in names}
    connected = list(activity.subs) if view.state != "ended" else []
    return view.model_copy(update=reported | {"connected": connected})


async def _sids_of(transaction: Transaction, key: str | None, count: int) -> list[str]:
    """Return the ids of the *count* sessions of this *key*, and of one more."""
    if key is None:
        return []
    # Serialises requests with the same key, whatever their jobs.
    await raise_revision(transaction)
    secret = (await read_store_metadata(transaction)).identity.encode()

    def sid(index: int) -> str:
        digest = hmac.digest(secret, f"{key} {index}".encode(), "sha256")
        return make_sid(lambda size: digest[:size])

    return [sid(index) for index in range(count + 1)]


async def _opened_before(
    transaction: Transaction, wanted: Sequence[SessionItem], sids: Sequence[str]
) -> list[Session]:
    """Return the sessions that a request with the same key has opened, in order.

    Raises:
        KeyReused: If they are not the requested ones.
    """
    found = {one.sid: one for one in await find_sessions(transaction, sids)} if sids else {}
    if not found:
        return []
    before = [found.get(sid) for sid in sids]
    sessions = [one for one in before if one is not None]
    same = before[-1] is None and len(sessions) == len(wanted)
    if not same or not all(map(is_as_requested, sessions, wanted)):
        raise KeyReused("the key belongs to another request")
    return sessions


def host_of(sid: str, base_domain: str) -> str:
    """Return the host of a session."""
    return f"{sid}.{base_domain}"


@dataclass(slots=True, eq=False, repr=False)
class JobSessions:
    """The operations on a job's sessions that plugins may call."""

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
