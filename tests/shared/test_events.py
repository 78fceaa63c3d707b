"""Tests ProxyEvents: every event round-trips, and everything else is refused."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import MalformedEvent
from shared.events import (
    MOST_EVENT_BYTES,
    REVOCATION_KEPT_SECONDS,
    GrantRevoked,
    RouteUpserted,
    UnknownEvent,
    decode_event,
    event_time,
    revoked_at,
)
from tests.shared.samples import SID, encode, events, make_route

HEARTBEAT = {"v": 1, "epoch": "e", "seq": 3, "at": "2026-01-01T00:00:00.000Z", "type": "Heartbeat"}


def _comparable(event: Any) -> Any:
    fields = msgspec.structs.asdict(event)
    if isinstance(event, RouteUpserted):
        fields["route"] = json.loads(bytes(event.route))
    return type(event), fields


@given(events())
def test_any_event_round_trips(event: Any) -> None:
    assert _comparable(decode_event(event.encode())) == _comparable(event)


@given(events())
def test_every_encoded_event_has_the_fields_common_to_all_versions(event: Any) -> None:
    wire = json.loads(event.encode())
    assert wire["v"] == 1
    assert {"epoch", "seq", "at", "type"} <= wire.keys()


@given(events(), st.dictionaries(st.text("xyz", min_size=4), st.integers() | st.text()))
def test_unknown_fields_are_ignored(event: Any, extra: dict[str, Any]) -> None:
    wire = json.loads(event.encode()) | extra
    assert _comparable(decode_event(encode(wire))) == _comparable(event)


@pytest.mark.parametrize("missing", ["v", "epoch", "seq", "type"])
def test_a_message_without_the_common_fields_is_malformed(missing: str) -> None:
    wire = {name: value for name, value in HEARTBEAT.items() if name != missing}
    with pytest.raises(MalformedEvent):
        decode_event(encode(wire))


@pytest.mark.parametrize("change", [{"v": 2}, {"v": 2, "at": 17}, {"type": "RouteMoved"}])
def test_an_unknown_version_or_type_keeps_its_sequence_number(change: dict[str, Any]) -> None:
    event = decode_event(encode(HEARTBEAT | change))
    assert isinstance(event, UnknownEvent)
    assert (event.epoch, event.seq) == ("e", 3)


@pytest.mark.parametrize(
    "wire",
    [
        b"",
        b"null",
        b"[]",
        b"\xff\xfe",
        b'{"v":1',
        encode(HEARTBEAT | {"seq": -1}),
        encode(HEARTBEAT | {"seq": 3.0}),
        encode(HEARTBEAT | {"seq": True}),
        encode(HEARTBEAT | {"epoch": ""}),
        encode(HEARTBEAT | {"at": "yesterday"}),
        encode(HEARTBEAT | {"type": "RouteUpserted"}),
        encode(HEARTBEAT | {"type": "RouteUpserted", "sid": "../x", "route": {}}),
        encode(HEARTBEAT | {"type": "GrantRevoked"}),
        encode(HEARTBEAT | {"type": "GrantRevoked", "sid": SID, "kid": "k"}),
        encode(HEARTBEAT | {"type": "GrantRevoked", "sid": SID, "jti": "a", "sub": "b"}),
        encode(HEARTBEAT | {"type": "GrantRevoked", "kid": "k", "sub": "b"}),
        encode(HEARTBEAT | {"type": "GrantRevoked", "sid": SID, "at": None}),
    ],
)
def test_malformed_text_is_refused_as_event(wire: bytes) -> None:
    with pytest.raises(MalformedEvent):
        decode_event(wire)


def test_a_deeply_nested_unknown_field_is_ignored_or_refused() -> None:
    # Until Python 3.13 a parser stops after some thousand levels.
    wire = encode(HEARTBEAT)[:-1] + b',"deep":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    with suppress(MalformedEvent):
        assert decode_event(wire) == decode_event(encode(HEARTBEAT))


@given(st.binary(max_size=200))
def test_any_bytes_decode_or_raise_the_documented_error(data: bytes) -> None:
    with pytest.raises(MalformedEvent):
        decode_event(data)


@pytest.mark.parametrize(
    ("fields", "member"),
    [
        ({"sid": SID, "jti": "t-1"}, "jti:t-1"),
        ({"sid": SID, "sub": "ada:x"}, f"sub:{SID}:ada:x"),
        ({"sid": SID}, f"all:{SID}"),
        ({"kid": "k1"}, "kid:k1"),
    ],
)
def test_a_revocation_is_kept_under_its_name_for_a_day(fields: Any, member: str) -> None:
    event = GrantRevoked(epoch="e", seq=1, at=event_time(1000.5), **fields)
    revocation = event.revocation()
    assert (revocation.member, revocation.score) == (member, 1000.5 + REVOCATION_KEPT_SECONDS)
    assert revoked_at(revocation.score) == 1000.5


def test_the_text_of_a_route_is_kept_unchanged() -> None:
    raw = encode(make_route() | {"later": [1, {"x": None}]})
    event = RouteUpserted(epoch="e", seq=1, at=event_time(0), sid=SID, route=msgspec.Raw(raw))
    decoded = decode_event(event.encode())
    assert isinstance(decoded, RouteUpserted)
    assert json.loads(bytes(decoded.route)) == json.loads(raw)


def test_an_oversize_event_is_refused() -> None:
    """Reading such an event would block the loop."""
    heartbeat = HEARTBEAT | {"unknown": ""}
    for room, reads in ((MOST_EVENT_BYTES, True), (MOST_EVENT_BYTES + 1, False)):
        filled = encode(heartbeat | {"unknown": "x" * (room - len(encode(heartbeat)))})
        assert len(filled) == room
        if reads:
            assert decode_event(filled).seq == 3
        else:
            with pytest.raises(MalformedEvent):
                decode_event(filled)
