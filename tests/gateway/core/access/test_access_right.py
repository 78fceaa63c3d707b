from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

from gateway.core.access.access_right import (
    BUS_LOST,
    DRAINING,
    GRANT_ENDED,
    GRANT_REVOKED,
    NEW_TARGET,
    SESSION_ENDED,
    SESSION_EXPIRED,
    STARTING,
    UNCOUNTED,
    UNREADABLE,
    AccessRight,
    EndReason,
    check_access,
)
from gateway.core.access.refusals import REFUSALS
from shared.routes.table import RouteTable
from tests.gateway.relay.harness import BASE, GRANT, SID, route, table_of

NOW = time.time()
PUBLIC = f"demo.{BASE}"


def access_right_of(table: RouteTable, *, public: bool = False) -> AccessRight:
    known = table.route(SID)
    assert known is not None
    host = PUBLIC if public else f"{SID}.{BASE}"
    return AccessRight(route=known, host=host, grant=None if public else GRANT)


@pytest.mark.parametrize(
    ("ending", "close_code", "close_reason", "refusal"),
    [
        (GRANT_ENDED, 4401, "grant ended", "grant_ended"),
        (GRANT_REVOKED, 4401, "grant revoked", "grant_revoked"),
        (SESSION_ENDED, 4410, "session ended", "session_ended"),
        (SESSION_EXPIRED, 4410, "session expired", "session_expired"),
        (STARTING, 1012, "starting", "session_starting"),
        (NEW_TARGET, 1012, "new target", "target_changed"),
        (UNREADABLE, 1012, "session unreadable", "session_unreadable"),
        (DRAINING, 1001, "gateway draining", "bus_lost"),
        (BUS_LOST, 1012, "bus lost", "bus_lost"),
    ],
)
def test_each_end_reason_has_its_close_code_and_refusal(
    ending: EndReason, close_code: int, close_reason: str, refusal: str
) -> None:
    assert ending == EndReason(close_code, close_reason, refusal)
    assert refusal in REFUSALS


def test_an_unused_access_right_has_no_user_and_is_not_counted() -> None:
    table = table_of(route(1))
    access_right = access_right_of(table)
    assert (access_right.address, access_right.attachment) == ("", None)
    assert access_right.activity is UNCOUNTED
    fresh = type(UNCOUNTED)()
    assert (fresh.up, fresh.down, fresh.input) == (0, 0, False)
    assert (access_right.sid, access_right.user) == (SID, "ada")
    # One string for thousands of connections.
    assert access_right.host is access_right.route.hosts[0]
    public = AccessRight(route=access_right.route, host="elsewhere.example", grant=None)
    assert (public.user, public.host) == (None, "elsewhere.example")


@pytest.mark.parametrize(
    ("change", "ending"),
    [
        ({}, None),
        ({"rev": 7, "message": "x", "owner": "eve"}, None),
        ({"state": "closing"}, None),
        ({"state": "starting"}, STARTING),
        ({"state": "starting", "target": None}, STARTING),
        ({"expires_at": NOW - 1}, SESSION_EXPIRED),
        ({"expires_at": NOW}, SESSION_EXPIRED),
        ({"expires_at": NOW + 1}, None),
        ({"kind": "later"}, UNREADABLE),
    ],
)
def test_a_changed_route_ends_or_keeps_its_access_rights(
    change: dict[str, Any], ending: EndReason | None
) -> None:
    access_right = access_right_of(table_of(route(1)))
    assert check_access(access_right, table_of(route(1) | change), NOW) == ending


def test_an_access_right_adopts_the_newer_revision() -> None:
    access_right = access_right_of(table_of(route(1)))
    check_access(access_right, table_of(route(1, rev=7)), NOW)
    assert access_right.route.rev == 7


@pytest.mark.parametrize("state", ["ready", "closing"])
def test_a_changed_target_ends_an_access_right_at_the_same_address(state: str) -> None:
    access_right = access_right_of(table_of(route(1)))
    moved = table_of(route(1, target={"id": "pod2"}, state=state))
    assert check_access(access_right, moved, NOW) == NEW_TARGET
    assert access_right.route.target is not None
    assert access_right.route.target.id == "pod1"


def test_the_same_target_at_a_new_address_ends_nothing() -> None:
    access_right = access_right_of(table_of(route(1)))
    moved = table_of(route(80, target={"host": "10.9.8.7"}))
    assert check_access(access_right, moved, NOW) is None
    assert access_right.route.target is not None
    assert access_right.route.target.host == "10.9.8.7"


@pytest.mark.parametrize(
    ("before", "after", "ending"),
    [("both", "none", NEW_TARGET), ("in", "both", NEW_TARGET), ("out", "out", None)],
)
def test_a_changed_clipboard_policy_ends_connections_that_filter_by_it(
    before: str, after: str, ending: EndReason | None
) -> None:
    desktop: dict[str, Any] = {"kind": "vnc", "target": {"scheme": "tcp"}}
    access_right = access_right_of(table_of(route(1, clipboard=before, **desktop)))
    assert check_access(access_right, table_of(route(1, clipboard=after, **desktop)), NOW) == ending


def test_a_removed_session_ends_its_access_rights() -> None:
    assert check_access(access_right_of(table_of(route(1))), table_of(), NOW) == SESSION_ENDED


def test_an_access_right_ends_when_its_grant_expires() -> None:
    table = table_of(route(1))
    access_right = access_right_of(table)
    assert check_access(access_right, table, GRANT.ends_at - 1) is None
    assert check_access(access_right, table, GRANT.ends_at) == GRANT_ENDED


@pytest.mark.parametrize(
    ("member", "ending"),
    [
        ("jti:t1", GRANT_REVOKED),
        ("kid:k1", GRANT_REVOKED),
        (f"sub:{SID}:ada", GRANT_REVOKED),
        (f"all:{SID}", GRANT_REVOKED),
        ("jti:t2", None),
        (f"sub:{SID}:eve", None),
        (f"sub:{'b' * 26}:ada", None),
    ],
)
def test_revocations_end_the_grants_that_they_name(member: str, ending: EndReason | None) -> None:
    table = table_of(route(1))
    table.load_revocation(member, NOW + 86400)
    assert check_access(access_right_of(table), table, NOW) == ending


def test_a_later_token_of_a_revoked_user_is_valid() -> None:
    table = table_of(route(1))
    table.load_revocation(f"sub:{SID}:ada", NOW + 86400)
    access_right = access_right_of(table)
    access_right.grant = msgspec.structs.replace(GRANT, issued_at=NOW + 5)
    assert check_access(access_right, table, NOW) is None


def test_a_public_access_right_ends_when_its_host_becomes_private() -> None:
    public = route(1, hosts=[f"{SID}.{BASE}", PUBLIC], public=True)
    access_right = access_right_of(table_of(public), public=True)
    assert check_access(access_right, table_of(public), NOW) is None
    assert access_right.ends_at == float("inf")
    assert check_access(access_right, table_of(public | {"public": False}), NOW) == SESSION_ENDED
    assert (
        check_access(access_right, table_of(public | {"hosts": [f"{SID}.{BASE}"]}), NOW)
        == SESSION_ENDED
    )


def test_an_access_right_ends_with_grant_or_route_whichever_is_first() -> None:
    access_right = access_right_of(table_of(route(1, expires_at=NOW + 5)))
    assert access_right.ends_at == NOW + 5
    assert access_right_of(table_of(route(1))).ends_at == GRANT.ends_at
