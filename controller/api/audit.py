"""Audit records of the API: changes, and refused requests (docs/audit.md)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, Final, TypeAlias

from aiohttp import web
from aiohttp.typedefs import Middleware

from controller.api.authentication import CALLER
from controller.api.error_responses import ApiError, Handler
from shared.audit import AuditEvent, AuditRecord, Counted, RecordQuota, write_audit

TICK_SECONDS: Final = 1.0
_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_Key: TypeAlias = tuple[str, str]
"""Refusals are counted per client: ``("address", …)`` or ``("subject", …)``."""


class ApiAudit:
    """Writes the audit records of one API.

    Args:
        issuer: The issuer of all tokens.
        clock: Unix seconds.
    """

    def __init__(self, *, issuer: str, clock: Callable[[], float]) -> None:
        self._issuer = issuer
        self._clock = clock
        self._refusals: RecordQuota[_Key] = RecordQuota()

    def record(self, request: web.Request, event: AuditEvent, **fields: Any) -> None:
        """Write a record of what the caller of *request* did; *fields* are fields of the record."""
        subject = request.get(CALLER)
        write_audit(
            AuditRecord(
                event=event,
                time=self._clock(),
                issuer=None if subject is None else self._issuer,
                subject=subject,
                address=request.remote,
                operation=_operation(request),
                **fields,
            )
        )

    def refused(self, request: web.Request, reason: str, **fields: Any) -> None:
        """Write a record of a refusal, or count it once the client's quota is used up."""
        subject = request.get(CALLER)
        key = ("address", request.remote or "") if subject is None else ("subject", subject)
        if self._refusals.take(key, reason, self._clock()):
            self.record(request, "refused", reason=reason, **fields)

    async def flush_due(self, _app: web.Application) -> AsyncIterator[None]:
        """Write the counts of refusals while the application runs, and at its end."""
        task = asyncio.create_task(self._run())
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        self._count(self._refusals.flush())

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self._count(self._refusals.due(self._clock()))

    def _count(self, found: list[Counted[_Key]]) -> None:
        for one in found:
            what, name = one.key or (None, None)
            subject = name if what == "subject" else None
            write_audit(
                AuditRecord(
                    event="refused",
                    time=self._clock(),
                    issuer=None if subject is None else self._issuer,
                    subject=subject,
                    address=name if what == "address" else None,
                    since=one.since,
                    until=one.until,
                    count=one.count,
                    reasons=dict(one.reasons),
                )
            )


AUDIT: Final = web.AppKey("audit", ApiAudit)


def audit(request: web.Request, event: AuditEvent, **fields: Any) -> None:
    """Write a record of what the caller of *request* did; *fields* are fields of the record."""
    request.app[AUDIT].record(request, event, **fields)


def record_refusals(log: ApiAudit) -> Middleware:
    """Return a middleware that records unauthenticated requests and refused changes."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except ApiError as error:
            changes = request.method not in _READS and 400 <= error.status < 500
            if changes or error.status == 401:
                ids = {"job": "id", "sid": "sid"}
                known = {field: request.match_info.get(name) for field, name in ids.items()}
                proved = known if CALLER in request else {}
                log.refused(request, error.code, **proved)
            raise

    return middleware


def _operation(request: web.Request) -> str:
    """Return the method and the path template: ``POST /v1/jobs/{id}/extend``."""
    resource = request.match_info.route.resource
    return request.method if resource is None else f"{request.method} {resource.canonical}"
