"""What the API offers, as a table: from it come the routes, and their description."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
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

    ``name`` is its ``operationId``, which generated clients call it by. ``answer`` is what each of
    ``items`` is when the answer is a list of them. ``media`` are the forms in which the answer
    comes, the first of them by default; ``statuses``, those of success. ``headers`` are those that
    it reads, each with the pattern of its value. ``errors`` are the codes of its own, beside those
    that follow from what it reads.
    """

    name: str
    method: str
    path: str
    summary: str
    handler: Handler
    answer: type[BaseModel] | None = None
    many: bool = False
    body: type[BaseModel] | None = None
    query: type[BaseModel] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    statuses: tuple[int, ...] = (200,)
    media: tuple[str, ...] = (JSON,)
    errors: tuple[str, ...] = ()

    def route(self) -> web.RouteDef:
        """Return the route."""
        return web.route(self.method, self.path, self.handler)

    def codes(self) -> set[str]:
        """Return the code of every error that this call can be answered with."""
        codes = {"bad_request", "unauthorized", "internal", "store_unavailable", *self.errors}
        if self.body is not None:
            codes |= {"bad_json", "too_large", "not_json", "invalid"}
        if self.query is not None or self.headers:
            codes.add("invalid")
        return codes | {"not_found"} if "{" in self.path else codes
