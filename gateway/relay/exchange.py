"""One request and its answer, between a browser's connection and an app's.

Bodies go both ways at once: an app may answer before it has read the request, or while it does.
Whatever the app does wrong before the answer's head has gone out becomes a 502; after that, both
connections are reset, so that a broken answer never looks complete.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from gateway.core.access import is_root
from gateway.core.app_heads import (
    BAD,
    VARY_SERVICE_WORKER,
    answer_body,
    find_answer_end,
    is_proper_switch,
    switch_fields,
)
from gateway.core.framing import FramingError, NoBody, OpenBody, request_body
from gateway.core.heads import HeadRefused
from gateway.relay.dial import DialFailed
from gateway.relay.large_bodies import Download, Upload, make_download, make_upload
from gateway.relay.transports import pause_reading, resume_reading
from gateway.relay.tunnel import Tunnel
from gateway.relay.upstream import Upstream

if TYPE_CHECKING:
    from gateway.core.app_heads import AnswerHead
    from gateway.core.fields import Fields
    from gateway.core.framing import Body
    from gateway.core.heads import StartLine
    from gateway.relay.front import Front
    from gateway.relay.permit import Permit

_REPEATABLE: Final = frozenset({b"GET", b"HEAD", b"OPTIONS"})
_BARE_INTERIM: Final = frozenset({100, 102})


class Exchange:
    """Relays one request; made by the front, which it tells what came of it."""

    __slots__ = (
        "answer",
        "answered",
        "began",
        "close_after",
        "download",
        "fields",
        "front",
        "heard",
        "interims",
        "partial",
        "permit",
        "request",
        "reused",
        "start",
        "task",
        "unsent",
        "upgrade",
        "upload",
        "uploaded",
        "upstream",
    )

    def __init__(
        self,
        front: Front,
        *,
        start: StartLine,
        fields: Fields,
        permit: Permit,
        upgrade: bool,
    ) -> None:
        self.front = front
        self.start = start
        self.fields = fields
        self.permit = permit
        self.upgrade = upgrade
        self.request: Body = request_body(fields)
        self.upstream: Upstream | None = None
        self.task: asyncio.Task[None] | None = None
        self.answer: Body | None = None
        self.upload: Upload | None = None
        self.download: Download | None = None
        """Each while the kernel moves that body's bytes."""
        self.partial = b""
        self.unsent = b""
        self.interims = 0
        self.uploaded = 0
        """Bytes of the request's body since somebody looked."""
        self.heard = False
        """Whether a byte came from the app."""
        self.answered = False
        """Whether the head of the final answer went out."""
        self.reused = False
        self.close_after = False
        self.began = front.path.parts.loop.time()

    # Towards the app

    def begin(self, first: bytes) -> None:
        """Send the request, on a pooled connection or a new one; *first* of its body is known."""
        path = self.front.path
        pooled = None
        if not self.upgrade:
            pooled = path.pool.take(
                sid=self.permit.passage.route.sid,
                user=self.permit.user,
                target=self.permit.target,
                safe=self._is_repeatable(),
            )
        if pooled is not None:
            path.meters.reused += 1
            self.reused = True
            self._attach(pooled, first)
        else:
            self._dial(first)

    def _is_repeatable(self) -> bool:
        return self.start.method in _REPEATABLE and isinstance(self.request, NoBody)

    def _dial(self, first: bytes) -> None:
        self.unsent = first
        path = self.front.path
        if not path.parts.world.dialling:
            self.front.refuse("controller_silent")
            return
        self.regulate()
        path.meters.dials += 1
        self.task = path.parts.errands.run(self._dialled(), failed=self.front.abort)

    async def _dialled(self) -> None:
        path, permit = self.front.path, self.permit
        sid, target = permit.passage.route.sid, permit.target
        upstream = Upstream(path.pool, sid=sid, user=permit.user, target=target)
        try:
            await path.parts.dialler.dial(target, lambda: upstream)
        except asyncio.CancelledError:
            upstream.close()  # it may have connected at this very moment
            raise
        except DialFailed as error:
            path.meters.upstream_failures[error.code] += 1
            self.task = None
            self.front.refuse(error.code)
            return
        self.task = None
        first, self.unsent = self.unsent, b""
        self._attach(upstream, first)

    def _attach(self, upstream: Upstream, first: bytes) -> None:
        if upstream.transport is None:  # lost between the dial's end and now
            self.front.refuse("app_unreachable")
            return
        self.upstream = upstream
        upstream.exchange = self
        upstream.passage = self.permit.passage
        start, permit = self.start, self.permit
        upstream.transport.write(
            b"".join((start.method, b" ", permit.prefix, start.target, permit.tail, first))
        )
        self.front.sent()
        if not self.request.done:
            self.regulate()
            self.upload = make_upload(self)
            if self.upload is not None:
                self.upload.begin()

    def from_client(self, data: bytes) -> bytes:
        """Send on what of *data* belongs to the request; return what is beyond it.

        Raises:
            FramingError: The request is malformed.
        """
        self.uploaded += len(data)
        piece = self.request.feed(data)
        while self.request.stopped:
            piece += self.request.feed(b"")
        if self.upstream is None:
            self.unsent += piece
            self.regulate()
        elif piece and self.upstream.transport is not None:
            self.upstream.transport.write(piece)
        if not self.request.done:
            return b""
        rest, self.request.rest = self.request.rest, b""
        self.front.request_ended()
        return rest

    def regulate(self) -> None:
        """Hold back or release the browser, as the app can take its body."""
        if self.request.done:
            return
        if self.upload is not None:
            if self.upstream is not None and self.upstream.writable:
                self.upload.emptied()
            return
        waits = self.upstream is None or not self.upstream.writable
        (pause_reading if waits else resume_reading)(self.front.transport)

    def is_app_reading(self) -> bool:
        """Say whether it is the browser that a request's body waits for, and not the app."""
        if self.upload is not None and self.upload.blocked:
            return False
        return self.upstream is not None and self.upstream.writable

    # Towards the browser

    def go_on(self) -> None:
        """The browser's transport takes more."""
        if self.download is not None:
            self.download.emptied()
        elif self.upstream is not None:
            resume_reading(self.upstream.transport)

    def from_app(self, data: bytes) -> None:
        """Take what the app sent."""
        self.heard = True
        try:
            if self.answer is None:
                seen = len(self.partial)
                self._head(self.partial + data if seen else data, seen)
            else:
                self._pass(self.answer.feed(data))
                while self.answer is not None and self.answer.stopped:
                    self._pass(self.answer.feed(b""))
        except (HeadRefused, FramingError):
            self._broken()

    def _pass(self, piece: bytes) -> None:
        if piece:
            self.front.write(piece)
        if self.answer is not None and self.answer.done:
            self.complete()

    def _head(self, data: bytes, seen: int) -> None:
        while self.answer is None:
            end = find_answer_end(data, seen)
            if not end:
                self.partial = data
                return
            self.partial, seen = b"", 0
            head = self._read(data[:end])
            data = data[end:]
            if head.status >= 200:
                self._final(head, data)
                return
            if head.status == 101:
                self._switch(head, data)
                return
            self._interim(head)

    def _read(self, raw: bytes) -> AnswerHead:
        upstream = self.upstream
        if upstream is None:
            raise HeadRefused(BAD)
        head = upstream.head
        if head is None or head.raw != raw:
            head = upstream.head = self.front.path.answers.read_head(raw)
        return head

    def _interim(self, head: AnswerHead) -> None:
        self.interims += 1
        fields = head.fields
        most = self.front.path.parts.limits.interim_answers
        if fields.chunked or fields.length > 0 or self.interims > most:
            raise HeadRefused(BAD)
        if self.start.minor == 0:
            return
        crossing = b"" if head.status in _BARE_INTERIM else fields.crossing
        self.front.write(b"".join((head.status_line, crossing, b"\r\n")))

    def _final(self, head: AnswerHead, beyond: bytes) -> None:
        body, framing = answer_body(head, self.start.method, self.start.minor)
        piece = body.feed(beyond) if beyond else b""
        while body.stopped:
            piece += body.feed(b"")
        if body.rest:
            raise HeadRefused(BAD)
        fields, front = head.fields, self.front
        if fields.close or head.minor == 0:
            self.close_after = True
        self.answer = body
        self.answered = True
        ends = not self.request.done or (not framing and not isinstance(body, NoBody))
        close = front.closes_after(ends)
        meters = front.path.meters
        meters.answers[head.status // 100] += 1
        meters.first_byte(front.path.parts.loop.time() - self.began)
        front.answer_begins()
        end = b"Connection: close\r\n\r\n" if close else b"\r\n"
        crossing = fields.crossing
        if is_root(self.start.target.partition(b"?")[0]):
            crossing += VARY_SERVICE_WORKER
        front.write(b"".join((head.status_line, crossing, framing, end, piece)))
        if body.done:
            self.complete()
        else:
            self.download = make_download(self)
            if self.download is not None:
                self.download.begin()

    def _switch(self, head: AnswerHead, beyond: bytes) -> None:
        upstream, front, fields = self.upstream, self.front, head.fields
        if (
            not self.upgrade
            or upstream is None
            or upstream.transport is None
            or not is_proper_switch(head, self.fields)
        ):
            raise HeadRefused(BAD)
        front.path.meters.answers[1] += 1
        self.answered = True
        app = upstream.transport
        upstream.exchange = None
        early = front.write_switch(
            b"HTTP/1.1 101 Switching Protocols\r\n%b%b\r\n"
            % (fields.crossing, switch_fields(fields))
        )
        browser = front.give_up()
        if browser is None:
            upstream.close()
            return
        upstream.spliced()
        Tunnel.splice(
            path=front.path,
            passage=self.permit.passage,
            browser=browser,
            app=app,
            from_browser=early,
            from_app=beyond,
        )
        if not front.writable:
            pause_reading(app)

    def complete(self) -> None:
        """The answer is whole: keep or close the app's connection, and tell the front."""
        self._stop_splicing()
        upstream, self.upstream = self.upstream, None
        whole = self.request.done
        if upstream is not None:
            upstream.exchange = None
            answer = self.answer
            if (
                whole
                and not self.close_after
                and not isinstance(answer, OpenBody)
                and answer is not None
                and not answer.rest
                and upstream.writable
                and upstream.transport is not None
                and not upstream.transport.is_closing()
            ):
                if not self.front.writable:
                    resume_reading(upstream.transport)
                self.front.path.pool.put(upstream)
            else:
                upstream.close()
        self.front.answered(whole=whole)

    # What goes wrong

    def app_ended(self) -> None:
        """The app shut its side down: that ends a body without a length."""
        if isinstance(self.answer, OpenBody):
            self.complete()

    def app_lost(self, exc: Exception | None) -> None:
        """The app's connection is closed."""
        self._stop_splicing()
        self.upstream = None
        if isinstance(self.answer, OpenBody) and exc is None:
            self.complete()
        elif self.reused and not self.heard and self._is_repeatable():
            self._again()
        else:
            self._broken()

    def _again(self) -> None:
        self.front.path.meters.retries += 1
        self.reused = False
        self.front.stale()
        self._dial(b"")

    def _broken(self) -> None:
        self.front.path.meters.upstream_failures[BAD] += 1
        self.front.fail(BAD)

    def abandon(self) -> None:
        """Let go of the app: nobody waits for its answer any more."""
        self._stop_splicing()
        if self.task is not None:
            self.task.cancel()
            self.task = None
        upstream, self.upstream = self.upstream, None
        if upstream is not None:
            upstream.close()

    def _stop_splicing(self) -> None:
        upload, self.upload = self.upload, None
        if upload is not None:
            upload.stop()
        download, self.download = self.download, None
        if download is not None:
            download.stop()
