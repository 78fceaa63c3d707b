"""One request and its answer, between a browser's connection and an app's.

Bodies go both ways at once: an app may answer before it has read the request, or while it does.
Whatever the app does wrong before the answer's head has gone out becomes a 502; after that, both
connections are reset, so that a broken answer never looks complete.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from gateway.core.app_heads import (
    BAD,
    answer_body,
    find_answer_end,
    is_proper_switch,
    read_status_line,
    switch_fields,
)
from gateway.core.framing import Body, ChunkedBody, FramingError, LengthBody, NoBody, OpenBody
from gateway.core.heads import HeadRefused
from gateway.relay.dial import DialFailed
from gateway.relay.flow import hold, release
from gateway.relay.tunnel import Tunnel
from gateway.relay.upstream import Upstream

if TYPE_CHECKING:
    from gateway.core.app_heads import AnswerFields
    from gateway.core.fields import Fields
    from gateway.core.heads import StartLine
    from gateway.core.passage import Passage
    from gateway.relay.front import Front
    from shared.routes import Target

_REPEATABLE: Final = frozenset({b"GET", b"HEAD", b"OPTIONS"})
_BARE_INTERIM: Final = frozenset({100, 102})


class Exchange:
    """Relays one request; made by the front, which it tells what came of it."""

    __slots__ = (
        "answer",
        "answered",
        "close_after",
        "fields",
        "front",
        "heard",
        "interims",
        "partial",
        "passage",
        "request",
        "reused",
        "start",
        "tail",
        "target",
        "task",
        "unsent",
        "upgrade",
        "upstream",
        "user",
    )

    def __init__(
        self,
        front: Front,
        *,
        start: StartLine,
        fields: Fields,
        passage: Passage,
        target: Target,
        user: str,
        tail: bytes,
        upgrade: bool,
    ) -> None:
        self.front = front
        self.start = start
        self.fields = fields
        self.passage = passage
        self.target = target
        self.user = user
        self.tail = tail
        self.upgrade = upgrade
        self.request: Body = request_body(fields)
        self.upstream: Upstream | None = None
        self.task: asyncio.Task[None] | None = None
        self.answer: Body | None = None
        self.partial = b""
        self.unsent = b""
        self.interims = 0
        self.heard = False
        """Whether a byte came from the app."""
        self.answered = False
        """Whether the head of the final answer went out."""
        self.reused = False
        self.close_after = False

    # Towards the app

    def begin(self, first: bytes) -> None:
        """Send the request, on a pooled connection or a new one; *first* of its body is known."""
        path = self.front.path
        pooled = None
        if not self.upgrade:
            pooled = path.pool.take(
                sid=self.passage.route.sid,
                user=self.user,
                target=self.target,
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
        self.task = path.parts.errands.run(self._dialled())

    async def _dialled(self) -> None:
        path, sid = self.front.path, self.passage.route.sid
        upstream = Upstream(path.pool, sid=sid, user=self.user, target=self.target)
        try:
            await path.parts.dialler.dial(self.target, lambda: upstream)
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
        base = self.target.base_path
        start = self.start
        upstream.transport.write(
            b"%b %b%b%b%b"
            % (
                start.method,
                b"" if base == "/" else base.rstrip("/").encode("ascii"),
                start.target,
                self.tail,
                first,
            )
        )
        self.front.sent()
        if not self.request.done:
            self.regulate()

    def from_client(self, data: bytes) -> bytes:
        """Send on what of *data* belongs to the request; return what is beyond it.

        Raises:
            FramingError: The request is malformed.
        """
        piece = self.request.feed(data)
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
        waits = self.upstream is None or not self.upstream.writable
        (hold if waits else release)(self.front.transport)

    # Towards the browser

    def from_app(self, data: bytes) -> None:
        """Take what the app sent."""
        self.heard = True
        try:
            if self.answer is None:
                seen = len(self.partial)
                self._head(self.partial + data if seen else data, seen)
            else:
                self._pass(self.answer.feed(data))
        except (HeadRefused, FramingError):
            self._broken()

    def _pass(self, piece: bytes) -> None:
        if piece:
            self.front.write(piece)
        if self.answer is not None and self.answer.done:
            self._complete()

    def _head(self, data: bytes, seen: int) -> None:
        while self.answer is None:
            end = find_answer_end(data, seen)
            if not end:
                self.partial = data
                return
            self.partial, seen = b"", 0
            line_end = data.find(b"\r\n")
            minor, status, reason = read_status_line(data[:line_end])
            fields = self._fields(data[line_end + 2 : end])
            data = data[end:]
            if status == 101:
                self._switch(fields, minor, data)
                return
            if status >= 200:
                self._final(fields, minor, status, reason, data)
                return
            self._interim(fields, status, reason)

    def _fields(self, section: bytes) -> AnswerFields:
        upstream = self.upstream
        if upstream is None:
            raise HeadRefused(BAD)
        if upstream.fields is None or section != upstream.section:
            upstream.fields = self.front.path.answers.read(section)
            upstream.section = section
        return upstream.fields

    def _interim(self, fields: AnswerFields, status: int, reason: bytes) -> None:
        self.interims += 1
        if (
            fields.chunked
            or fields.length > 0
            or self.interims > self.front.path.parts.limits.interim_answers
        ):
            raise HeadRefused(BAD)
        if self.start.minor == 0:
            return
        crossing = b"" if status in _BARE_INTERIM else fields.crossing
        self.front.write(b"HTTP/1.1 %d %b\r\n%b\r\n" % (status, reason, crossing))

    def _final(
        self, fields: AnswerFields, minor: int, status: int, reason: bytes, beyond: bytes
    ) -> None:
        body, framing = answer_body(
            fields,
            method=self.start.method,
            status=status,
            minor=minor,
            client_minor=self.start.minor,
        )
        piece = body.feed(beyond) if beyond else b""
        if body.rest:
            raise HeadRefused(BAD)
        if fields.close or minor == 0:
            self.close_after = True
        self.answer = body
        self.answered = True
        close = self.front.closes_after(
            not self.request.done or (not framing and not isinstance(body, NoBody))
        )
        front = self.front
        front.path.meters.answers[status // 100] += 1
        front.answer_begins()
        front.write(
            b"HTTP/1.1 %d %b\r\n%b%b%b%b"
            % (
                status,
                reason,
                fields.crossing,
                framing,
                b"Connection: close\r\n\r\n" if close else b"\r\n",
                piece,
            )
        )
        if body.done:
            self._complete()

    def _switch(self, fields: AnswerFields, minor: int, beyond: bytes) -> None:
        upstream, front = self.upstream, self.front
        if (
            not self.upgrade
            or upstream is None
            or upstream.transport is None
            or not is_proper_switch(fields, minor=minor, asked=self.fields)
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
            passage=self.passage,
            browser=browser,
            app=app,
            from_browser=early,
            from_app=beyond,
        )
        if not front.writable:
            hold(app)

    def _complete(self) -> None:
        """The answer is whole: keep or close the app's connection, and tell the front."""
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
                    release(upstream.transport)
                self.front.path.pool.put(upstream)
            else:
                upstream.close()
        self.front.answered(whole=whole)

    # What goes wrong

    def app_ended(self) -> None:
        """The app shut its side down: that ends a body without a length."""
        if isinstance(self.answer, OpenBody):
            self._complete()

    def app_lost(self, exc: Exception | None) -> None:
        """The app's connection is closed."""
        self.upstream = None
        if isinstance(self.answer, OpenBody) and exc is None:
            self._complete()
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
        if self.task is not None:
            self.task.cancel()
            self.task = None
        upstream, self.upstream = self.upstream, None
        if upstream is not None:
            upstream.close()


def request_body(fields: Fields) -> Body:
    """Return how the body of a request is read; one of length 0 is none."""
    if fields.chunked:
        return ChunkedBody()
    if fields.length > 0:
        return LengthBody(fields.length)
    return NoBody()
