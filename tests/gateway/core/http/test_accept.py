from __future__ import annotations

import pytest

from gateway.core.http.accept import (
    accepts_gzip,
    languages_in,
    preferences_in,
    preferred_language,
    prefers_html,
)


@pytest.mark.parametrize(
    "accept",
    [
        b"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
        b"TEXT/HTML",
        b"application/json;q=0.1, text/html ; q=0.9",
        b"text/html;level=1;q=0.5",
        b"text/html;q=nonsense",
        b"*/*, text/html",
    ],
)
def test_browsers_get_pages(accept: bytes) -> None:
    assert prefers_html(accept)


@pytest.mark.parametrize(
    "accept",
    [
        b"",
        b"*/*",
        b"text/*",
        b"text/plain",
        b"text/html;q=0",
        b"text/html;q=0.000, */*",
        b"application/json, text/html;q=0.5",
        b"text/html-x",
        b'x;y="text/html"',
    ],
)
def test_clients_that_prefer_json_get_json(accept: bytes) -> None:
    assert not prefers_html(accept)


@pytest.mark.parametrize(
    ("field", "language"),
    [
        (b"de", "de"),
        (b"de-CH-1996, en;q=0.5", "de"),
        (b"DE-at", "de"),
        (b"en;q=0.5, de;q=0.9", "de"),
        (b"fr, de;q=0.1", "de"),
        (b"de, en", "de"),
        (b"en, de", "en"),
        (b"de;q=nonsense", "de"),
        (b"", None),
        (b"fr", None),
        (b"deu", None),
        (b"*, de;q=0.5", None),
        (b"de;q=0", None),
        (b"de-CH, de;q=0", None),
        (b"\xff\xfe, -, ,;q=1", None),
    ],
)
def test_the_preferred_language_is_an_available_one(field: bytes, language: str | None) -> None:
    assert preferred_language(field, {"en", "de"}) == language


@pytest.mark.parametrize(
    "field", [b"x," * 100_000 + b"de", b"x" * 100_000, b"a-" * 100_000, b"fr," * 32 + b"de"]
)
def test_an_oversize_accept_field_is_read_only_up_to_a_limit(field: bytes) -> None:
    assert preferred_language(field, {"de"}) is None


@pytest.mark.parametrize(
    "accept", [b"a," * 32 + b"text/html", b"," * 60_000 + b"text/html", b"a;" * 600 + b",text/html"]
)
def test_only_the_beginning_of_an_oversize_accept_field_counts(accept: bytes) -> None:
    assert not prefers_html(accept)
    assert prefers_html(b"text/html," + accept)


def test_the_language_is_read_from_the_field_lines() -> None:
    lines = b"Accept: text/html\r\nX-Accept-Language: fr\r\nACCEPT-language: en;q=0.1\r\n"
    assert languages_in(lines).strip() == b"en;q=0.1"
    assert preferred_language(languages_in(lines + b"Accept-Language: de\r\n"), {"de"}) == "de"
    assert languages_in(b"Accept: accept-language: de\r\n") == b""


@pytest.mark.parametrize(
    ("accept_encoding", "takes"),
    [
        (b"gzip, deflate, br, zstd", True),
        (b"br;q=1.0, GZIP;q=0.2", True),
        (b"*", True),
        (b"", False),
        (b"identity", False),
        (b"gzip;q=0, *", False),
        (b"x-gzip-not, br", False),
        (b"br," * 400 + b"gzip", False),
    ],
)
def test_gzip_is_used_only_if_accepted_by_name(accept_encoding: bytes, takes: bool) -> None:
    assert accepts_gzip(accept_encoding) is takes


def test_a_head_that_is_not_read_tells_what_its_client_prefers() -> None:
    fields = b"Host: a\r\nACCEPT: text/html\r\nAccept: */*\r\naccept-language: de\r\n"
    assert preferences_in(b"GET / HTTP/1.1\r\n" + fields) == (b" text/html, */*", b" de")
    cut = preferences_in(b"GET / HTTP/1.1\r\n" + fields[:22])
    assert not prefers_html(cut[0])
    late = b"Cookie: " + b"x" * 16_384 + b"\r\n" + fields
    assert preferences_in(b"GET / HTTP/1.1\r\n" + late) == (b"", b"")
    assert preferences_in(b"GET /accept:text/html") == (b"", b"")
