"""The state machine of a downstream connection, as transcripts."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.core.access.refusals import REFUSALS, Refusal
from gateway.core.downstream.phases import ON_DATA, OnData, Phase
from gateway.core.http.heads import HeadRefused
from gateway.core.http.response_heads import ResponseReader
from tests.gateway.core.downstream.machine import Machine

GET = b"GET /%d HTTP/1.1\r\nHost: a.b\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a.b\r\nContent-Length: 10\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: a.b\r\nTransfer-Encoding: chunked\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def refused(_: object) -> str:
    return "no_credential"


def test_a_request_is_relayed_and_the_next_one_read_in_a_later_turn() -> None:
    m = Machine()
    m.receive(GET % 1 + GET % 2)
    m.dialled()
    m.response_received(OK)
    assert m.log == ["decide GET /1", "connect", "app gets 19", "write 200", "keep app"]
    m.turn()
    assert m.log[5:] == ["decide GET /2", "connect"]


def test_a_response_without_date_gets_one() -> None:
    of_then = b"Date: Thu, 01 Jan 1970 00:00:00 GMT"
    for own, dates in ((b"", [of_then]), (b"date: then\r\n", [b"date: then"])):
        m = Machine()
        m.receive(GET % 1)
        m.dialled()
        m.response_received(b"HTTP/1.1 200 OK\r\n%bContent-Length: 2\r\n\r\nok" % own)
        assert [line for line in m.out.split(b"\r\n") if line.lower()[:5] == b"date:"] == dates


@pytest.mark.parametrize(("size", "kept"), [(100, True), (60_000, False)])
def test_only_a_small_response_head_is_kept_with_its_connection(size: int, kept: bool) -> None:
    response = OK.replace(b"Content", b"X: %b\r\nContent" % (b"x" * size))
    m = Machine()
    m.receive(GET % 1)
    app = m.dialled()
    m.response_received(response)
    assert m.log[-1] == "keep app"
    assert (app.head is not None) is kept
    assert m.out.endswith(b"ok")


def test_an_idle_connection_has_released_the_head_of_its_last_request() -> None:
    for judge in (refused, lambda _: None):
        m = Machine(judge)
        m.receive(GET % 1)
        if judge is not refused:
            m.dialled()
            m.response_received(OK)
        assert m.phase is Phase.HEAD
        assert m.reader.request is None


REQUESTS = [
    GET % 1,
    GET % 1 + GET % 2,
    b"HEAD /a/b HTTP/1.1\r\nHost: a.b\r\n\r\n",
    POST + b"1234567890",
]
REQUESTS += [POST, CHUNKED, b"GET /a/b HTTP/1.0\r\nHost: a.b\r\n\r\n"]
REQUESTS += [b"GET /a/b HTTP/1.1\r\nHost: a.b\r\nConnection: close\r\n\r\n"]
LINES = [b"Connection: close\r\n", b"Date: then\r\n", b"ETag: 1\r\n", b"Content-Length: 3\r\n"]
LINES += [b"Transfer-Encoding: chunked\r\n", b"Content-Type: text/html\r\n"]


def relayed(
    request: bytes, response: bytes, head: bytes | None, refusal: Refusal | None, drains: bool
) -> tuple[object, ...]:
    """Return what the browser gets of *response*; *head* was the last one on the connection."""
    m = Machine()
    m.notice = refusal
    m.receive(request)
    app = m.dialled()
    app.head = None if head is None else m.responses.read_head(head)
    m.draining = drains
    m.response_received(response)
    return m.out, m.log, m.phase, m.over, m.close_after, m.reading, m.deadline, m.upstream is None


@settings(max_examples=500)
@example(
    request=GET % 1,
    version=1,
    status=200,
    lines=[b"Content-Type: text/html\r\n", b"Content-Length: 3\r\n"],
    body=b"abc",
    refusal=REFUSALS["access_ends_soon"],
    drains=False,
    another=False,
)
@given(
    request=st.sampled_from(REQUESTS),
    version=st.sampled_from([0, 1, 1]),
    status=st.sampled_from([200, 200, 204, 304, 404, 426, 103]),
    lines=st.lists(st.sampled_from(LINES), min_size=1, max_size=3, unique=True),
    body=st.sampled_from([b"", b"abc", b"abc", b"ab", b"abcd"]),
    refusal=st.sampled_from([None, None, REFUSALS["access_ends_soon"]]),
    drains=st.booleans(),
    another=st.booleans(),
)
def test_a_repeated_response_head_is_parsed_to_the_same_result(
    request: bytes,
    version: int,
    status: int,
    lines: list[bytes],
    body: bytes,
    refusal: Refusal | None,
    drains: bool,
    another: bool,
) -> None:
    head = b"HTTP/1.%d %d Said\r\n%b\r\n" % (version, status, b"".join(lines))
    try:
        ResponseReader("'none'").read_head(head)
    except HeadRefused:
        return
    before = head.replace(b"Said", b"Told") if another else head
    known = relayed(request, head + body, before, refusal, drains)
    assert known == relayed(request, head + body, None, refusal, drains)


def test_one_pipelined_refusal_is_written_per_turn_and_none_under_backpressure() -> None:
    m = Machine(refused)
    m.receive(GET % 1 * 5000)
    assert m.log.count("write 401") == 1
    m.turn()
    assert m.log.count("write 401") == 2
    m.set_write_full(True)
    for _ in range(10):
        m.turn()
    assert m.log.count("write 401") == 2
    assert not m.reading
    m.set_write_full(False)
    m.turn()
    assert m.log.count("write 401") == 3


@pytest.mark.parametrize("framing", [b"Content-Length: 9", b"Transfer-Encoding: chunked"])
def test_a_client_waiting_for_100_continue_gets_the_apps_timeout_once(framing: bytes) -> None:
    m = Machine()
    m.receive(b"POST / HTTP/1.1\r\nHost: a.b\r\nExpect: 100-Continue\r\n%b\r\n\r\n" % framing)
    m.dialled()
    assert m.deadline == m.limits.slow_body_seconds
    m.deadline_passed()
    assert m.deadline == m.limits.app_head_seconds
    m.deadline_passed()
    assert m.log[-2:] == ["write 408", "linger"]


@pytest.mark.parametrize("framing", [b"Content-Length: 9", b"Transfer-Encoding: chunked"])
@pytest.mark.parametrize("waits", [False, True])
def test_the_upload_timeout_starts_with_100_continue(framing: bytes, waits: bool) -> None:
    m = Machine()
    m.receive(b"POST / HTTP/1.1\r\nHost: a.b\r\nExpect: 100-continue\r\n%b\r\n\r\n" % framing)
    m.dialled()
    if waits:
        m.deadline_passed()
    m.deadline = 0.001
    m.response_received(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert m.deadline == m.limits.slow_body_seconds
    m.deadline = 0.001
    m.response_received(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert m.deadline == 0.001
    m.deadline_passed()
    assert m.log[-2:] == ["write 408", "linger"]


def test_a_103_does_not_permit_the_body_and_a_started_body_needs_no_100() -> None:
    for first, hint, status in ((b"", b"103 Early Hints", None), (b"x", b"100 Continue", 408)):
        m = Machine()
        m.receive(POST.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n") + first)
        m.dialled()
        m.deadline = 0.001
        m.response_received(b"HTTP/1.1 %b\r\n\r\n" % hint)
        assert m.deadline == 0.001
        m.deadline_passed()
        assert (f"write {status}" in m.log) == (status is not None)


def test_reading_pauses_above_the_high_watermark_and_resumes_below_the_low() -> None:
    m = Machine(refused)
    m.receive(GET % 1)
    for _ in range(40):
        if m.reading:
            m.receive(GET % 1 * 500)
    assert not m.reading
    assert m.worst < 128 << 10
    while m.turns:
        m.turn()
    assert m.log[-1] != "pause"
    assert m.log.count("pause") == m.log.count("read")
    assert not m.inbox


def test_a_deadline_does_not_close_a_connection_with_unread_input() -> None:
    m = Machine(refused)
    m.receive(GET % 1 + b"1\r\n\r\n")
    m.deadline_passed()
    m.turn()
    assert m.log == ["decide GET /1", "write 401", "write 400", "linger"]


def test_a_fin_frees_the_app_and_drops_what_was_pipelined() -> None:
    m = Machine()
    m.receive(GET % 1 + GET % 2)
    m.dialled()
    m.downstream_ended()
    assert m.log[-2:] == ["close app", "close"]
    assert not m.inbox
    m.gone()
    assert m.phase is Phase.CLOSED


def test_a_fin_within_a_response_resets_it() -> None:
    m = Machine()
    m.receive(GET % 1)
    m.dialled()
    m.response_received(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
    m.downstream_ended()
    assert m.log[-2:] == ["close app", "reset"]


def test_a_fin_after_a_response_flushes_it() -> None:
    m = Machine(refused)
    m.receive(GET % 1)
    m.downstream_ended()
    assert m.log[-1] == "close"
    n = Machine(refused)
    n.receive(GET % 1 * 3)
    n.hung_up()
    assert n.log[-1] == "linger"


def test_a_client_that_leaves_during_decision_or_dial_is_released() -> None:
    for judge in (lambda _: "wait", lambda _: None):
        m = Machine(judge)
        m.receive(GET % 1)
        m.downstream_ended()
        assert m.log[-1] == "close"
        assert ON_DATA[m.phase] is OnData.DISCARD


def test_a_chunked_upload_is_spread_over_turns_and_arrives_whole() -> None:
    m = Machine()
    m.receive(CHUNKED)
    app = m.dialled()
    body = b"1\r\nx\r\n" * 5000 + b"0\r\n\r\n"
    m.receive(body + GET % 2)
    assert m.turns
    assert not m.reading
    turns = 0
    while m.turns:
        m.turn()
        turns += 1
    assert turns > 5
    assert app.got.endswith(body)
    m.response_received(OK)
    m.turn()
    assert "decide GET /2" in m.log


def test_a_chunked_response_is_spread_over_turns_while_upstream_reading_pauses() -> None:
    m = Machine()
    m.receive(GET % 1)
    app = m.dialled()
    body = b"1\r\nx\r\n" * 5000 + b"0\r\n\r\n"
    m.response_received(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    m.response_received(body)
    assert not app.reading
    while m.turns:
        m.turn()
    assert m.out.endswith(body)
    assert m.log[-1] == "keep app"


TINY_CHUNKS = b"1\r\nx\r\n" * 5000


def response_cut_by_its_app(body: bytes) -> Machine:
    """Return a machine whose app sent *body* at once and closed before it was processed."""
    m = Machine()
    m.receive(GET % 1)
    m.dialled()
    m.response_received(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body)
    m.upstream_lost(ConnectionResetError())
    while m.turns:
        m.turn()
    return m


def test_a_complete_chunked_response_is_delivered_after_its_app_left() -> None:
    m = response_cut_by_its_app(TINY_CHUNKS + b"0\r\n\r\n")
    assert m.out.endswith(TINY_CHUNKS + b"0\r\n\r\n")
    assert m.phase is Phase.HEAD
    assert "reset" not in m.log


def test_a_truncated_chunked_response_is_delivered_and_then_reset() -> None:
    m = response_cut_by_its_app(TINY_CHUNKS)
    assert m.out.endswith(TINY_CHUNKS)
    assert m.log[-1] == "reset when flushed"


def test_no_response_byte_is_relayed_after_the_client_left() -> None:
    m = Machine()
    m.receive(GET % 1)
    m.dialled()
    m.response_received(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + TINY_CHUNKS)
    m.upstream_lost(None)
    written = len(m.out)
    m.downstream_ended()
    while m.turns:
        m.turn()
    assert len(m.out) == written
    assert m.log[-1] == "reset"
