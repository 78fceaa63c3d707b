"""Tests any bytes in any split and events in any order: no exception, bounds, one response each.

The tests drive the state machine of a browser's connection
(:mod:`gateway.core.downstream.connection`) alone. A transcript records its actions, and Hypothesis
chooses the next event. As with real transports, a pause can come from within a write, and nothing
is delivered while reading is paused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from gateway.core.access.refusals import REFUSALS, Refusal
from gateway.core.downstream.connection import Connection
from gateway.core.downstream.phases import NEXT, Event, Phase
from gateway.core.http.fields import FieldReader, Fields
from gateway.core.http.headers import UpstreamHead
from gateway.core.http.heads import StartLine
from gateway.core.http.oversize import OversizedHead
from gateway.core.http.request_reader import RequestReader
from gateway.core.http.response_heads import HttpDate, ResponseFields, ResponseHead, ResponseReader
from gateway.core.limits.values import Limits

READ_BYTES = 256_000
# A head may have 64 KiB, and its cookies 256 KiB more; the last read comes on top.
HEAD_BYTES = (64 + 256 << 10) + READ_BYTES
HOST = "Host: h\r\n"
KEY = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAECAwQFBgcICQoLDA0ODw==\r\n"
ACCEPT = "Sec-WebSocket-Accept: HSmrc0sMlYUkAGmm5OPpG2HaGWk=\r\n"


def request(start: str, *fields: str, body: str = "") -> bytes:
    """Return a request."""
    lines = "".join(f"{field}\r\n" for field in fields)
    return f"{start} HTTP/1.1\r\n{HOST}{lines}\r\n{body}".encode()


CHUNKED = "Transfer-Encoding: chunked"
FROM_BROWSER = (
    request("GET /"),
    request("HEAD /"),
    request("GET /", "Connection: close"),
    b"GET / HTTP/1.0\r\nHost: h\r\n\r\n",
    request("POST /", "Content-Length: 5", body="hello"),
    request("POST /", "Content-Length: 300000", body="h" * 300_000),
    request("PUT /", "Content-Length: 5", "Expect: 100-continue", body="hello"),
    request("PUT /", CHUNKED, body="5\r\nhello\r\n0\r\n\r\n"),
    request("PUT /", CHUNKED, body="1\r\nx\r\n" * 3000 + "0\r\n\r\n"),
    request("PUT /", CHUNKED, body="5\r\nhello\r\n0\r\nTrailer: x\r\n\r\n"),
    request("PUT /", CHUNKED, body="nothing"),
    b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n%b\r\n"
    % KEY.encode(),
    request("GET /") * 40,
    b"\r\n",
    b"GET / HTTP/1.1\nHost: h\n\n",
    b"\0\xff",
    b"GET / HTTP/1.1\r\nHost: h\r\nCookie: " + b"c" * 400_000,
)
FROM_APP = (
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n" + b"x" * 300_000,
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n\r\nuntil the end",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 3000 + b"0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 70,
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n%b\r\n"
    % ACCEPT.encode(),
    b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno",
    b"nothing that is HTTP\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000,
)
CODES = sorted(code for code, refusal in REFUSALS.items() if refusal.status != 101)
SPLITS = (1, 2, 3, 17, 90, 1000, READ_BYTES)
UNANSWERED = (
    Phase.DECIDING,
    Phase.CONNECTING,
    Phase.UPLOADING,
    Phase.WAITING,
)
ANSWERED = (Phase.HEAD, Phase.EARLY_RESPONSE, Phase.RESPONDING)
_STATUS = re.compile(rb"HTTP/1\.1 ([1-9][0-9]{2})[^\r\n]*")


class App:
    """The app's connection, as the machine sees it."""

    def __init__(self, browser: Transcript) -> None:
        self.head: ResponseHead | None = None
        self.writable = True
        self.reading = True
        self.fills = False
        self.wire = b""
        self._browser = browser

    def write(self, data: bytes) -> None:
        if self.fills:
            self.fills, self.writable = False, False
            self._browser.sync_reading()

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class Transcript(Connection):
    """A connection that records the machine's actions."""

    def __init__(self) -> None:
        super().__init__(
            RequestReader(FieldReader(b"fumarole")),
            ResponseReader("frame-ancestors 'self'"),
            HttpDate(lambda: 0.0),
            Limits(),
        )
        self.out = bytearray()
        self.methods: list[bytes] = []
        self.answers = 0
        self.app: App | None = None
        self.connecting = False
        self.can_read = True
        self.fills = False
        self.closing = ""
        self.deadline = True  # every new connection has a deadline
        self.turns: list[Callable[[], None]] = []

    # The machine's actions

    def decide(self, start: StartLine, fields: Fields) -> None:
        self.methods.append(start.method)

    def set_reading(self, reading: bool) -> None:
        self.can_read = reading

    def abandon(self) -> None:
        self.connecting = False
        self.app = self.upstream = None

    def rate_limited(self, refusal: Refusal) -> Refusal:
        return refusal

    def refusal_bytes(
        self,
        refusal: Refusal,
        request_head: tuple[StartLine, Fields] | None,
        *,
        close: bool,
        head_only: bool,
    ) -> bytes:
        self.answers += 1
        ends = b"Connection: close\r\n" if close else b""
        return b"HTTP/1.1 %d Refused\r\nContent-Length: 0\r\n%b\r\n" % (refusal.status, ends)

    def public_fields(self, fields: ResponseFields) -> bytes:
        return fields.end_to_end

    def oversized_bytes(self, refusal: Refusal, head: OversizedHead, *, head_only: bool) -> bytes:
        return self.refusal_bytes(refusal, None, close=True, head_only=head_only)

    def upstream_timed_out(self) -> str:
        return "app_timeout"

    def app_failure(self, code: str, reason: str = "") -> Refusal:
        return replace(REFUSALS[code], reason=reason)

    def close(self) -> None:
        self.closing = self.closing or "close"

    def linger(self) -> None:
        self.closing = self.closing or "linger"

    def reset(self) -> None:
        self.closing = "reset"

    def reset_when_flushed(self) -> None:
        self.closing = self.closing or "reset"

    def write(self, data: bytes) -> None:
        assert not self.closing, f"written after {self.closing}"
        self.out += data
        if self.fills:
            self.fills = False
            self.set_write_full(True)

    def defer(self, go_on: Callable[[], None]) -> None:
        self.turns.append(go_on)

    def set_deadline(self, seconds: float) -> None:
        self.deadline = bool(seconds)

    def connect(self) -> None:
        self.connecting = True

    def release(self, *, reusable: bool) -> None:
        self.app = self.upstream = None

    def response_started(self, status: int) -> None:
        self.answers += 1

    def splice_request(self) -> None:
        pass

    def splice_response(self) -> None:
        pass

    def stop_splicing(self) -> None:
        pass

    def is_splicing_response(self) -> bool:
        return False

    def start_tunnel(self, trailing: bytes) -> None:
        self.app = self.upstream = None
        self.inbox = b""
        self.phase = NEXT[self.phase, Event.SWITCHED]
        self.closing = "switched"


