"""Processes sign-outs of users at gateways: revokes their grants everywhere.

The leader reads the stream from the position of the previous leader. The store keeps that position
together with the revocations. So a request that was processed is never lost, and processing it
twice changes nothing. A request can only revoke the grants of one token on one live session.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from prometheus_client import CollectorRegistry
from prometheus_client import Counter as MetricCounter

from controller.jobs.containment import Containment
from controller.store.database import FencedStore, Transaction
from controller.store.instance import read_sign_out_position, record_sign_out_position
from controller.store.sessions.revocations import revoke
from controller.store.sessions.session_rows import Session, find_sessions
from shared.audit import AuditRecord, write_audit
from shared.bus import SignOutReader, SignOutRequest, comparable_id
from shared.bus.sign_out_requests import BEGINNING
from shared.events import GrantRevoked

LOOK_SECONDS: Final = 0.1
AGAIN_SECONDS: Final = 1.0
"""Pause after Redis or the store did not respond."""
AT_ONCE: Final = 50
"""Requests per round, and so at most 500 a second from all senders."""
MOST_OF_SESSION: Final = 60
"""The most revocations of one session per minute: people sign out less often."""
AHEAD_SECONDS: Final = 60.0
"""An entry further in the future was not numbered by Redis: no entry could follow it."""

Taken = Literal["revoked", "unknown", "malformed", "too_many"]

log = logging.getLogger(__name__)


def count_sign_outs(registry: CollectorRegistry) -> Callable[[Taken], None]:
    """Return a function that counts sign-outs from gateways by their result."""
    taken = MetricCounter(
        "fumarole_controller_sign_outs",
        "Sign-outs from gateways, by result",
        ["result"],
        registry=registry,
    )
    return lambda result: taken.labels(result).inc()


@dataclass(slots=True, eq=False, repr=False, kw_only=True)
class SignOutProcessor:
    """Revokes the grants that users have signed out of, as the leader of one term."""

    store: FencedStore
    """Sessions and revocations."""
    reader: SignOutReader
    """Reads the stream."""
    clock: Callable[[], float]
    """Unix seconds."""
    publish: Callable[[], None]
    """Has new revocations published at once."""
    count: Callable[[Taken], None]
    _position: str | None = field(default=None, init=False)
    _pause: float = field(default=LOOK_SECONDS, init=False)
    _minute: int = field(default=0, init=False)
    _of_session: Counter[str] = field(default_factory=Counter, init=False)

    async def run(self, failed: Callable[[Exception], None]) -> None:
        """Process requests until cancelled; unexpected errors are passed to *failed*.

        Raises:
            LeadershipLost: If another controller leads.
        """
        contained = Containment("cannot process sign-outs", failed)
        await contained.repeat(self._turn, lambda: self._pause)

    async def _turn(self) -> None:
        self._pause = AGAIN_SECONDS
        await self.process_batch()
        self._pause = LOOK_SECONDS

    async def process_batch(self) -> None:
        """Process the next requests.

        Raises:
            BusUnavailable, StoreUnavailable: If Redis or the store does not respond; the requests
                stay in the stream.
            LeadershipLost: If another controller leads.
        """
        position = await self._begin()
        requests = await self.reader.after(position, limit=AT_ONCE)
        if not requests.entries:
            await self._check_stream(position, requests.last)
            return
        revoked: list[tuple[Session, GrantRevoked]] = []
        taken: list[Taken] = []
        async with self.store.write() as transaction:
            for request, session in await self._with_sessions(transaction, requests.entries):
                result = self._judge(request, session)
                taken.append(result)
                if result == "revoked" and session is not None:
                    whom = {"sid": session.sid, "jti": request.jti}
                    event = await revoke(transaction, now=self.clock(), **whom)
                    revoked.append((session, event))
            await record_sign_out_position(transaction, requests.entries[-1].id)
        self._position = requests.entries[-1].id
        if revoked:
            self.publish()
        for result in taken:
            self.count(result)
        for session, event in revoked:
            self._record(session, event)

    async def _begin(self) -> str:
        if self._position is None:
            async with self.store.read() as transaction:
                self._position = await read_sign_out_position(transaction) or BEGINNING
        return self._position

    async def _check_stream(self, position: str, last: str | None) -> None:
        """Start over if the stream was replaced, or if no entry can follow its last one."""
        if last is None:
            return
        if comparable_id(last) < comparable_id(position):
            log.warning("the stream of sign-outs was replaced; reading it from the beginning")
            self._position = BEGINNING
        elif comparable_id(last)[0] / 1000 > self.clock() + AHEAD_SECONDS:
            # All of its entries have been processed.
            log.warning("the stream of sign-outs is numbered far ahead; dropping its last entry")
            await self.reader.forget(last)
            self._position = BEGINNING

    async def _with_sessions(
        self, transaction: Transaction, entries: Sequence[SignOutRequest]
    ) -> list[tuple[SignOutRequest, Session | None]]:
        sids = {request.sid for request in entries if request.sid is not None}
        found = await find_sessions(transaction, sids)
        live = {one.sid: one for one in found if one.ended_at is None}
        return [(request, live.get(request.sid or "")) for request in entries]

    def _judge(self, request: SignOutRequest, session: Session | None) -> Taken:
        if request.sid is None:
            return "malformed"
        if session is None:
            return "unknown"
        minute = int(self.clock() // 60)
        if minute != self._minute:
            self._minute = minute
            self._of_session.clear()
        self._of_session[session.sid] += 1
        return "revoked" if self._of_session[session.sid] <= MOST_OF_SESSION else "too_many"

    def _record(self, session: Session, event: GrantRevoked) -> None:
        write_audit(
            AuditRecord(
                event="revoked",
                time=self.clock(),
                sid=session.sid,
                jti=event.jti,
                job=session.job_id,
                rank=session.rank,
                kind=session.kind,
                reason="signed_out",
            )
        )
