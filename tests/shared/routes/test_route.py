"""Tests that a route is encoded, decoded, signed and hashed."""

from __future__ import annotations

import hashlib
import json
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import UnreadableRoute
from shared.jose.jws import read_key_set, verified_payload
from shared.routes.route import RouteReader, digest, encode_route
from tests.shared.samples import (
    SID,
    SIGNERS,
    change_one,
    encode,
    key_set_of,
    make_route,
    make_sid,
    places,
    routes,
    shifts,
)


@given(routes(), st.randoms())
def test_the_hash_does_not_depend_on_how_the_json_is_written(
    route: dict[str, Any], rng: random.Random
) -> None:
    members = list(route.items())
    rng.shuffle(members)
    spaced = json.dumps(dict(members), indent=2, ensure_ascii=False).encode()
    assert digest(route["sid"], spaced) == digest(route["sid"], encode(route))


@given(routes(), routes())
def test_different_routes_have_different_hashes(one: dict[str, Any], other: dict[str, Any]) -> None:
    same = digest(one["sid"], encode(one)) == digest(other["sid"], encode(other))
    assert same == (one == other)


def test_the_hash_is_64_bits_of_sha_256() -> None:
    # By docs/proxy-events.md, so that publishers and gateways of all versions agree.
    whole = hashlib.sha256(SID.encode() + b'{"a":1,"b":[2]}').hexdigest()
    assert digest(SID, b'{"b": [2], "a": 1}') == int(whole[:16], 16)


def test_unknown_fields_count_in_the_hash() -> None:
    assert digest(SID, encode(make_route())) != digest(SID, encode(make_route() | {"later": 1}))


# Restrictions


@pytest.mark.parametrize(
    "restriction", [{"kind": "vnc", "clipboard": "none"}, {"service_workers": True}]
)
def test_a_route_with_restrictions_has_a_higher_version(restriction: dict[str, Any]) -> None:
    target = {
        "scheme": "tcp" if "kind" in restriction else "http",
        "host": "h",
        "port": 1,
        "id": "p",
    }
    raw = encode_route(make_route(target=target) | restriction)
    assert json.loads(raw).keys() == {"v", "route"}
    assert json.loads(raw)["v"] == 2
    read = RouteReader().read(SID, raw, epoch="e")
    for name, value in restriction.items():
        assert getattr(read, name) == value
    newer = json.dumps(json.loads(raw) | {"v": 3}).encode()
    with pytest.raises(UnreadableRoute, match="version 3"):
        RouteReader().read(SID, newer, epoch="e")
    with pytest.raises(UnreadableRoute):
        RouteReader().read(make_sid(7), raw, epoch="e")


def test_a_route_with_a_frame_keeps_the_version_for_older_gateways() -> None:
    raw = encode_route(make_route() | {"frame": True})
    assert "v" not in json.loads(raw)
    assert RouteReader().read(SID, raw, epoch="e").frame


def test_a_route_without_restrictions_keeps_the_first_version() -> None:
    plain = make_route()
    unrestricted = plain | {"clipboard": "both", "service_workers": False, "frame": False}
    assert encode_route(unrestricted) == msgspec.json.encode(plain)


@pytest.mark.parametrize(
    "wrong",
    [{"clipboard": "none"}, {"clipboard": "maybe"}, {"service_workers": 1}],
)
def test_an_invalid_restriction_makes_a_route_unreadable(wrong: dict[str, Any]) -> None:
    for raw in (encode(make_route() | wrong), encode({"v": 2, "route": make_route() | wrong})):
        with pytest.raises(UnreadableRoute):
            RouteReader().read(SID, raw, epoch="e")


# Signed routes

KEYS = read_key_set(key_set_of(SIGNERS["EdDSA"]))
SIGNED_ONLY = RouteReader(lambda token: verified_payload(token, KEYS))


def signed(route: dict[str, Any], epoch: str = "e1") -> bytes:
    return encode(SIGNERS["EdDSA"].sign(route | {"epoch": epoch}))


def test_with_keys_only_signed_routes_are_read() -> None:
    assert SIGNED_ONLY.read(SID, signed(make_route()), epoch="e1").sid == SID
    with pytest.raises(UnreadableRoute):
        SIGNED_ONLY.read(SID, encode(make_route()), epoch="e1")


def test_a_signed_route_of_another_epoch_is_a_replay() -> None:
    with pytest.raises(UnreadableRoute):
        SIGNED_ONLY.read(SID, signed(make_route(), "e0"), epoch="e1")


def test_a_signed_route_of_another_session_is_not_read() -> None:
    with pytest.raises(UnreadableRoute):
        SIGNED_ONLY.read(make_sid(3), signed(make_route()), epoch="e1")


@given(places, shifts)
def test_a_changed_signed_route_is_not_read(place: int, shift: int) -> None:
    token = SIGNERS["EdDSA"].sign(make_route() | {"epoch": "e1"})
    with pytest.raises(UnreadableRoute):
        SIGNED_ONLY.read(SID, encode(change_one(token, place, shift)), epoch="e1")
