"""Errors of the API: ``{"code", "message", "details"?}``, whatever went wrong."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from aiohttp import web

from controller.jobs.pipeline.border import PluginFailed
from controller.jobs.spec.problems import Problem
from controller.store.errors import StoreUnavailable
from controller.volcano.names import is_tool
from shared.runtime.serving import refusal

RETRY_AFTER_SECONDS: Final = 2
MOST_NAMED: Final = 1000
"""Problems of a call that are named in its response."""
CODINGS: Final = ("gzip", "deflate", "identity")
"""Content codings that a body may have (RFC 9110, section 8.4)."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
T = TypeVar("T")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """An error code: its status, its text where none is finer, and an example of ``details``."""

    status: int
    message: str
    details: Any = None


_PROBLEM: Final = {"path": "items[0].replicas", "message": "should be greater than or equal to 1"}
ERRORS: Final[Mapping[str, ErrorKind]] = {
    "bad_json": ErrorKind(400, "The body is not a JSON object."),
    "bad_request": ErrorKind(400, "NUL is in no name."),
    "unauthorized": ErrorKind(401, "A bearer token of the orchestrator is needed."),
    "not_found": ErrorKind(404, "There is no such thing."),
    "beyond_the_end": ErrorKind(409, "The ledger does not reach that far; nothing was done."),
    "conflict": ErrorKind(
        409, "Others have these ids or links; nothing was done.", {"problems": [_PROBLEM]}
    ),
    "ending": ErrorKind(409, "The job is about to end."),
    "key_reused": ErrorKind(409, "This key was another call's."),
    "no_end": ErrorKind(409, "The job was given no time that could be extended."),
    "not_offered": ErrorKind(409, "The job's product does not offer that."),
    "not_started": ErrorKind(409, "This rank has not run yet."),
    "over": ErrorKind(409, "The job is over."),
    "too_long": ErrorKind(409, "The job would have more time than any job has."),
    "forgotten": ErrorKind(410, "Some of these are not known any more.", {"through": 1841}),
    "gone": ErrorKind(410, "The pod is gone, and its log with it."),
    "too_large": ErrorKind(413, "The body is too large."),
    "not_json": ErrorKind(415, "The content type must be application/json."),
    "unknown_coding": ErrorKind(415, "A body is sent as it is, or with gzip or deflate."),
    "invalid": ErrorKind(422, "1 problem; nothing was done", {"problems": [_PROBLEM]}),
    "internal": ErrorKind(500, "The request failed; its trace is logged."),
    "plugin_failed": ErrorKind(500, "A plugin failed."),
    "cluster_unavailable": ErrorKind(503, "The cluster does not answer; try again later."),
    "draining": ErrorKind(503, "No jobs are taken for the time being."),
    "logs_unavailable": ErrorKind(503, "Where logs are kept cannot be read now."),
    "store_unavailable": ErrorKind(503, "Try again later; it is safe to."),
    "too_many_streams": ErrorKind(503, "Too many streams are open; try again later."),
}
"""Every code that a call can be refused with (docs/controller-api.md)."""


class ApiError(Exception):
    """An answer that is an error: one of :data:`ERRORS`. ``details`` is JSON."""

    def __init__(self, code: str, message: str | None = None, details: Any = None) -> None:
        self.code = code
        self.status = ERRORS[code].status
        self.message = message or ERRORS[code].message
        self.details = details
        super().__init__(self.message)

    def response(self) -> web.Response:
        """Return the answer."""
        body = {"code": self.code, "message": self.message}
        if self.details is not None:
            body["details"] = self.details
        headers = {name: value for name, (value, _) in error_headers(self.status).items()}
        return web.json_response(body, status=self.status, headers=headers)


def error_headers(status: int) -> dict[str, tuple[str, str]]:
    """Return the headers that errors of *status* have: each one's value, and what it says."""
    if status == 415:
        return {"Accept-Encoding": (", ".join(CODINGS), "Content codings that a body may have.")}
    if status == 401:
        return {"WWW-Authenticate": ("Bearer", "What is needed.")}
    if status == 503:
        return {"Retry-After": (str(RETRY_AFTER_SECONDS), "Seconds until it is worth a try.")}
    return {}


def problems_json(problems: Iterable[Problem]) -> list[dict[str, str]]:
    """Return *problems* as the API shows them, each once: tasks may share what is wrong."""
    return [{"path": one.path, "message": one.message} for one in dict.fromkeys(problems)]


def invalid(problems: Iterable[Problem], more: Mapping[str, Any] | None = None) -> ApiError:
    """Return the error for well-formed content that does not fit, every problem named.

    Of very many the first :data:`MOST_NAMED` are: a thousand jobs can have a hundred each.
    *more* stands beside the problems.
    """
    distinct: dict[Problem, None] = {}
    for one in problems:
        distinct[one] = None
        if len(distinct) > MOST_NAMED:
            break
    found = problems_json(distinct)[:MOST_NAMED]
    count = f"{len(found)} problem{'s' if len(found) != 1 else ''}"
    count += " and more" if len(distinct) > len(found) else ""
    return ApiError("invalid", f"{count}; nothing was done", {"problems": found, **(more or {})})


def not_found(what: str) -> ApiError:
    """Return the error for a thing that is not there."""
    return ApiError("not_found", f"There is no such {what}.")


def or_not_found(found: T | None, what: str) -> T:
    """Return what was *found*.

    Raises:
        ApiError: 404 if it is None.
    """
    if found is None:
        raise not_found(what)
    return found


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer every error in the API's form; what nobody expected says nothing about itself."""
    try:
        return await handler(request)
    except ApiError as error:
        return error.response()
    except web.HTTPException as error:
        return _of_aiohttp(error)
    except PluginFailed as error:
        return ApiError("plugin_failed", f"The plugin {error.plugin} failed.").response()
    except StoreUnavailable as error:
        log.warning("the store is not available", extra={"why": str(error)})
        return ApiError("store_unavailable").response()
    except Exception:  # the outermost boundary of a request
        log.exception("a request failed", extra={"method": request.method})
        return ApiError("internal").response()


@web.middleware
async def without_nul(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse NUL in path and query: nothing is named so, and PostgreSQL takes it in no text."""
    if "\0" in request.path or any("\0" in part for pair in request.query.items() for part in pair):
        raise ApiError("bad_request")
    return await handler(request)


@web.middleware
async def without_tools(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse the identifiers of tools' runs: these are kept as jobs are, and are none."""
    if is_tool(request.match_info.get("id", "")):
        raise not_found("job")
    return await handler(request)


def _of_aiohttp(error: web.HTTPException) -> web.Response:
    if error.status == 413:
        return ApiError("too_large").response()
    # What else could be asked there has to be told (RFC 9110, section 15.5.6).
    allowed = {name: error.headers[name] for name in ("Allow",) if name in error.headers}
    return web.json_response(refusal(error.status), status=error.status, headers=allowed)
