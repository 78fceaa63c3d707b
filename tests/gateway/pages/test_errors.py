"""Tests refusals as pages: what happened, what to do next, and no content of the request."""

from __future__ import annotations

import json
from dataclasses import replace
from html import escape

import pytest

from gateway.core.access.refusals import REFUSALS, Refusal, Subject
from gateway.pages.assets import Inside, load_assets
from gateway.pages.errors import PageErrors
from gateway.pages.texts import LANGUAGES, Texts
from shared.routes.statuses import Status

HTML = b"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
HOME = "https://orchestrator.example.org"


def holds(page: str, script: str) -> bool:
    return load_assets().text(script) in page


@pytest.fixture(scope="module")
def errors() -> PageErrors:
    return PageErrors(Inside(load_assets()), frame_ancestors="frame-ancestors 'self'", home=HOME)


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=lambda refusal: refusal.code)
def test_every_refusal_has_a_page_and_json(errors: PageErrors, refusal: Refusal) -> None:
    page = errors.render(refusal, HTML)
    assert page.content_type == "text/html; charset=utf-8"
    text = page.body.decode()
    assert f"{refusal.status} · {refusal.code}" in text
    assert dict(page.fields)["Content-Security-Policy"].startswith("default-src 'none'")
    body = errors.render(refusal, b"application/json")
    assert json.loads(body.body) == {"code": refusal.code, "message": refusal.message}


def test_common_refusals_have_a_text_of_their_own() -> None:
    met = {refusal.code for refusal in REFUSALS.values() if refusal.status not in (400, 405, 501)}
    for texts in LANGUAGES:
        assert not [code for code in met if f"refusals.{code}.title" not in texts]
        assert "refusals.two_cookies.title" in texts


@pytest.mark.parametrize("texts", list(LANGUAGES), ids=lambda texts: texts.language)
def test_an_error_page_explains_how_to_continue_in_its_language(
    errors: PageErrors, texts: Texts
) -> None:
    for code, refusal in REFUSALS.items():
        if f"refusals.{code}.title" not in texts:
            continue
        page = errors.render(refusal, HTML, f"{texts.language}-x, fr".encode())
        text, fields = page.body.decode(), dict(page.fields)
        assert escape(texts(f"refusals.{code}.title")) in text
        assert escape(texts(f"refusals.{code}.advice")) in text
        assert f'<html lang="{texts.language}">' in text
        assert fields["Content-Language"] == texts.language
        assert fields["Vary"] == "Accept, Accept-Language"


def test_json_is_the_same_for_programs_in_every_language(errors: PageErrors) -> None:
    body = errors.render(REFUSALS["not_found"], b"", b"de")
    assert json.loads(body.body)["message"] == REFUSALS["not_found"].message
    assert dict(body.fields)["Vary"] == "Accept, Accept-Language"


def test_the_reason_of_a_bad_response_is_in_the_details_of_users_alone(errors: PageErrors) -> None:
    subject = Subject("s", "job-1", 8080, None)
    refusal = replace(REFUSALS["app_bad_answer"], reason="it is too long", subject=subject)
    assert "reason: it is too long" in errors.render(refusal, HTML).body.decode()
    assert json.loads(errors.render(refusal, b"").body)["reason"] == "it is too long"
    public = replace(refusal, subject=None)
    assert b"too long" not in errors.render(public, HTML).body + errors.render(public, b"").body


def test_retryable_errors_reload_automatically(errors: PageErrors) -> None:
    text = errors.render(REFUSALS["bus_lost"], HTML).body.decode()
    assert holds(text, "retry.js")
    assert f'data-retry-seconds="{REFUSALS["bus_lost"].retry_after_seconds}"' in text
    # The request spent its token, so a retry cannot help.
    assert not holds(errors.render(REFUSALS["token_unsure"], HTML).body.decode(), "retry.js")


def test_the_page_of_an_app_that_does_not_respond_yet_retries(errors: PageErrors) -> None:
    text = errors.render(REFUSALS["app_unreachable"], HTML).body.decode()
    assert holds(text, "retry.js")
    assert 'data-retry-seconds="1"' in text


