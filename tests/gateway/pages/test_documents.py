"""Tests the HTML of every page: nothing inline, nothing from other hosts, nothing unescaped."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from gateway.pages.assets import Linked, load_assets
from gateway.pages.documents import (
    Card,
    Documents,
    EndNotice,
    Screen,
    form_action,
    link_action,
    page_headers,
)
from gateway.pages.texts import LANGUAGES, Texts

ENGLISH, GERMAN = LANGUAGES.of(b"en"), LANGUAGES.of(b"de")
NASTY = "<script>alert(\"1\")</script> & 'x'"
ENDING = Screen(
    title=NASTY,
    mode="control",
    end=EndNotice(of="session", at=9000.0, told_from=8400.0, now=8000.0),
    job_url=f"https://example.com/{NASTY}",
    home=f"https://example.com/?{NASTY}",
)
VOID = {"meta", "link", "img", "input", "br"}


class Reader(HTMLParser):
    """Collects tags, and checks that every open tag is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("script", "style"):
            self.inside.append(data)


@pytest.fixture(scope="module")
def documents() -> Documents:
    return Documents(Linked(load_assets()))


def pages(documents: Documents, texts: Texts = ENGLISH) -> list[str]:
    card = Card(
        title=NASTY,
        status=NASTY,
        advice=NASTY,
        detail=NASTY,
        data={"x": NASTY},
        script="retry.js",
        busy=True,
        actions=link_action("https://example.com/?a=1&b=2", NASTY)
        + form_action("/.fumarole/open", [("token", NASTY)], NASTY),
    )
    return [
        documents.card(card, texts),
        documents.terminal(ENDING, texts),
        documents.desktop(Screen(title=NASTY, mode="view"), texts),
    ]


def test_pages_are_well_formed_without_inline_code(documents: Documents) -> None:
    for page in pages(documents):
        reader = Reader()
        reader.feed(page)
        assert reader.open == []
        assert reader.inside == []
        for _, attributes in reader.tags:
            assert "style" not in attributes
            assert not any(name.startswith("on") for name in attributes)
            for name in ("src", "action"):
                assert (attributes.get(name) or "/").startswith("/")


def test_external_text_is_escaped(documents: Documents) -> None:
    for page in pages(documents):
        assert "<script>alert" not in page
        assert "&lt;script&gt;" in page


def test_a_value_that_looks_like_a_placeholder_is_text(documents: Documents) -> None:
    page = documents.card(Card(title="{say[page.brand]}", status="{nothing}"), ENGLISH)
    assert "<h1>{say[page.brand]}</h1>" in page
    assert ">{nothing}</p>" in page


def test_every_page_has_a_language_a_title_and_one_heading(documents: Documents) -> None:
    for texts in (ENGLISH, GERMAN):
        for page in pages(documents, texts):
            assert f'<html lang="{texts.language}">' in page
            assert len(re.findall(r"<h1[ >]", page)) == 1
            assert 'aria-live="polite"' in page


def test_view_mode_is_shown(documents: Documents) -> None:
    assert "view only" in documents.terminal(Screen(title="t", mode="view"), ENGLISH)
    assert "view only" not in documents.terminal(Screen(title="t", mode="control"), ENGLISH)
    assert "nur ansehen" in documents.desktop(Screen(title="t", mode="view"), GERMAN)


def test_only_pages_that_capture_keys_explain_how_to_leave(documents: Documents) -> None:
    for page in (documents.terminal, documents.desktop):
        assert 'id="way-out"' in page(Screen(title="t", mode="control"), ENGLISH)
        assert 'id="way-out"' not in page(Screen(title="t", mode="view"), ENGLISH)


def test_the_content_security_policy_allows_only_the_own_origin() -> None:
    headers = page_headers("frame-ancestors 'self'")
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert policy.endswith("frame-ancestors 'self'")
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cache-Control"] == "no-store"


def test_the_open_page_sends_a_referrer_to_its_own_origin_only() -> None:
    headers = page_headers("", sameorigin_referrer=True)
    assert headers["Referrer-Policy"] == "same-origin"


@pytest.mark.parametrize(("seconds", "shown"), [(600.0, "600"), (0.0, "0"), (90.5, "90.5")])
def test_the_bar_warns_as_early_as_the_setting_says(
    documents: Documents, seconds: float, shown: str
) -> None:
    page = Reader()
    page.feed(documents.frame(NASTY, ENGLISH, job_url=None, notice_seconds=seconds))
    (body,) = [attributes for tag, attributes in page.tags if tag == "body"]
    assert body["data-notice-seconds"] == shown
