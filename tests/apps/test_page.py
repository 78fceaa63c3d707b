"""Tests that docs/apps.md agrees with the rows, and that a result replaces its own app's alone."""

from __future__ import annotations

from tests.apps.page import PAGE, read_seen, render
from tests.apps.table import REAL_APPS


def test_the_page_is_rendered_from_the_rows() -> None:
    text = PAGE.read_text()
    assert render(text, read_seen(text)) == text, "make apps writes it anew"
    assert read_seen(text).keys() == {app.title for app in REAL_APPS.values()}


def test_a_result_of_one_app_keeps_the_rows_of_others() -> None:
    text = PAGE.read_text()
    before = read_seen(text)
    after = read_seen(render(text, before | {"Dash": ("dash 0.1", "1999-12-31")}))
    assert after == before | {"Dash": ("dash 0.1", "1999-12-31")}
