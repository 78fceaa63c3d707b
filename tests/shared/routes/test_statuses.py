"""Tests statuses: a malformed one is ignored, and never affects the route or a session's end."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shared.events import Head, RouteRemoved, RouteUpserted, decode_event
from shared.routes.route import RouteReader, encode_route
from shared.routes.statuses import (
    MOST_APP,
    MOST_BYTES,
    MOST_DETAIL,
    MOST_ENDED,
    MOST_NAME,
    Ended,
    Status,
    read_status,
)
from shared.routes.table import RouteTable
from tests.shared.samples import SID, encode, make_route, make_sid

STARTING = {"phase": "starting", "since": 5.0, "app": "Lab", "times": [["queued", 1.0]]}
UNREADABLE: list[Any] = [
    {}, [], "ready", 7, {"phase": 7}, {"phase": "Not a word"}, {"phase": "x", "since": -1},
    {"phase": "x", "since": 1e300}, {"phase": "x", "detail": "d" * (MOST_DETAIL + 1)},
    {"phase": "x", "times": [["queued"]]}, {"phase": "x", "times": [["queued", 1.0]] * 7},
    {"phase": "x", "app": ["Lab"]}, {"phase": "x", "port": 70000},
]  # fmt: skip


def table_of(**routes: bytes) -> RouteTable:
    head = Head(epoch="e1", seq=1, term=1, routes=len(routes), revoked=0)
    table = RouteTable(head, RouteReader())
    for sid, raw in routes.items():
        table.load_route(sid, raw)
    table.complete()
    return table


def removed(status: Any, *, seq: int = 2, sid: str = SID) -> RouteRemoved:
    wire = {"v": 1, "epoch": "e1", "seq": seq, "type": "RouteRemoved", "sid": sid, "reason": ""}
    event = decode_event(encode(wire | ({} if status is None else {"status": status})))
    assert isinstance(event, RouteRemoved)
    return event


def test_a_route_carries_its_status() -> None:
    route = table_of(**{SID: encode(make_route(status=STARTING))}).route(SID)
    assert route is not None
    assert route.status == Status(phase="starting", since=5.0, app="Lab", times=(("queued", 1.0),))


def test_a_status_is_written_with_its_route() -> None:
    route = make_route(status=STARTING)
    assert msgspec.json.decode(encode_route(route)) == route
    assert "status" not in msgspec.json.decode(encode_route(route | {"status": None}))


def test_unknown_fields_of_a_status_are_ignored() -> None:
    known = read_status(encode(STARTING | {"later": [1, {}]}))
    assert known is not None
    assert known.phase == "starting"


@pytest.mark.parametrize("restriction", [{}, {"service_workers": True}])
@pytest.mark.parametrize("status", UNREADABLE, ids=str)
def test_a_route_with_an_unreadable_status_is_read_without_status(
    status: Any, restriction: dict[str, Any]
) -> None:
    raw = encode_route(make_route(status=status) | restriction)
    route = RouteReader().read(SID, raw, epoch="e1")
    assert route == RouteReader().read(SID, encode_route(make_route() | restriction), epoch="e1")
    assert route.status is None


def test_a_route_without_status_keeps_its_encoding() -> None:
    route = make_route()
    assert encode_route(route | {"status": None}) == encode_route(route)


def test_every_written_status_fits_the_read_limit() -> None:
    times = tuple(("a" * 32, 1234567890.123456) for _ in range(6))
    longest = Status(
        phase="a" * 32, since=1234567890.123456, reason="r" * 64, detail="\U0001f30b" * MOST_DETAIL,
        app="\U0001f30b" * MOST_APP, port=65535, times=times, position=10**9,
        by="\U0001f30b" * MOST_NAME,
    )  # fmt: skip
    raw = msgspec.json.encode(longest)
    assert len(raw) <= MOST_BYTES
    assert read_status(raw) == longest
    assert read_status(raw[:-1] + b" " * MOST_BYTES + b"}") is None


def test_the_end_of_a_session_is_kept_with_its_job() -> None:
    table = table_of(**{SID: encode(make_route(status=STARTING))})
    table.apply(removed({"phase": "failed", "reason": "exit_code", "app": "Lab"}))
    assert SID not in table
    status = Status(phase="failed", reason="exit_code", app="Lab")
    assert table.ended == {SID: Ended("j1", status)}
    # A table from a snapshot has no statuses by itself.
    later = table_of()
    later.inherit(table)
    assert later.ended == table.ended


@pytest.mark.parametrize("status", [None, *UNREADABLE], ids=str)
def test_a_session_with_a_malformed_end_has_ended(status: Any) -> None:
    table = table_of(**{SID: encode(make_route(status=STARTING))})
    table.apply(removed(status))
    assert SID not in table
    assert table.ended[SID].status == Status(phase="ended", app="Lab")


def test_with_route_keys_an_unsigned_status_is_ignored() -> None:
    table = table_of(**{SID: encode(make_route())})
    table.proof = object()  # type: ignore[assignment]  # any will do
    table.apply(removed({"phase": "failed", "detail": "send your password to Mallory"}))
    assert table.ended[SID].status is None


def test_the_number_of_remembered_ends_is_bounded() -> None:
    table = table_of()
    for number in range(MOST_ENDED + 10):
        sid = make_sid(number)
        raw = msgspec.Raw(encode(make_route(sid)))
        seq = 2 + 2 * number
        table.apply(RouteUpserted(epoch="e1", seq=seq, sid=sid, route=raw))
        table.apply(removed({"phase": "finished"}, seq=seq + 1, sid=sid))
    assert len(table.ended) == MOST_ENDED
    assert make_sid(MOST_ENDED + 9) in table.ended
    assert make_sid(9) not in table.ended
