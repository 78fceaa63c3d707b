"""Errors of the API: ``{"code", "message", "details"?}``, whatever went wrong."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from aiohttp import web

from controller.jobs.pipeline.border import PluginFailed
from controller.jobs.spec.problems import Problem
from controller.store.errors import StoreUnavailable
from shared.serving import refusal

RETRY_AFTER_SECONDS: Final = 2
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = logging.getLogger(__name__)


class ApiError(Exception):
    """An answer that is an error. ``details`` is JSON."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        details: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.headers = dict(headers or {})
        self.status = status
        self.code = code
        self.message = message
        self.details = details

    def response(self) -> web.Response:
        """Return the answer."""
        body = {"code": self.code, "message": self.message}
        if self.details is not None:
            body["details"] = self.details
        headers = dict(self.headers)
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        if self.status == 503:
            headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
        return web.json_response(body, status=self.status, headers=headers)


def problems_json(problems: Iterable[Problem]) -> list[dict[str, str]]:
    """Return *problems* as the API shows them."""
    return [{"path": one.path, "message": one.message} for one in problems]


def invalid(problems: Iterable[Problem], more: Mapping[str, Any] | None = None) -> ApiError:
    """Return the error for well-formed content that does not fit, every problem named.

    *more* stands beside the problems.
    """
    found = problems_json(problems)
    message = f"{len(found)} problem{'s' if len(found) != 1 else ''}; nothing was done"
    return ApiError(422, "invalid", message, {"problems": found, **(more or {})})


def not_found(what: str) -> ApiError:
    """Return the error for a thing that is not there."""
    return ApiError(404, "not_found", f"There is no such {what}.")


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer every error in the API's form; what nobody expected says nothing about itself."""
    try:
        return await handler(request)
    except ApiError as error:
        return error.response()
    except web.HTTPException as error:
        return _of_aiohttp(error).response()
    except PluginFailed as error:
        return ApiError(500, "plugin_failed", f"The plugin {error.plugin} failed.").response()
    except StoreUnavailable:
        log.warning("the store is not available", exc_info=True)
        return ApiError(503, "store_unavailable", "Try again later; it is safe to.").response()
    except Exception:  # the outermost boundary of a request
        log.exception("a request failed", extra={"method": request.method})
        return ApiError(500, "internal", "The request failed; its trace is logged.").response()


@web.middleware
async def without_nul(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse NUL in path and query: nothing is named so, and PostgreSQL takes it in no text."""
    if "\0" in request.path or any("\0" in part for pair in request.query.items() for part in pair):
        raise ApiError(400, "bad_request", "NUL is in no name.")
    return await handler(request)


def _of_aiohttp(error: web.HTTPException) -> ApiError:
    if error.status == 413:
        return ApiError(413, "too_large", "The body is too large.")
    # What else could be asked there has to be told (RFC 9110, section 15.5.6).
    allowed = {name: error.headers[name] for name in ("Allow",) if name in error.headers}
    return ApiError(error.status, **refusal(error.status), headers=allowed)
