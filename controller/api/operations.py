"""The operations of the API. Routes and OpenAPI description are both made from them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType, ModuleType
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints

from aiohttp import web
from pydantic import BaseModel

from controller.api.error_responses import Handler
from controller.api.requests import Query, read_model, read_query

HandlerFunction = TypeVar("HandlerFunction", bound=Callable[..., Awaitable[Any]])

JSON: Final = "application/json"
TEXT: Final = "text/plain"
EVENTS: Final = "text/event-stream"
_OPERATION: Final = "operation"
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation of the API.

    Attributes:
        method: The HTTP method.
        path: The path template.
        name: The ``operationId``, which names the method of generated clients.
        summary: One line for the description.
        response_model: The model of the response, or of each of its ``items``.
        is_list: Whether the response is a list with ``items``.
        read: The models that the function receives, by parameter.
        body: The model of the request body.
        query: The model of the query.
        headers: The request headers that are read, each with its pattern.
        statuses: The statuses of success.
        media: The media types of the response; the first one is the default.
        errors: The operation's own error codes, besides those that follow from what it reads.
    """

    method: str
    path: str
    name: str
    summary: str
    response_model: type[BaseModel] | None
    is_list: bool
    read: Mapping[str, type[BaseModel]]
    body: type[BaseModel] | None
    query: type[BaseModel] | None
    headers: Mapping[str, str]
    statuses: tuple[int, ...]
    media: tuple[str, ...]
    errors: tuple[str, ...]

    def codes(self) -> set[str]:
        """Return the code of every error that this operation can return."""
        codes = {"bad_request", "unauthorized", "internal", "store_unavailable", *self.errors}
        if self.body is not None:
            codes |= {"bad_json", "too_large", "not_json", "unknown_coding", "invalid"}
        if self.query is not None or self.headers:
            codes.add("invalid")
        return codes | {"not_found"} if "{" in self.path else codes


def operation(
    method: str,
    path: str,
    name: str,
    summary: str,
    *,
    body: type[BaseModel] | None = None,
    headers: Mapping[str, str] = _NO_HEADERS,
    statuses: tuple[int, ...] = (200,),
    media: tuple[str, ...] = (JSON,),
    errors: tuple[str, ...] = (),
) -> Callable[[HandlerFunction], HandlerFunction]:
    """Mark a function as an :class:`Operation`, which :func:`operations_of` finds.

    The function's signature says the rest. It receives the API's parts, the request, and the
    models of the query (a ``Query``) and of the body. *body* names a model that the function
    reads itself. It returns one of these, or a tuple of it and the status if that is not 200:

    - a model, or a list of models,
    - JSON or a response, ``Annotated`` with its model.
    """

    def mark(handle: HandlerFunction) -> HandlerFunction:
        hints = get_type_hints(handle, include_extras=True)
        response_model, is_list = _response_model(hints.pop("return"))
        read = {named: one for named, one in hints.items() if _is_model(one)}
        queries = [one for one in read.values() if issubclass(one, Query)]
        bodies = [one for one in read.values() if not issubclass(one, Query)]
        vars(handle)[_OPERATION] = Operation(
            method=method,
            path=path,
            name=name,
            summary=summary,
            response_model=response_model,
            is_list=is_list,
            read=read,
            body=next(iter(bodies), body),
            query=next(iter(queries), None),
            headers=headers,
            statuses=statuses,
            media=media,
            errors=errors,
        )
        return handle

    return mark


def operations_of(module: ModuleType, parts: object) -> Iterator[tuple[Operation, Handler]]:
    """Yield the operations of *module* in their order, each with its handler for *parts*."""
    for handle in vars(module).values():
        marked = getattr(handle, "__dict__", {}).get(_OPERATION)
        if isinstance(marked, Operation) and handle.__module__ == module.__name__:
            yield marked, _make_handler(marked, handle, parts)


def _make_handler(
    marked: Operation, handle: Callable[..., Awaitable[Any]], parts: object
) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        given: dict[str, BaseModel] = {}
        for name, model in marked.read.items():
            if issubclass(model, Query):
                given[name] = read_query(request, model)
            else:
                given[name] = await read_model(request, model)
        result = await handle(parts, request, **given)
        result, status = result if isinstance(result, tuple) else (result, 200)
        if isinstance(result, web.StreamResponse):
            return result
        return web.json_response(_as_json(result), status=status)

    return handler


def _as_json(result: Any) -> Any:
    if isinstance(result, list):
        return {"items": [_as_json(one) for one in result]}
    return result.model_dump(mode="json") if isinstance(result, BaseModel) else result


def _is_model(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, BaseModel)


def _response_model(hint: Any) -> tuple[type[BaseModel] | None, bool]:
    """Return the model of a function's return type, and whether it returns a list of them."""
    if get_origin(hint) is tuple:
        hint = get_args(hint)[0]
    is_list = get_origin(hint) is list
    if is_list:
        hint = get_args(hint)[0]
    hint = next(iter(getattr(hint, "__metadata__", ())), hint)
    return (hint if _is_model(hint) else None), is_list
