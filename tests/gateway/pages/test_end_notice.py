"""Tests the end notice in the data of a desktop's or terminal's page."""

from __future__ import annotations

import msgspec

from gateway.core.access.decision import ServePage
from gateway.pages.documents import EndNotice
from gateway.pages.session import end_notice_of
from tests.gateway.relay.harness import GRANT, HOST, SID, route, table_of


def page_request(*, lasts: float = 43200, known: bool = True, **changes: object) -> ServePage:
    grant = msgspec.structs.replace(GRANT, issued_at=1000.0, ends_at=1000.0 + lasts)
    return ServePage(
        client_address="127.0.0.1",
        host=HOST,
        sid=SID,
        route=table_of(route(1, **changes)).route(SID),
        grant=grant if known else None,
        refusal=None,
        holder=None,
    )


def test_the_earliest_end_is_announced_by_the_gateways_clock() -> None:
    session = end_notice_of(page_request(expires_at=9000.5), 600, 1200.0)
    # The names are those of /.fumarole/state in docs/pages.md, and of gateway/web/src/ends.js.
    assert session == {"of": "session", "at": 9000.5, "told_from": 8400.5, "now": 1200.0}
    access = end_notice_of(page_request(lasts=2000, expires_at=9000), 600, 1200.0)
    assert access == EndNotice(of="access", at=3000.0, told_from=2400.0, now=1200.0)


def test_without_notice_setting_no_end_is_announced() -> None:
    assert end_notice_of(page_request(expires_at=9000), 0, 1200.0) is None
    assert end_notice_of(page_request(known=False), 600, 1200.0) is None
