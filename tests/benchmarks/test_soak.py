"""Tests that a soak detects faults, reports how its series rise, and keeps its results."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from benchmarks.requests import Visitor
from benchmarks.soak.frames import BINARY, CLOSE, client_frame, server_frame, take_frames
from benchmarks.soak.page import PROSE, draw, make_page, slopes
from benchmarks.soak.plan import Plan, TooFewDescriptors, raise_descriptors
from benchmarks.soak.record import Killed, Record
from benchmarks.soak.sessions import Change, Session, Sessions
from benchmarks.soak.slopes import slope_of, student_quantile
from benchmarks.soak.sockets import Crowd, Socket

OPENED = b"HTTP/1.1 101 Switching Protocols\r\n\r\n"
PLAN = Plan(seconds=72, sockets=40, workers=2)


def a_record() -> Record:
    return Record(
        machine={"date": "today", "commit": "abc", "processor": "p", "cores": 2, "kernel": "k"},
        hours=0.1,
        sockets=40,
        workers=2,
        sessions=10,
        sample_seconds=1.0,
    )


class Wire(asyncio.Transport):
    """The peer of a socket, which records the written bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


@pytest.fixture
def session() -> Session:
    sessions = Sessions([1, 2, 3], 10)
    route = sessions.routes()[1]
    return Session(0, "ada-0", 1, route, Visitor(route.hosts[0], "fumarole=x"))


@pytest.fixture
def opened(session: Session) -> Socket:
    sessions = Sessions([1, 2, 3], 10)
    sessions.all.append(session)
    crowd = Crowd(PLAN, 1, sessions, a_record())
    socket = Socket(crowd, 0, session)
    socket.connection_made(Wire())
    cast(Wire, socket.transport).written.clear()
    socket.data_received(OPENED)
    return socket


def wrong_of(socket: Socket) -> list[str]:
    return list(socket.crowd.record.wrong)


def echoed(socket: Socket, answer: bytes) -> None:
    socket.send()
    (frame,) = take_frames(cast(Wire, socket.transport).written)
    socket.data_received(server_frame(BINARY, answer + b" " + frame.payload))


def test_a_message_of_the_expected_app_is_counted(opened: Socket, session: Session) -> None:
    echoed(opened, session.answer)
    assert opened.crowd.record.counts["messages"] == 1
    assert wrong_of(opened) == []


def test_a_message_of_another_app_is_wrong(opened: Socket, session: Session) -> None:
    echoed(opened, session.answer.replace(b"app-1", b"app-2"))
    assert wrong_of(opened) == ["wrong message"]


def test_a_message_after_a_revocation_has_settled_is_wrong(
    opened: Socket, session: Session
) -> None:
    session.change = Change("revoked", at=0.0)
    echoed(opened, session.answer)
    assert wrong_of(opened) == []
    session.change.published = 1.0
    echoed(opened, session.answer)
    assert wrong_of(opened) == ["message after its session was revoked"]


def test_an_unexpected_close_is_wrong_unless_a_worker_was_killed(opened: Socket) -> None:
    opened.connection_lost(None)
    assert wrong_of(opened) == ["ended without a Close"]
    opened.crowd.record.wrong.clear()
    opened.crowd.killed_at = opened.started
    opened.crowd.record.killed.append(Killed(at_seconds=0, worker=1, sockets=1))
    opened.connection_lost(None)
    assert wrong_of(opened) == []
    assert opened.crowd.record.killed[0].lost == 1


@pytest.mark.parametrize(
    ("change", "code", "wrong"),
    [
        (None, 1011, ["closed with 1011 for no reason"]),
        (Change("revoked", at=0.0), 4401, []),
        (Change("revoked", at=0.0), 1012, ["closed with 1012 when revoked"]),
        (Change("removed", at=0.0), 4410, []),
        (Change("moved", at=0.0), 1012, []),
    ],
)
def test_a_close_has_the_code_of_its_cause(
    opened: Socket, session: Session, change: Change | None, code: int, wrong: list[str]
) -> None:
    session.change = change
    opened.data_received(server_frame(CLOSE, code.to_bytes(2, "big")))
    opened.connection_lost(None)
    assert wrong_of(opened) == wrong


def test_a_refusal_of_an_authorized_user_is_wrong(session: Session) -> None:
    sessions = Sessions([1], 10)
    sessions.all.append(session)
    socket = Socket(Crowd(PLAN, 1, sessions, a_record()), 0, session)
    socket.connection_made(Wire())
    socket.data_received(b"HTTP/1.1 503 Service Unavailable\r\n\r\n")
    assert wrong_of(socket) == ["opening answered with 503"]


def test_a_written_frame_is_read_back() -> None:
    buffer = bytearray(client_frame(BINARY, b"0123456789abcdef") + client_frame(CLOSE, b"")[:3])
    assert [frame.payload for frame in take_frames(buffer)] == [b"0123456789abcdef"]
    assert len(buffer) == 3


