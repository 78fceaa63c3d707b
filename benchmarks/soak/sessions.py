"""The expected state of each session, and so the right response."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from benchmarks.peers.fumarole import Orchestrator, make_route, new_sid
from benchmarks.requests import Visitor
from benchmarks.soak.apps import app_name
from benchmarks.soak.plan import SESSIONS_OF_USER, SETTLE_SECONDS
from shared.routes.route import Route

Kind = Literal["revoked", "moved", "removed"]
CODES: Final[dict[Kind, int]] = {"revoked": 4401, "moved": 1012, "removed": 4410}
"""The close code of each change (docs/connections.md, "Tunnels")."""


@dataclass(slots=True)
class Change:
    """A change of a session; ``at`` is when its publication began (monotonic)."""

    kind: Kind
    at: float
    published: float = float("inf")
    """When Redis had the change: on a busy machine that takes a while."""

    def settled(self, now: float) -> bool:
        """Whether every response must show the change."""
        return now >= self.published + SETTLE_SECONDS


@dataclass(slots=True)
class Session:
    """One session with the browser that has opened it.

    ``life`` counts what ended its sockets: a socket of an earlier life may not be open.
    """

    number: int
    user: str
    app: int
    route: Route
    visitor: Visitor
    life: int = 0
    change: Change | None = None

    @property
    def answer(self) -> bytes:
        """The app's response, which no other app or session has."""
        return f"{app_name(self.app)} {self.route.sid}".encode()


class Sessions:
    """All sessions: creates them, and replaces them after a change."""

    def __init__(self, ports: list[int], count: int) -> None:
        self._ports = ports
        self._count = count
        self.all: list[Session] = []

    def routes(self) -> list[Route]:
        """Return the routes at the start of the gateway."""
        return [self._route(number % len(self._ports)) for number in range(self._count)]

    def open(self, orchestrator: Orchestrator, routes: list[Route]) -> None:
        """Open a browser for each of *routes*."""
        for number, route in enumerate(routes):
            user = f"ada-{number // SESSIONS_OF_USER}"
            visitor = orchestrator.visitor(route.sid, user)
            app = number % len(self._ports)
            self.all.append(Session(number, user, app, route, visitor))

    def of_user(self, user: str) -> list[Session]:
        """Return the sessions that *user* has open."""
        return [session for session in self.all if session.user == user]

    def moved(self, session: Session) -> Route:
        """Return the route of *session* once it has another app."""
        route, rev = session.route, session.route.rev + 1
        assert route.target is not None
        port = self._ports[(session.app + 1) % len(self._ports)]
        target = msgspec.structs.replace(route.target, port=port, id=f"pod-{route.sid}-{rev}")
        return msgspec.structs.replace(route, rev=rev, target=target)

    def move(self, session: Session, route: Route) -> None:
        """Expect responses of the other app from now on."""
        session.app = (session.app + 1) % len(self._ports)
        session.route = route

    def another(self, session: Session) -> Route:
        """Return the route of a session that takes the place of *session*."""
        return self._route(session.app)

    def _route(self, app: int) -> Route:
        return make_route(new_sid(), self._ports[app])