class AnyOrder(RuleBasedStateMachine):
    """A browser, an app, a clock and an operator; :class:`Transcript` is between them."""

    def __init__(self) -> None:
        super().__init__()
        self.one = Transcript()
        self.wire = b""

    @property
    def open(self) -> bool:
        """Whether the transport still delivers events to the machine."""
        return not self.one.closing and self.one.phase is not Phase.CLOSED

    # Events of the browser

    @rule(data=st.sampled_from(FROM_BROWSER))
    def browser_says(self, data: bytes) -> None:
        if len(self.wire) < 1 << 20:
            self.wire += data

    @precondition(lambda self: self.open and self.wire and self.one.can_read)
    @rule(size=st.sampled_from(SPLITS))
    def bytes_arrive(self, size: int) -> None:
        data, self.wire = self.wire[:size], self.wire[size:]
        self.one.receive(data)

    @precondition(lambda self: self.open)
    @rule()
    def browser_leaves(self) -> None:
        self.one.downstream_ended() if self.one.can_read else self.one.hung_up()
        assert self.one.upstream is None

    @precondition(lambda self: self.one.phase is not Phase.CLOSED)
    @rule()
    def connection_is_lost(self) -> None:
        self.one.lost()

    @rule(full=st.booleans())
    def the_next_write_fills(self, full: bool) -> None:
        self.one.fills = full

    @precondition(lambda self: self.open and self.one.write_full)
    @rule()
    def the_browser_has_read(self) -> None:
        self.one.set_write_full(False)

    # Events of the access decision

    @precondition(lambda self: self.open and self.one.phase is Phase.DECIDING)
    @rule()
    def it_may_pass(self) -> None:
        self.one.admitted(UpstreamHead(b"", b" HTTP/1.1\r\n", b"\r\n"))

    @precondition(lambda self: self.open and self.one.phase in UNANSWERED)
    @rule(code=st.sampled_from(CODES))
    def it_is_refused(self, code: str) -> None:
        self.one.refuse(code)

    @precondition(lambda self: self.open)
    @rule()
    def its_right_ends(self) -> None:
        self.one.access_ended("grant_ended")

    @precondition(lambda self: self.open)
    @rule()
    def the_gateway_drains(self) -> None:
        self.one.draining = True
        self.one.drain()

    # Events of the app

    @precondition(lambda self: self.open and self.one.connecting)
    @rule(reused=st.booleans(), fills=st.booleans())
    def the_app_is_reached(self, reused: bool, fills: bool) -> None:
        self.one.connecting = False
        app = self.one.app = App(self.one)
        app.fills = fills
        self.one.connected(app, reused=reused)

    @precondition(lambda self: self.open and self.one.app)
    @rule(data=st.sampled_from(FROM_APP))
    def the_app_says(self, data: bytes) -> None:
        assert self.one.app is not None
        self.one.app.wire += data

    @precondition(lambda self: self.open and self.one.app and self.one.app.reading)
    @rule(size=st.sampled_from(SPLITS))
    def the_apps_bytes_arrive(self, size: int) -> None:
        app = self.one.app
        assert app is not None
        if app.wire:
            data, app.wire = app.wire[:size], app.wire[size:]
            self.one.response_received(data)

    @precondition(lambda self: self.open and self.one.app)
    @rule()
    def the_app_ends(self) -> None:
        app = self.one.app
        self.one.upstream_ended()
        if self.one.app is app:
            self.one.app = None
            self.one.upstream_lost(None)

    @precondition(lambda self: self.open and self.one.app)
    @rule()
    def the_app_resets(self) -> None:
        self.one.app = None
        self.one.upstream_lost(ConnectionResetError())

    @precondition(lambda self: self.open and self.one.app and not self.one.app.writable)
    @rule(stalls=st.booleans())
    def the_app_takes_more_or_stalls(self, stalls: bool) -> None:
        assert self.one.app is not None
        if stalls:
            self.one.upstream_stalled()
        else:
            self.one.app.writable = True
            self.one.sync_reading()

    # Events of the loop

    @precondition(lambda self: self.one.turns)
    @rule()
    def a_turn_comes(self) -> None:
        self.one.turns.pop(0)()

    @precondition(lambda self: self.open and self.one.deadline)
    @rule()
    def a_deadline_passes(self) -> None:
        self.one.deadline = False
        self.one.deadline_passed()

    # Invariants

    @invariant()
    def what_waits_is_bounded(self) -> None:
        one = self.one
        assert len(one.inbox) <= one.limits.early_bytes + READ_BYTES
        assert len(one.reader.partial) <= HEAD_BYTES
        assert len(one.partial) <= (64 << 10) + READ_BYTES
        assert len(one.turns) <= 4

    @invariant()
    def each_request_is_answered_once(self) -> None:
        one = self.one
        request_head, answered = len(one.methods), one.answers
        if not self.open:
            assert answered <= request_head + 1
        elif one.phase in UNANSWERED:
            assert answered == request_head - 1
        elif one.phase in ANSWERED:
            assert answered == request_head

    @invariant()
    def nobody_waits_for_nothing(self) -> None:
        """Every open connection has a deadline, waits for a peer, or has a turn to come."""
        one = self.one
        if self.open and one.phase in (Phase.HEAD, Phase.UPLOADING, Phase.WAITING):
            assert one.deadline or one.turns or one.fills or one.write_full, one.phase
        if self.open and one.phase is Phase.HEAD and not one.write_full and not one.turns:
            assert one.can_read, "nobody reads the next request"

    @invariant()
    def what_has_ended_holds_nothing(self) -> None:
        if self.one.phase is Phase.CLOSED:
            assert self.one.upstream is None
            assert self.one.inbox == b""

    def teardown(self) -> None:
        list(responses_in(bytes(self.one.out), self.one))


