"""Error responses of the API: ``{"code", "message", "details"?}`` for every error."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from aiohttp import web

from controller.jobs.history.job_record import CommandRefused
from controller.jobs.pipeline.border import PluginFailed
from controller.jobs.spec.problems import JobRejected, Problem
from controller.jobs.submission.accept import Draining
from controller.store.errors import StoreUnavailable
from controller.volcano.names import is_tool
from shared.runtime.listeners import refusal

RETRY_AFTER_SECONDS: Final = 2
MOST_NAMED: Final = 1000
"""The most problems that one response names."""
CODINGS: Final = ("gzip", "deflate", "identity")
"""Content codings that a request body may have (RFC 9110, section 8.4)."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
T = TypeVar("T")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """An error code: its status, its default message, and an example of ``details``."""

    status: int
    message: str
    details: Any = None


_PROBLEM: Final = {"path": "items[0].replicas", "message": "should be greater than or equal to 1"}
ERRORS: Final[Mapping[str, ErrorKind]] = {
    "bad_json": ErrorKind(400, "The body is not a JSON object."),
    "bad_request": ErrorKind(400, "The path and the query must not contain NUL."),
    "unauthorized": ErrorKind(401, "A bearer token of the orchestrator is required."),
    "not_found": ErrorKind(404, "The resource does not exist."),
    "beyond_the_end": ErrorKind(
        409, "The ledger has no entry with this number; nothing was changed."
    ),
    "conflict": ErrorKind(
        409, "These ids or links are in use; nothing was changed.", {"problems": [_PROBLEM]}
    ),
    "ending": ErrorKind(409, "The job is about to end."),
    "key_reused": ErrorKind(409, "This key was used by another request."),
    "no_end": ErrorKind(409, "The job has no time allocation that could be extended."),
    "not_offered": ErrorKind(409, "The job's product does not offer that."),
    "not_started": ErrorKind(409, "This rank has not started yet."),
    "over": ErrorKind(409, "The job is over."),
    "too_long": ErrorKind(409, "The time allocation would exceed the maximum."),
    "forgotten": ErrorKind(410, "Some of these entries have been deleted.", {"through": 1841}),
    "gone": ErrorKind(410, "The pod was deleted, and its log with it."),
    "too_large": ErrorKind(413, "The body is too large."),
    "not_json": ErrorKind(415, "The content type must be application/json."),
    "unknown_coding": ErrorKind(415, "The content coding must be gzip, deflate or identity."),
    "invalid": ErrorKind(422, "1 problem; nothing was changed", {"problems": [_PROBLEM]}),
    "internal": ErrorKind(500, "The request failed; the controller logged the traceback."),
    "plugin_failed": ErrorKind(500, "A plugin failed."),
    "cluster_unavailable": ErrorKind(503, "The cluster does not answer; try again later."),
    "draining": ErrorKind(503, "The controller accepts no new jobs at present."),
    "logs_unavailable": ErrorKind(503, "The log storage cannot be read now; try again later."),
    "store_unavailable": ErrorKind(503, "The store is unavailable; it is safe to try again."),
    "too_many_streams": ErrorKind(503, "Too many streams are open; try again later."),
}
"""Every error code of the API (docs/controller-api.md)."""


class ApiError(Exception):
    """An error response with a code of :data:`ERRORS`; ``details`` is JSON."""

    def __init__(self, code: str, message: str | None = None, details: Any = None) -> None:
        self.code = code
        self.status = ERRORS[code].status
        self.message = message or ERRORS[code].message
        self.details = details
        super().__init__(self.message)

    def response(self) -> web.Response:
        """Return the HTTP response."""
        body = {"code": self.code, "message": self.message}
        if self.details is not None:
            body["details"] = self.details
        headers = {name: value for name, (value, _) in error_headers(self.code).items()}
        return web.json_response(body, status=self.status, headers=headers)