def test_a_starting_page_polls_and_shows_the_routes_message(errors: PageErrors) -> None:
    refusal = REFUSALS["session_starting"].with_message("Pulling <image>")
    text = errors.render(refusal, HTML).body.decode()
    assert holds(text, "starting.js")
    assert "Pulling &lt;image&gt;" in text


@pytest.mark.parametrize("texts", list(LANGUAGES), ids=lambda texts: texts.language)
def test_the_end_notice_states_when_and_how_to_continue(errors: PageErrors, texts: Texts) -> None:
    status = Status(phase="ready", app="Lab <b>")
    for code in ("session_ends_soon", "access_ends_soon"):
        subject = Subject("s", "j1", 1, status)
        notice = replace(REFUSALS[code], subject=subject, ends_at=7 * 3600 + 62)
        page = errors.render(notice, HTML, texts.language.encode())
        text, fields = page.body.decode(), dict(page.fields)
        assert escape(texts(f"ends.{code}.title", app="Lab <b>")) in text
        assert "07:01 UTC" in text
        assert f'href="" rel="noreferrer">{texts("actions.go_on")}<' in text
        assert (HOME in text) == (code == "access_ends_soon")
        assert 'data-ends-at="25262"' in text
        assert holds(text, "soon.js")
        assert "Cross-Origin-Opener-Policy" not in fields
    assert "Cross-Origin-Opener-Policy" in dict(errors.render(REFUSALS["not_found"], HTML).fields)


def test_the_way_back_from_a_refused_form_keeps_its_text(errors: PageErrors) -> None:
    # Behind a page with an opener policy, Firefox forgets what was typed into the page before.
    refused = replace(REFUSALS["session_starting"], sent="form")
    assert "Cross-Origin-Opener-Policy" not in dict(errors.render(refused, HTML).fields)


@pytest.mark.parametrize("code", ["app_unreachable", "app_timeout", "app_bad_answer"])
def test_a_pop_up_of_the_app_keeps_its_opener_while_the_app_fails(
    errors: PageErrors, code: str
) -> None:
    assert "Cross-Origin-Opener-Policy" not in dict(errors.render(REFUSALS[code], HTML).fields)


def test_a_new_link_is_offered_if_the_issuer_is_a_url(errors: PageErrors) -> None:
    assert HOME in errors.render(REFUSALS["token_spent"], HTML).body.decode()
    assert HOME not in errors.render(REFUSALS["app_unreachable"], HTML).body.decode()
    alone = PageErrors(Inside(load_assets()), frame_ancestors="", home=None)
    assert 'href="http' not in alone.render(REFUSALS["token_spent"], HTML).body.decode()


def test_the_cache_of_rendered_messages_is_bounded(errors: PageErrors) -> None:
    for number in range(1000):
        errors.render(REFUSALS["session_starting"].with_message(f"step {number}"), HTML)
    assert len(errors._pages) <= 256


@pytest.mark.parametrize("code", ["app_unreachable", "bus_lost", "session_starting"])
def test_a_page_in_response_to_a_form_does_not_load_its_address_again(
    errors: PageErrors, code: str
) -> None:
    # A GET of the form's address would replace this page by the app's "405 Method Not Allowed".
    text = errors.render(REFUSALS[code].for_request("POST"), HTML).body.decode()
    assert not holds(text, "retry.js")
    assert not holds(text, "starting.js")
    assert "data-retry-seconds" not in text
    assert "What you sent may not have arrived. Go back," in text
    assert errors.render(REFUSALS[code].for_request("HEAD"), HTML) == errors.render(
        REFUSALS[code], HTML
    )


def test_a_link_that_cannot_be_opened_now_leads_to_a_new_link(errors: PageErrors) -> None:
    refusal = REFUSALS["bus_lost"].for_request("POST", opening=True)
    text = errors.render(refusal, HTML).body.decode()
    assert not holds(text, "retry.js")
    assert "You will get a new link." in text
    assert f'href="{HOME}"' in text
