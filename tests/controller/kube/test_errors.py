"""Tests the translation of the API server's responses into the client's errors."""

from __future__ import annotations

from typing import Any

import pytest

from controller.kube.errors import (
    LONGEST_ASKED_SECONDS,
    AlreadyExists,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    NotServed,
    Throttled,
    Unauthorized,
    Unavailable,
    error_from,
)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, {"reason": "BadRequest"}, Invalid),
        (401, {"reason": "Unauthorized"}, Unauthorized),
        (403, {"reason": "Forbidden"}, Forbidden),
        (404, {"reason": "NotFound"}, NotFound),
        (404, {}, NotFound),
        (404, {"message": "the server could not find the requested resource"}, NotServed),
        (404, {"message": "404 page not found"}, NotServed),
        (409, {"reason": "AlreadyExists"}, AlreadyExists),
        (409, {"reason": "Conflict"}, Conflict),
        (410, {"reason": "Expired"}, Expired),
        (410, {"reason": "Gone"}, Expired),
        (415, {"reason": "UnsupportedMediaType"}, KubeError),
        (422, {"reason": "Invalid"}, Invalid),
        (429, {"reason": "TooManyRequests"}, Throttled),
        (500, {}, Unavailable),
        (503, {"reason": "ServiceUnavailable"}, Unavailable),
        (504, {"reason": "Timeout"}, Unavailable),
    ],
)
def test_every_status_maps_to_its_error(status: int, body: dict[str, Any], kind: type) -> None:
    error = error_from(status, body)
    assert type(error) is kind
    assert error.status == status


def test_a_kind_that_is_not_served_is_no_evidence_that_an_object_is_gone() -> None:
    assert not isinstance(error_from(404, {"message": "404 page not found"}), NotFound)


@pytest.mark.parametrize(
    ("header", "details", "seconds"),
    [
        (3.0, {"retryAfterSeconds": 9}, 3.0),
        (None, {"retryAfterSeconds": 9}, 9.0),
        (1000000.0, None, LONGEST_ASKED_SECONDS),
        (None, {"retryAfterSeconds": 10**6}, LONGEST_ASKED_SECONDS),
        (None, {"retryAfterSeconds": 0}, None),
        (None, "odd", None),
        (None, None, None),
    ],
)
def test_retry_after_is_kept(header: float | None, details: Any, seconds: float | None) -> None:
    assert error_from(429, {"details": details}, header).retry_after_seconds == seconds


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("denied\0by \x1b[31ma\u202ewebhook \ud800", "denied by a webhook \ufffd"),
        ({"no": "text"}, "{'no': 'text'}"),
        (None, "the API server answered 400"),
    ],
)
def test_a_webhook_message_is_plain_text(said: object, shown: str) -> None:
    assert error_from(400, {"message": said}).message == shown
