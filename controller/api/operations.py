"""What the API offers, as a table: from it come the routes, and their description."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from aiohttp import web
from pydantic import BaseModel

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

JSON: Final = "application/json"
TEXT: Final = "text/plain"
EVENTS: Final = "text/event-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One call.

    ``answer`` is what each of ``items`` is when the answer is a list of them. ``media`` are the
    forms in which the answer comes, the first of them by default; ``statuses``, those of success.
    """

    method: str
    path: str
    summary: str
    handler: Handler
    answer: type[BaseModel] | None = None
    many: bool = False
    body: type[BaseModel] | None = None
    query: type[BaseModel] | None = None
    headers: tuple[str, ...] = ()
    statuses: tuple[int, ...] = (200,)
    media: tuple[str, ...] = (JSON,)

    def route(self) -> web.RouteDef:
        """Return the route."""
        return web.route(self.method, self.path, self.handler)