def test_too_few_descriptors_are_reported_before_the_start() -> None:
    with pytest.raises(TooFewDescriptors, match="ulimit -Hn"):
        raise_descriptors(replace(PLAN, sockets=10**9))


# Slopes


def test_a_straight_line_has_its_slope() -> None:
    slope = slope_of(list(range(0, 7200, 10)), [5 + at / 360 for at in range(720)])
    assert slope is not None
    assert slope.per_hour == pytest.approx(1.0)
    assert slope.grows


def test_an_oscillating_series_has_no_slope() -> None:
    slope = slope_of(list(range(0, 7200, 10)), [100 + at * 7919 % 13 for at in range(720)])
    assert slope is not None
    assert not slope.grows
    assert slope.low < 0 < slope.high


def test_the_first_tenth_and_missing_values_are_skipped() -> None:
    values = [1000.0] * 72 + [float("nan"), *([1.0] * 647)]
    slope = slope_of(list(range(0, 7200, 10)), values)
    assert slope is not None
    assert (slope.first, slope.per_hour) == (1.0, 0.0)
    assert slope_of([0.0, 1.0], [1.0, 1.0]) is None


def test_growth_explained_by_another_series_is_no_slope() -> None:
    seconds = [float(at) for at in range(0, 7200, 10)]
    sockets = [1000 + at / 10 + at * 7919 % 400 for at in range(720)]
    memory = [50 + count / 100 for count in sockets]
    alone, level = slope_of(seconds, memory), slope_of(seconds, memory, beside=sockets)
    assert alone is not None
    assert alone.grows
    assert level is not None
    assert level.per_hour == pytest.approx(0, abs=1e-9)
    leaking = [held + at / 360 for at, held in enumerate(memory)]
    level = slope_of(seconds, leaking, beside=sockets)
    assert level is not None
    assert level.per_hour == pytest.approx(1.0)
    assert level.grows


@pytest.mark.parametrize(("freedom", "quantile"), [(2, 4.303), (10, 2.228), (22, 2.074)])
def test_student_quantiles_match_published_tables(freedom: int, quantile: float) -> None:
    assert student_quantile(0.975, freedom) == pytest.approx(quantile, rel=0.05)


# Results


def some_results() -> dict[str, Any]:
    record = a_record()
    for at in range(40):
        values = {"seconds": float(at), "gateway PSS MiB": 100.0 + at % 3, "load late ms": 1.0}
        values |= {f"{name} CPU s": at / 10 for name in ("gateway", "load", "apps")}
        record.sample(values | ({"worker 1 threads": 2.0} if at else {}))
    record.fail("wrong message", "socket 1 | odd")
    record.closed_after("revoked", 12.0)
    record.ended = "interrupted"
    found: dict[str, Any] = json.loads(record.to_json())
    return found


def test_a_late_column_has_no_earlier_values() -> None:
    columns = some_results()["columns"]
    assert columns["worker 1 threads"][:2] == [None, 2.0]
    assert {len(column) for column in columns.values()} == {40}


def test_the_page_is_made_from_the_results_alone() -> None:
    found = some_results()
    page = make_page(found, PROSE.read_text())
    assert "<!--" not in page
    assert "| wrong message | 1 | at 0 s: socket 1 / odd |" in page
    assert "interrupted" in page
    assert slopes(found["columns"])["gateway PSS MiB"] is not None
    assert draw(found["columns"]).startswith("<svg")


async def run_soak(out: Path, hours: float) -> asyncio.subprocess.Process:
    command = [sys.executable, "-m", "benchmarks.soak", "--hours", str(hours), "--sockets", "200"]
    command += ["--workers", "3", "--out", str(out), "--docs", str(out)]
    return await asyncio.create_subprocess_exec(*command)


@pytest.mark.long
async def test_a_short_soak_finds_no_error(tmp_path: Path) -> None:
    process = await run_soak(tmp_path, 0.02)
    async with asyncio.timeout(600):
        assert await process.wait() == 0
    found = json.loads((tmp_path / "results.json").read_text())
    assert found["ended"] == "finished"
    assert found["wrong"] == {}
    assert len(found["killed"]) >= 2
    for what in ("refused, as revoked", "refused, as removed", "routes moved", "messages"):
        assert found["counts"][what] > 0
    assert (tmp_path / "soak.md").exists()


@pytest.mark.long
async def test_an_interrupted_soak_keeps_its_results(tmp_path: Path) -> None:
    process = await run_soak(tmp_path, 1.0)
    async with asyncio.timeout(300):
        while not (tmp_path / "results.json").exists():
            await asyncio.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    assert json.loads((tmp_path / "results.json").read_text())["ended"] == "interrupted"
