"""The upstream side of a downstream connection: it takes one from the pool, or dials.

The kernel moves the rest of a large body (:mod:`.large_bodies`).
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from functools import partial

from gateway.core.access.access_right import UNCOUNTED, ActivityCounter
from gateway.core.access.refusals import REFUSALS, Refusal, subject_of
from gateway.core.downstream.cached_decision import CachedDecision
from gateway.core.downstream.connection import Connection
from gateway.core.http.framing import Body, LengthBody
from gateway.core.http.request_reader import RequestReader
from gateway.core.http.response_heads import BAD_RESPONSE
from gateway.relay.background_tasks import Cancellable
from gateway.relay.context import Context
from gateway.relay.dial import DialFailed, to_dial_failed
from gateway.relay.http.large_bodies import Download, Upload, can_splice
from gateway.relay.http.upstream import UpstreamConnection

log = logging.getLogger(__name__)


class RelayingConnection(Connection):
    """A downstream connection that gets an upstream connection for each request."""

    __slots__ = (
        "activity",
        "began",
        "context",
        "decision",
        "dialling",
        "loop",
        "task",
        "transport",
    )

    def __init__(self, context: Context) -> None:
        reader = RequestReader(context.fields, context.known)
        super().__init__(reader, context.responses, context.date, context.limits)
        self.context = context
        self.loop = context.loop
        self.transport: asyncio.Transport | None = None
        self.upstream: UpstreamConnection | None = None
        self.upload: Upload | None = None
        self.download: Download | None = None
        self.decision: CachedDecision | None = None
        self.activity: ActivityCounter = UNCOUNTED
        """The byte counters: its session's while it has a decision."""
        self.task: Cancellable | None = None
        """The work that it waits for: token verification, a table repair, a dial."""
        self.dialling: UpstreamConnection | None = None
        """The upstream connection that is being dialled."""
        self.began = 0.0

    def connect(self) -> None:
        """Take a pooled upstream connection, or dial one."""
        context, decision = self.context, self.decision
        if decision is None:  # the access right has ended
            return
        self.began = self.loop.time()
        pooled = None
        if not self.upgrade and not self.reused:
            pooled = context.pool.take(
                sid=decision.access_right.sid,
                user=decision.user,
                target=decision.target,
                safe=self.is_repeatable(),
            )
        if pooled is not None:
            context.meters.reused += 1
            pooled.exchange, pooled.access_right = self, decision.access_right
            self.connected(pooled, reused=True)
        elif context.holder.dialling:
            context.meters.dials += 1
            self._dial(decision)
            if self.inbox or not (self.reading and self.request_body.done):
                self.sync_reading()
        else:
            self.refuse("controller_silent")

    def _dial(self, decision: CachedDecision) -> None:
        """Dial the app; the deadline is that of this connection."""
        context = self.context
        dialler, right = context.dialler, decision.access_right
        upstream = self.dialling = UpstreamConnection(
            context.pool, sid=right.sid, user=decision.user, target=decision.target
        )
        upstream.on_connected = self._dialled
        failed = partial(self._dial_failed, upstream)
        self.set_deadline(dialler.dial_seconds)
        try:
            work = dialler.connect(decision.target, lambda: upstream)
        except DialFailed as error:
            failed(error)
        else:
            self.task = context.background_tasks.spawn(work, failed=failed)

    def _dialled(self, upstream: UpstreamConnection) -> None:
        decision = self.decision
        if self.dialling is not upstream or decision is None:
            upstream.close()  # the request has ended meanwhile
            return
        self.dialling = self.task = None
        upstream.exchange, upstream.access_right = self, decision.access_right
        self.connected(upstream, reused=False)

    def _dial_failed(self, upstream: UpstreamConnection, error: BaseException) -> None:
        upstream.on_connected = None
        upstream.close()  # it may have connected at the same moment
        if self.dialling is not upstream:
            return
        self.dialling = self.task = None
        if isinstance(error, asyncio.CancelledError):
            return
        if not isinstance(error, DialFailed | OSError | ValueError):
            log.error("a dial failed", exc_info=error)
            self.reset()
            return
        code = to_dial_failed(error).code
        self.context.meters.upstream_failures[code] += 1
        self.refuse(self.app_failure(code))

    def splice_request(self) -> None:
        """Let the kernel move the rest of a large request body, if possible."""
        body, browser, upstream = self._large(self.request_body), self.transport, self.upstream
        if body is None or browser is None or upstream is None or upstream.transport is None:
            return
        self.upload = Upload(
            connection=self,
            context=self.context,
            activity=self.activity,
            body=body,
            source=browser,
            sink=upstream.transport,
            app=upstream,
        )
        # Splicing reports its bytes; the watch reports a browser that leaves.
        self.reading = False
        self.context.closer.hangups.watch(browser, self.hung_up)
        self.upload.begin()

    def splice_response(self) -> None:
        """Let the kernel move the rest of a large response body, if possible.

        Not while a transport writes the request body: if that fails, the upstream connection closes
        with the bytes that it still holds.
        """
        if not self.request_body.done and self.upload is None:
            return
        body, browser, upstream = self._large(self.response_body), self.transport, self.upstream
        if body is None or browser is None or upstream is None or upstream.transport is None:
            return
        self.download = Download(
            connection=self,
            context=self.context,
            activity=self.activity,
            body=body,
            source=upstream.transport,
            sink=browser,
        )
        upstream.reading = False
        self.download.begin()

    def _large(self, body: Body | None) -> LengthBody | None:
        """Return *body* if the kernel should move its rest, which is forwarded unchanged.

        It must be long enough, and both sockets must be plain TCP.
        """
        least = self.context.limits.splice_bytes
        if not isinstance(body, LengthBody) or not body.remaining >= least > 0:
            return None
        app = None if self.upstream is None else self.upstream.transport
        if self.transport is None or app is None:
            return None
        return body if can_splice(self.transport) and can_splice(app) else None

    def release(self, *, reusable: bool) -> None:
        """Return the upstream connection to its pool, or close it."""
        upstream, self.upstream = self.upstream, None
        if upstream is None:
            return
        upstream.exchange = None
        transport = upstream.transport
        if reusable and upstream.writable and transport is not None and not transport.is_closing():
            if not upstream.reading:
                upstream.resume_reading()
            self.context.pool.put(upstream)
        else:
            upstream.close()

    def response_started(self, status: int) -> None:
        """Count a response whose head was received."""
        meters = self.context.meters
        meters.answers[status // 100] += 1
        if status != 101:
            meters.first_byte(self.loop.time() - self.began)

    def bad_response(self, reason: str = "") -> None:
        """Count an app whose response cannot be relayed, or not to its end."""
        self.context.meters.upstream_failures[BAD_RESPONSE] += 1
        if reason and self.has_begun and self.decision is not None:
            sid = self.decision.access_right.sid
            self.context.failures.note(sid, BAD_RESPONSE, reason)
        super().bad_response(reason)

    def app_failure(self, code: str, reason: str = "") -> Refusal:
        """Return the refusal for the failure *code* of the app."""
        right = None if self.decision is None else self.decision.access_right
        subject = None if right is None else subject_of(right.route, public=right.grant is None)
        return replace(REFUSALS[code], subject=subject, reason=reason)

    def upstream_timed_out(self) -> str | Refusal:
        """Count an upstream timeout; return the refusal, or its code."""
        self.context.meters.upstream_failures["app_timeout"] += 1
        return "app_timeout" if self.dialling is None else self.app_failure("app_timeout")

    def abandon(self) -> None:
        """Close the upstream connection and cancel pending work."""
        if self.task is not None:
            self.task.cancel()
            self.task = None
        self.dialling = None
        if self.upload is not None or self.download is not None:
            self.stop_splicing()
        upstream, self.upstream = self.upstream, None
        if upstream is not None:
            upstream.close()
