from __future__ import annotations

import pytest

from gateway.core.http.accept import wants_page


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
    assert wants_page(accept)


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
def test_whoever_would_rather_have_json_gets_it(accept: bytes) -> None:
    assert not wants_page(accept)
