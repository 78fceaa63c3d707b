"""The state machine of a downstream connection without transports: it records its actions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gateway.core.access.refusals import REFUSALS, Refusal, RefusalRenderer, write_response
from gateway.core.downstream.connection import Connection
from gateway.core.downstream.phases import NEXT, Event, Phase
from gateway.core.http.fields import FieldReader
from gateway.core.http.headers import UpstreamHead
from gateway.core.http.heads import StartLine
from gateway.core.http.request_reader import RequestHead, RequestReader
from gateway.core.http.response_heads import HttpDate, ResponseFields, ResponseHead, ResponseReader
from gateway.core.limits.values import Limits


class App:
    """An upstream connection; it records what it was sent."""

    def __init__(self, log: list[str]) -> None:
        self.head: ResponseHead | None = None
        self.writable = True
        self.reading = True
        self.got = b""
        self._log = log

    def write(self, data: bytes) -> None:
        self.got += data
        self._log.append(f"app gets {len(data)}")

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class Machine(Connection):
    """Records the actions of the state machine; the test runs deferred calls and responses.

    ``judge`` decides a request: None admits it, a code refuses it, "wait" leaves it undecided.
    """

    def __init__(self, judge: Callable[[StartLine], str | None] = lambda _: None) -> None:
        super().__init__(
            RequestReader(FieldReader(b"fumarole")),
            ResponseReader("'none'"),
            HttpDate(lambda: 0.0),
            Limits(),
        )
        self.judge = judge
        self.log: list[str] = []
        self.out = b""
        self.turns: list[Callable[[], None]] = []
        self.app: App | None = None
        self.over = False
        self.deadline = 0.0
        """In how many seconds, when it was set last; 0 for never."""
        self.worst = 0
        """The most that was kept of what the browser sent."""

    # What the world does

    def dialled(self) -> App:
        """Connect the upstream connection."""
        self.app = App(self.log)
        self.connected(self.app, reused=False)
        return self.app

    def turn(self) -> None:
        """Run the deferred calls of one turn."""
        turns, self.turns = self.turns, []
        for go_on in turns:
            go_on()

    # What the machine has done

    def decide(self, request: RequestHead) -> None:
        start = request.start
        self.log.append(f"decide {start.method.decode()} {start.target.decode()}")
        code = self.judge(start)
        if code is None:
            self.admitted(UpstreamHead(b"", b" HTTP/1.1\r\n", b"\r\n"))
        elif code != "wait":
            self.refuse(code)

    def write(self, data: bytes) -> None:
        assert not self.over
        self.out += data
        self.log.append(
            f"write {data.split(b' ', 2)[1].decode()}" if data[:5] == b"HTTP/" else "write"
        )

    def set_reading(self, reading: bool) -> None:
        self.log.append("read" if reading else "pause")

    def defer(self, go_on: Callable[[], None]) -> None:
        self.turns.append(go_on)

    def set_deadline(self, seconds: float) -> None:
        self.deadline = seconds  # which passes when it is told to

    def connect(self) -> None:
        self.log.append("connect")

    def release(self, *, reusable: bool) -> None:
        self.log.append("keep app" if reusable else "close app")
        self.upstream = None

    def abandon(self) -> None:
        if self.upstream is not None:
            self.log.append("close app")
        self.upstream = None

    def response_started(self, status: int) -> None:
        """Count nothing."""

    def splice_request(self) -> None:
        """Splice nothing."""

    def splice_response(self) -> None:
        """Splice nothing."""

    def start_tunnel(self, trailing: bytes) -> None:
        self.phase = NEXT[self.phase, Event.SWITCHED]
        self.upstream = None
        self.log.append("switch")

    def rate_limited(self, refusal: Refusal) -> Refusal:
        return refusal

    def refusal_bytes(
        self, refusal: Refusal, request: Any, *, close: bool, head_only: bool
    ) -> bytes:
        page = RefusalRenderer().render(refusal, b"")
        return write_response(refusal, page, close=close, head_only=head_only)

    def public_fields(self, fields: ResponseFields) -> bytes:
        return fields.end_to_end

    def upstream_timed_out(self) -> str:
        self.log.append("app timed out")
        return "app_timeout"

    def app_failure(self, code: str, reason: str = "") -> Refusal:
        return replace(REFUSALS[code], reason=reason)

    def _end(self, how: str) -> None:
        self.log.append(how)
        self.over = True

    def close(self) -> None:
        self._end("close")

    def linger(self) -> None:
        self._end("linger")

    def reset(self) -> None:
        self._end("reset")

    def reset_when_flushed(self) -> None:
        self._end("reset when flushed")

    def receive(self, data: bytes) -> None:
        super().receive(data)
        self.worst = max(self.worst, len(self.inbox) + len(self.early_body))

    def gone(self) -> None:
        """Close the connection."""
        if self.phase is not Phase.CLOSED:
            self.lost()