def error_headers(code: str) -> dict[str, tuple[str, str]]:
    """Return the headers of errors with *code*, each with its value and its description."""
    if code == "not_json":  # RFC 9110, section 15.5.16, which names the header for each cause
        return {"Accept": ("application/json", "The supported content type.")}
    if code == "unknown_coding":
        return {"Accept-Encoding": (", ".join(CODINGS), "The supported content codings.")}
    match ERRORS[code].status:
        case 401:
            return {"WWW-Authenticate": ("Bearer", "The authentication scheme.")}
        case 503:
            return {"Retry-After": (str(RETRY_AFTER_SECONDS), "Seconds until a retry is useful.")}
    return {}


def problems_json(problems: Iterable[Problem]) -> list[dict[str, str]]:
    """Return *problems* as JSON without duplicates: tasks may share a problem."""
    return [{"path": one.path, "message": one.message} for one in dict.fromkeys(problems)]


def invalid(problems: Iterable[Problem], more: Mapping[str, Any] | None = None) -> ApiError:
    """Return the error 422, which names every problem.

    At most :data:`MOST_NAMED` problems are named: a thousand jobs can have a hundred each.
    *more* adds fields to ``details``.
    """
    distinct: dict[Problem, None] = {}
    for one in problems:
        distinct[one] = None
        if len(distinct) > MOST_NAMED:
            break
    found = problems_json(distinct)[:MOST_NAMED]
    count = f"{len(found)} problem{'s' if len(found) != 1 else ''}"
    count += " and more" if len(distinct) > len(found) else ""
    return ApiError("invalid", f"{count}; nothing was changed", {"problems": found, **(more or {})})


def not_found(what: str) -> ApiError:
    """Return the error 404 for a resource of the type *what*."""
    return ApiError("not_found", f"This {what} does not exist.")


def or_not_found(found: T | None, what: str) -> T:
    """Return *found*.

    Raises:
        ApiError: 404 if it is None.
    """
    if found is None:
        raise not_found(what)
    return found


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Return every error in the API's form. An unexpected one reveals nothing about its cause."""
    try:
        return await handler(request)
    except ApiError as error:
        return error.response()
    except web.HTTPException as error:
        return _of_aiohttp(error)
    except PluginFailed as error:
        return ApiError("plugin_failed", f"The plugin {error.plugin} failed.").response()
    except StoreUnavailable as error:
        log.warning("the store is unavailable", extra={"why": str(error)})
        return ApiError("store_unavailable").response()
    except Exception:  # the outermost boundary of a request
        log.exception("a request failed", extra={"method": request.method})
        return ApiError("internal").response()


@web.middleware
async def refusals_as_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Translate what the jobs' packages refuse. Innermost, so that the refusal is audited."""
    try:
        return await handler(request)
    except JobRejected as rejected:
        raise invalid(rejected.problems) from None
    except CommandRefused as refused:
        message = str(refused)
        raise ApiError(refused.code, f"{message[:1].upper()}{message[1:]}.") from None
    except Draining as refused:
        raise ApiError("draining", str(refused)) from None


@web.middleware
async def without_nul(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse NUL in path and query: no name contains it, and PostgreSQL stores it in no text."""
    if "\0" in request.path or any("\0" in part for pair in request.query.items() for part in pair):
        raise ApiError("bad_request")
    return await handler(request)


@web.middleware
async def without_tools(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse the identifiers of tool runs. They are stored like jobs, but they are none."""
    if is_tool(request.match_info.get("id", "")):
        raise not_found("job")
    return await handler(request)


def _of_aiohttp(error: web.HTTPException) -> web.Response:
    if error.status == 413:
        return ApiError("too_large").response()
    # A 405 names the methods that are allowed (RFC 9110, section 15.5.6).
    allowed = {name: error.headers[name] for name in ("Allow",) if name in error.headers}
    return web.json_response(refusal(error.status), status=error.status, headers=allowed)
