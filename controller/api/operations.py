"""What the API offers, beside what handles it: from it come the routes, and their description."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from inspect import isfunction
from typing import Any, Final, TypeVar

from aiohttp import web
from pydantic import BaseModel

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Method = TypeVar("Method", bound=Callable[[Any, Any], Awaitable[web.StreamResponse]])

JSON: Final = "application/json"
TEXT: Final = "text/plain"
EVENTS: Final = "text/event-stream"
_MARK: Final = "operation"


@dataclass(frozen=True, slots=True)
class Operation:
    """One call; it decorates the method that handles it.

    ``name`` is its ``operationId``, which generated clients call it by. ``answer`` is what each of
    ``items`` is when the answer is a list of them. ``media`` are the forms in which the answer
    comes, the first of them by default; ``statuses``, those of success. ``headers`` are those that
    it reads, each with the pattern of its value. ``errors`` are the codes of its own, beside those
    that follow from what it reads.
    """

    method: str
    path: str
    name: str
    summary: str
    _: KW_ONLY
    answer: type[BaseModel] | None = None
    many: bool = False
    body: type[BaseModel] | None = None
    query: type[BaseModel] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    statuses: tuple[int, ...] = (200,)
    media: tuple[str, ...] = (JSON,)
    errors: tuple[str, ...] = ()

    def __call__(self, handler: Method) -> Method:
        """Have *handler* be offered as this, by :func:`offered_by`."""
        vars(handler)[_MARK] = self
        return handler

    def codes(self) -> set[str]:
        """Return the code of every error that this call can be answered with."""
        codes = {"bad_request", "unauthorized", "internal", "store_unavailable", *self.errors}
        if self.body is not None:
            codes |= {"bad_json", "too_large", "not_json", "unknown_coding", "invalid"}
        if self.query is not None or self.headers:
            codes.add("invalid")
        return codes | {"not_found"} if "{" in self.path else codes


def offered_by(resource: object) -> Iterator[tuple[Operation, Handler]]:
    """Yield what *resource* offers, with what handles it, in the order of its methods."""
    for name, method in vars(type(resource)).items():
        if isfunction(method) and _MARK in vars(method):
            yield vars(method)[_MARK], getattr(resource, name)
