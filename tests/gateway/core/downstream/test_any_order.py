"""Tests any bytes in any split and events in any order: no exception, bounds, one response each.

Hypothesis chooses the next event of a downstream connection without transports. As with real
transports, a pause can come from within a write, and nothing is delivered while reading is paused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from gateway.core.access.refusals import REFUSALS, Refusal
from gateway.core.downstream.phases import Phase
from gateway.core.http.headers import UpstreamHead
from gateway.core.http.request_reader import RequestHead
from tests.gateway.core.downstream.machine import App, Machine

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
SPLITS = (1, 2, 3, 17, 90, 1000, *[READ_BYTES] * 6)
# Without it, most connections would end before a request reaches the app.
RARELY = st.sampled_from([False] * 24 + [True])
UNANSWERED = (
    Phase.DECIDING,
    Phase.CONNECTING,
    Phase.UPLOADING,
    Phase.WAITING,
)
WITH_APP = (Phase.UPLOADING, Phase.WAITING, Phase.EARLY_RESPONSE, Phase.RESPONDING)
ANSWERED = (Phase.HEAD, Phase.EARLY_RESPONSE, Phase.RESPONDING)
_STATUS = re.compile(rb"HTTP/1\.1 ([1-9][0-9]{2})[^\r\n]*")


class RecordedApp(App):
    """An upstream connection whose write buffer may become full within a write."""

    def __init__(self, browser: Transcript) -> None:
        super().__init__(browser.log)
        self.fills = False
        self._browser = browser

    def write(self, data: bytes) -> None:
        super().write(data)
        if self.fills:
            self.fills, self.writable = False, False
            self._browser.sync_reading()


class Transcript(Machine):
    """A connection whose decisions and dials are left to the test; it counts its responses."""

    def __init__(self) -> None:
        super().__init__()
        self.methods: list[bytes] = []
        self.answers = 0
        self.connecting = False
        self.can_read = True
        self.fills = False
        self.deadline = 1.0  # every new connection has a deadline

    def decide(self, request: RequestHead) -> None:
        self.methods.append(request.start.method)

    def set_reading(self, reading: bool) -> None:
        self.can_read = reading

    def connect(self) -> None:
        self.connecting = True

    def reached(self, *, reused: bool, fills: bool) -> None:
        """Connect the upstream connection."""
        self.connecting = False
        self.app = app = RecordedApp(self)
        app.fills = fills
        self.connected(app, reused=reused)

    def abandon(self) -> None:
        super().abandon()
        self.connecting = False
        self.app = None

    def release(self, *, reusable: bool) -> None:
        super().release(reusable=reusable)
        self.app = None

    def write(self, data: bytes) -> None:
        super().write(data)
        if self.fills:
            self.fills = False
            self.set_write_full(True)

    def response_started(self, status: int) -> None:
        self.answers += 1

    def refusal_bytes(
        self, refusal: Refusal, request_head: Any, *, close: bool, head_only: bool
    ) -> bytes:
        self.answers += 1
        ends = b"Connection: close\r\n" if close else b""
        return b"HTTP/1.1 %d Refused\r\nContent-Length: 0\r\n%b\r\n" % (refusal.status, ends)

    def start_tunnel(self, trailing: bytes) -> None:
        super().start_tunnel(trailing)
        self.app = None
        self.inbox = b""
        self.over = True


class AnyOrder(RuleBasedStateMachine):
    """A browser, an app, a clock and an operator; :class:`Transcript` is between them."""

    def __init__(self) -> None:
        super().__init__()
        self.one = Transcript()
        self.wire = self.app_wire = b""

    @property
    def open(self) -> bool:
        """Whether the transport still delivers events to the machine."""
        return not self.one.over and self.one.phase is not Phase.CLOSED

    # Whole steps, without which few requests would reach the app

    @initialize(data=st.sampled_from(FROM_BROWSER), reused=st.booleans())
    def a_request_has_come(self, data: bytes, reused: bool) -> None:
        self._send(data, reused=reused)

    @precondition(lambda self: self.open and self.one.can_read)
    @rule(data=st.sampled_from(FROM_BROWSER), reused=st.booleans())
    def a_whole_request_comes(self, data: bytes, reused: bool) -> None:
        self._send(data, reused=reused)

    def _send(self, data: bytes, *, reused: bool) -> None:
        if not self.wire:
            self.wire = data[READ_BYTES:]
            self.one.receive(data[:READ_BYTES])
        if self.open and self.one.phase is Phase.DECIDING:
            self.it_may_pass()
        if self.open and self.one.connecting:
            self.the_app_is_reached(reused=reused, fills=False)

    @precondition(lambda self: self.open and self.one.app and self.one.app.reading)
    @rule(data=st.sampled_from(FROM_APP))
    def a_whole_response_comes(self, data: bytes) -> None:
        if not self.app_wire:
            self.app_wire = data[READ_BYTES:]
            self.one.response_received(data[:READ_BYTES])

    # Events of the browser

    @rule(data=st.sampled_from(FROM_BROWSER) | st.binary(max_size=64))
    def browser_says(self, data: bytes) -> None:
        if len(self.wire) < 1 << 20:
            self.wire += data

    @precondition(lambda self: self.open and self.wire and self.one.can_read)
    @rule(size=st.sampled_from(SPLITS))
    def bytes_arrive(self, size: int) -> None:
        data, self.wire = self.wire[:size], self.wire[size:]
        self.one.receive(data)

    @precondition(lambda self: self.open)
    @rule(now=RARELY)
    def browser_leaves(self, now: bool) -> None:
        if not now:
            return
        self.one.downstream_ended() if self.one.can_read else self.one.hung_up()
        assert self.one.upstream is None

    @precondition(lambda self: self.one.phase is not Phase.CLOSED)
    @rule(now=RARELY)
    def connection_is_lost(self, now: bool) -> None:
        if not now:
            return
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
    @rule(now=RARELY)
    def its_right_ends(self, now: bool) -> None:
        if not now:
            return
        self.one.access_ended("grant_ended")

    @precondition(lambda self: self.open)
    @rule(now=RARELY)
    def the_gateway_drains(self, now: bool) -> None:
        if not now:
            return
        self.one.draining = True
        self.one.drain()

    # Events of the app

    @precondition(lambda self: self.open and self.one.connecting)
    @rule(reused=st.booleans(), fills=st.booleans())
    def the_app_is_reached(self, reused: bool, fills: bool) -> None:
        self.app_wire = b""
        self.one.reached(reused=reused, fills=fills)

    @precondition(lambda self: self.open and self.one.app)
    @rule(data=st.sampled_from(FROM_APP) | st.binary(max_size=64))
    def the_app_says(self, data: bytes) -> None:
        self.app_wire += data

    @precondition(lambda self: self.open and self.app_wire and self.one.app)
    @rule(size=st.sampled_from(SPLITS))
    def the_apps_bytes_arrive(self, size: int) -> None:
        assert self.one.app is not None
        if self.one.app.reading:
            data, self.app_wire = self.app_wire[:size], self.app_wire[size:]
            self.one.response_received(data)

    @precondition(lambda self: self.open and self.one.app)
    @rule(now=RARELY)
    def the_app_ends(self, now: bool) -> None:
        if not now:
            return
        app = self.one.app
        self.one.upstream_ended()
        if self.one.app is app:
            self.one.app = None
            self.one.upstream_lost(None)

    @precondition(lambda self: self.open and self.one.app)
    @rule(now=RARELY)
    def the_app_resets(self, now: bool) -> None:
        if not now:
            return
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
    @rule(now=RARELY)
    def a_deadline_passes(self, now: bool) -> None:
        if not now:
            return
        self.one.deadline = 0.0
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
    def the_app_is_kept_only_for_a_request(self) -> None:
        assert (self.one.upstream is not None) <= (self.one.phase in WITH_APP)

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
        list(responses_in(self.one.out, self.one.methods))


def responses_in(data: bytes, asked: Sequence[bytes]) -> Iterator[int]:
    """Return the statuses in *data*, which must be well framed up to the point of the cut."""
    methods = iter(asked)
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