def responses_in(data: bytes, one: Transcript) -> Iterator[int]:
    """Return the statuses in *data*, which must be well framed up to the point of the cut."""
    methods = iter(one.methods)
    while data:
        head, mark, data = data.partition(b"\r\n\r\n")
        assert mark, head[:100]
        start, *lines = head.split(b"\r\n")
        match = _STATUS.fullmatch(start)
        assert match is not None, start[:100]
        status = int(match[1])
        yield status
        if status == 101:
            return
        if status < 200:
            continue
        method = next(methods, b"GET")
        data = _after_body(data, lines, bodiless=method == b"HEAD" or status in (204, 304))


def _after_body(data: bytes, lines: list[bytes], *, bodiless: bool) -> bytes:
    """Return the bytes after a body; none if the body was cut, or ends with the connection."""
    fields = dict(line.lower().split(b": ", 1) for line in lines)
    if bodiless:
        return data
    if b"transfer-encoding" in fields:
        return _after_chunks(data)
    if b"content-length" in fields:
        return data[int(fields[b"content-length"]) :]
    return b""


def _after_chunks(data: bytes) -> bytes:
    while data:
        size, mark, data = data.partition(b"\r\n")
        if not mark:
            return b""
        count = int(size, 16)
        if data[count : count + 2] not in (b"\r\n", b"\r", b""):
            raise AssertionError(f"no chunk's end: {data[count : count + 10]!r}")
        data = data[count + 2 :]
        if not count:
            return data
    return b""


def run(**more: Any) -> None:
    """Run the machine."""
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    run_state_machine_as_test(AnyOrder, settings=settings(suppress_health_check=slow, **more))


def test_any_order_of_bytes_and_events_is_handled() -> None:
    run(max_examples=60, stateful_step_count=50)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_any_order_of_bytes_and_events_is_handled_for_long() -> None:
    run(max_examples=4000, stateful_step_count=120)
