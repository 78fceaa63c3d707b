from __future__ import annotations

import json

import pytest

from gateway.core.access.refusals import (
    REASONS,
    REFUSALS,
    Page,
    Refusal,
    RefusalRenderer,
    write_response,
)


def test_every_refusal_has_a_status_a_reason_and_a_message() -> None:
    for code, refusal in REFUSALS.items():
        assert refusal.code == code
        assert refusal.status in REASONS
        assert refusal.message.endswith(".")
        assert (refusal.retry_after_seconds is not None) == (refusal.status in (429, 503))


@pytest.mark.parametrize(
    ("code", "status"),
    [("no_credential", 401), ("other_session", 403), ("not_found", 404), ("session_ended", 410),
     ("session_starting", 503), ("bad_request", 400), ("method_unknown", 501),
     ("method_not_allowed", 405), ("target_too_long", 414), ("head_too_large", 431)],
)  # fmt: skip
def test_statuses_match_the_contract(code: str, status: int) -> None:
    assert REFUSALS[code].status == status


def test_programs_get_json() -> None:
    page = RefusalRenderer().render(REFUSALS["not_found"], b"text/html")
    assert page.content_type == "application/json"
    assert set(json.loads(page.body)) == {"code", "message"}


def test_a_refusal_is_complete_and_not_cacheable() -> None:
    refusal = REFUSALS["session_starting"].with_message("pulling")
    raw = write_response(refusal, Page("text/plain", b"hi", (("X-A", "b"),)), close=True)
    assert raw == (
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\nContent-Type: text/plain\r\n"
        b"Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nRetry-After: 2\r\n"
        b"X-A: b\r\nConnection: close\r\n\r\nhi"
    )
    assert refusal.message == "pulling"


def test_a_head_response_has_the_length_but_no_body() -> None:
    raw = write_response(REFUSALS["not_found"], Page("a/b", b"body"), close=False, head_only=True)
    assert b"Content-Length: 4\r\n" in raw
    assert raw.endswith(b"\r\n\r\n")
    assert b"Connection" not in raw


def test_401_and_405_have_the_fields_required_by_rfc_9110() -> None:
    page = Page("a/b", b"")
    assert b"WWW-Authenticate: " in write_response(REFUSALS["no_credential"], page, close=False)
    allowed = write_response(REFUSALS["method_not_allowed"], page, close=False)
    assert b"Allow: GET" in allowed


def test_a_message_without_translation_is_kept() -> None:
    refusal = Refusal(503, "x", "Said.")
    assert refusal.with_message(None) is refusal


def test_a_refusal_has_a_date_field() -> None:
    date = b"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
    raw = write_response(REFUSALS["not_found"], Page("a/b", b"body"), close=True, date=date)
    head, _, body = raw.partition(b"\r\n\r\n")
    assert date.rstrip() in head.split(b"\r\n")
    assert body == b"body"


def test_an_invalid_upgrade_is_refused_with_the_supported_version() -> None:
    raw = write_response(REFUSALS["bad_upgrade"], Page("a/b", b""), close=True)
    assert b"\r\nSec-WebSocket-Version: 13\r\n" in raw
