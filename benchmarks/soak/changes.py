"""Makes the changes of a soak: revocations, other routes, killed workers."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from itertools import cycle
from typing import Any, Final, TypeAlias

from benchmarks.peers.fumarole import Orchestrator
from benchmarks.soak.plan import SETTLE_SECONDS, Plan
from benchmarks.soak.record import Killed
from benchmarks.soak.requests import Requests
from benchmarks.soak.sampling import OPS_FAILURES, Gateway
from benchmarks.soak.sessions import Change, Kind, Session, Sessions
from benchmarks.soak.sockets import Crowd, Socket

_BACK_SECONDS: Final = 120.0
_CLOSED_SECONDS: Final = 30
_OPENED_SINCE: Final = 0.1
"""By what part of all sockets a worker may exceed what it has just reported."""
_ISSUED_BEFORE: Final = 7.0
"""A revocation must be older than a new visitor's grant, which was issued 5 s ago."""

_Step: TypeAlias = Callable[[Session], Coroutine[Any, Any, None]]


class Changes:
    """Makes changes, and checks the effect of each."""

    def __init__(
        self,
        plan: Plan,
        orchestrator: Orchestrator,
        sessions: Sessions,
        crowd: Crowd,
        requests: Requests,
        gateway: Gateway,
    ) -> None:
        self._plan = plan
        self._orchestrator = orchestrator
        self._sessions = sessions
        self._crowd = crowd
        self._requests = requests
        self._gateway = gateway
        self._record = crowd.record

    async def run(self) -> None:
        """Make changes at the plan's intervals until cancelled."""
        revocations: tuple[_Step, ...]
        revocations = (self._revoke_grant, self._revoke_session, self._revoke_user)
        routes: tuple[_Step, ...] = (self._move, self._remove)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._every(self._plan.change_every, cycle(revocations), tasks))
            tasks.create_task(self._every(self._plan.change_every, cycle(routes), tasks))
            tasks.create_task(self._kill_in_turn())

    async def _every(
        self,
        seconds: float,
        kinds: Iterator[_Step],
        tasks: asyncio.TaskGroup,
    ) -> None:
        while True:
            await asyncio.sleep(seconds)
            # The next change does not wait until this one has settled.
            tasks.create_task(self._change(next(kinds)))

    async def _change(self, step: _Step) -> None:
        session = random.choice(self._sessions.all)
        if session.change is None:
            await step(session)

    # Revocations

    async def _revoke_grant(self, session: Session) -> None:
        jti = self._orchestrator.jti_of(session.visitor)
        await self._revoke("grants revoked", [session], {"jti": jti})

    async def _revoke_session(self, session: Session) -> None:
        await self._revoke("sessions revoked", [session], {})

    async def _revoke_user(self, session: Session) -> None:
        concerned = self._sessions.of_user(session.user)
        if all(one.change is None for one in concerned):
            await self._revoke("users revoked", concerned, {"sub": session.user})

    async def _revoke(self, name: str, concerned: Sequence[Session], whose: dict[str, str]) -> None:
        for session in concerned:
            # All at once, so that no other change affects one of them meanwhile.
            self._begin("revoked", session)
        for session in concerned:
            at, sid = time.time(), session.route.sid
            self._begin("revoked", session)
            await self._orchestrator.publisher.revoke(at=at, sid=sid, **whose)
        self._record.count(name)
        await self._settle(concerned)
        for session in concerned:
            await self._requests.refused(session.visitor, {401}, "revoked")
        await asyncio.sleep(_ISSUED_BEFORE - SETTLE_SECONDS)
        for session in concerned:
            session.visitor = self._orchestrator.visitor(session.route.sid, session.user)
            self._end(session)

    # Routes

    async def _move(self, session: Session) -> None:
        route = self._sessions.moved(session)
        self._begin("moved", session)
        await self._orchestrator.publish(route)
        self._record.count("routes moved")
        await self._settle([session])
        self._sessions.move(session, route)
        self._end(session)

    async def _remove(self, session: Session) -> None:
        route = self._sessions.another(session)
        self._begin("removed", session)
        now = time.time()
        await self._orchestrator.publisher.remove(session.route.sid, "ended", now=now)
        await self._orchestrator.publish(route)
        self._record.count("sessions ended, and begun anew")
        await self._settle([session])
        await self._requests.refused(session.visitor, {404, 410}, "removed")
        session.route = route
        session.visitor = self._orchestrator.visitor(route.sid, session.user)
        self._end(session)

    def _begin(self, kind: Kind, session: Session) -> None:
        session.change = Change(kind, time.monotonic())

    async def _settle(self, concerned: Sequence[Session]) -> None:
        """Wait until the change must hold, and until the sockets that it ends are closed.

        A worker that waits for a processor closes them later. The promise is that no byte passes.
        """
        for session in concerned:
            if session.change is not None:
                session.change.published = time.monotonic()
        await asyncio.sleep(SETTLE_SECONDS)
        if not self._still_open(concerned):
            return
        self._record.count("changes whose sockets were closed after 5 s")
        for _ in range(_CLOSED_SECONDS):
            await asyncio.sleep(1)
            if not self._still_open(concerned):
                return
        for socket in self._still_open(concerned):
            self._record.fail("not closed by a change", str(socket))

    def _still_open(self, concerned: Sequence[Session]) -> list[Socket]:
        found = []
        for session in concerned:
            change = session.change
            for socket in self._crowd.of(session):
                since = socket.open_since
                if change is None or since is None:
                    continue
                # A socket that was begun before may have been opened by the new app.
                if change.kind != "moved" or since < change.at:
                    found.append(socket)
        return found

    def _end(self, session: Session) -> None:
        session.life += 1
        session.change = None
        for socket in self._crowd.of(session):
            if socket.open_since is not None:
                # It was begun before the route had moved, and opened by the new app.
                socket.life = session.life

    # Workers

    async def _kill_in_turn(self) -> None:
        """Kill all but the first worker, in turn. The first one shows what hours leave behind."""
        for number in cycle(range(1, self._plan.workers)):
            await asyncio.sleep(self._plan.kill_every)
            try:
                await self._kill(number)
            except OPS_FAILURES as error:
                self._record.fail("no answer for operators", repr(error))

    async def _kill(self, number: int) -> None:
        told = next(one for one in await self._gateway.workers() if one.number == number)
        if told.pid is None:
            self._record.fail("worker not there", f"worker {number}")
            return
        killed = Killed(at_seconds=self._record.elapsed_seconds, worker=number, sockets=told.open)
        self._record.killed.append(killed)
        self._crowd.killed_at = began = time.monotonic()
        os.kill(told.pid, signal.SIGKILL)
        if not await self._gateway.until_replaced(number, told.pid, within=_BACK_SECONDS):
            self._record.fail("worker not replaced", f"worker {number}")
            return
        killed.back_seconds = round(time.monotonic() - began, 2)
        # Its sockets end at once, but a busy machine notices all of them later.
        await asyncio.sleep(min(10.0, self._plan.kill_every / 3))
        if killed.lost > killed.sockets + self._plan.sockets * _OPENED_SINCE:
            self._record.fail("lost by other workers", f"{killed.lost}, {killed.sockets} were its")
