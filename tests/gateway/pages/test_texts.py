"""Tests the texts of the pages: complete and equal in every language, and all in use."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from string import Formatter
from typing import Any

import pytest

from gateway.core.access.refusals import REFUSALS, Refusal, Subject, subject_of
from gateway.pages.assets import Inside, load_assets
from gateway.pages.errors import PageErrors
from gateway.pages.texts import (
    FOLDER,
    LANGUAGES,
    Texts,
    load_languages,
    read_language,
    title_of,
    words_of,
)
from shared.routes.route import RouteReader
from shared.routes.statuses import Status
from tests.shared.samples import SID, encode, make_route

WEB = FOLDER.parents[1] / "web" / "src"
ENGLISH = read_language(FOLDER / "en.toml")
OTHERS = [path for path in FOLDER.glob("*.toml") if path.stem != "en"]
# Prefixes of names that programs compose.
MADE = ("refusals.", "starts.", "ends.", "kinds.", "scripts.starting.")


def places(text: str) -> set[str]:
    """Return the placeholders in *text*."""
    return {name for _, name, _, _ in Formatter().parse(text) if name is not None}


@pytest.mark.parametrize("path", OTHERS, ids=lambda path: path.stem)
def test_every_language_has_every_text_with_the_same_placeholders(path: Path) -> None:
    texts = read_language(path)
    assert texts.keys() == ENGLISH.keys()
    for name, text in texts.items():
        assert places(text) == places(ENGLISH[name]), name
        assert bool(text) == bool(ENGLISH[name]), name


def test_english_and_german_are_there() -> None:
    assert {texts.language for texts in LANGUAGES} >= {"en", "de"}
    assert LANGUAGES.of(b"").language == "en"
    assert LANGUAGES.of(b"de-CH,de;q=0.9,en;q=0.8").language == "de"


def test_scripts_use_only_texts_that_they_are_given() -> None:
    said = {name for texts in LANGUAGES for name in texts if name.startswith("scripts.")}
    program = "\n".join(source.read_text("utf-8") for source in WEB.glob("*.[jt]s"))
    asked = {f"scripts.{name}" for name in re.findall(r"""\btext\(\s*"([a-z_.]+)\"""", program)}
    assert asked
    assert asked <= said


def test_no_text_is_unused() -> None:
    """Texts that no page uses are not translated any more."""
    templates = (FOLDER.parent / "templates").glob("*.html")
    sources = [*FOLDER.parent.glob("*.py"), *templates, *WEB.glob("*.[jt]s")]
    program = "\n".join(source.read_text("utf-8") for source in sources)
    said = set(re.findall(r"""["'[]([a-z_.]+)["'\]]""", program))
    for name in ENGLISH:
        ours = {name, name.partition(".")[2]}
        assert ours & said or name.startswith(MADE), name


def test_placeholders_within_values_are_not_expanded() -> None:
    texts = Texts("xx", {"a.b": "{app}: {what}"})
    assert texts("a.b", app="{what}", what="{0}") == "{what}: {0}"


def test_a_missing_translation_falls_back_to_english(tmp_path: Path) -> None:
    (tmp_path / "en.toml").write_text('[a]\nb = "one"\nc = "two"\n')
    (tmp_path / "xx.toml").write_text('[a]\nb = "eins"\n')
    texts = load_languages(tmp_path).of(b"xx")
    assert (texts("a.b"), texts("a.c")) == ("eins", "two")


HTML = b"text/html"
IN_ENGLISH = LANGUAGES.of(b"en")


def about(code: str, status: Status | None, job: str = "j1") -> Refusal:
    return replace(REFUSALS[code], subject=Subject(SID, job, 8888, status))


@pytest.fixture(scope="module")
def errors() -> PageErrors:
    url = "https://cloud.example.org/#/jobs/{job}?sid={sid}"
    parts = Inside(load_assets())
    return PageErrors(parts, frame_ancestors="frame-ancestors 'self'", home=None, orchestrator=url)


@pytest.mark.parametrize("texts", list(LANGUAGES), ids=lambda texts: texts.language)
def test_a_terminal_that_waits_for_a_hub_does_not_say_that_its_app_starts(texts: Texts) -> None:
    statuses = (Status(phase="starting", reason=reason) for reason in (None, "no_hub"))
    usual, waiting = (words_of(about("session_starting", one), texts) for one in statuses)
    assert usual is not None
    assert waiting is not None
    assert waiting.title == texts("starts.no_hub.title")
    assert waiting.title != usual.title
    assert (waiting.text, waiting.advice) == (texts("starts.no_hub.text"), usual.advice)


ENDS = ["finished", "stopped", "failed", "expired", "out_of_funds", "evicted"]


@pytest.mark.parametrize("texts", list(LANGUAGES), ids=lambda texts: texts.language)
@pytest.mark.parametrize("phase", ENDS)
def test_every_end_names_the_app_and_the_reason(phase: str, texts: Texts) -> None:
    words = words_of(about("session_ended", Status(phase=phase, app="Lab")), texts)
    assert words is not None
    assert "Lab" in words.title
    assert words.text
    assert words.advice
    unnamed = words_of(about("session_ended", Status(phase=phase)), texts)
    assert unnamed is not None
    assert texts("page.your_app") in unnamed.title


def test_a_closed_session_does_not_suggest_to_restart_the_job() -> None:
    words = words_of(about("session_ended", Status(phase="closed")), IN_ENGLISH)
    assert words is not None
    assert "goes on" in words.text
    assert not words.advice


@pytest.mark.parametrize("phase", ["queued", "suspended", "preparing", "starting"])
def test_every_start_phase_has_a_text(phase: str) -> None:
    words = words_of(about("session_starting", Status(phase=phase, app="{app} {0}")), IN_ENGLISH)
    assert words is not None
    assert words.title.startswith("{app} {0} ")


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (None, "Its container is being created from lab:1."),
        ("ContainerCreating", "Its container is being created from lab:1."),
        ("ImagePullBackOff", "Lab:1."),
    ],
)
def test_the_detail_is_shown_as_image_only_for_image_reasons(reason: str | None, text: str) -> None:
    status = Status(phase="preparing", reason=reason, detail="lab:1")
    words = words_of(about("session_starting", status), IN_ENGLISH)
    assert words is not None
    assert words.text == text


@pytest.mark.parametrize(
    ("changes", "title"),
    [
        ({"status": {"phase": "ready", "app": "Lab \x07"}}, "Lab  "),
        ({"status": {"phase": "ready", "app": "Lab"}, "rank": 3}, "Lab · rank 3"),
        ({"kind": "terminal", "target": None, "state": "starting"}, "Terminal"),
        ({"kind": "vnc", "target": None, "state": "starting", "rank": 1}, "Desktop · rank 1"),
    ],
)
def test_a_session_is_named_by_its_app_and_never_by_an_id(
    changes: dict[str, Any], title: str
) -> None:
    route = RouteReader().read(SID, encode(make_route(**changes)), epoch="")
    assert title_of(route, IN_ENGLISH) == title


@pytest.mark.parametrize("status", [None, Status(phase="later"), Status(phase="ended", app="x")])
def test_without_a_status_the_default_text_is_shown(
    errors: PageErrors, status: Status | None
) -> None:
    for code in ("session_ended", "session_starting"):
        assert words_of(about(code, status), IN_ENGLISH) is None
        body = json.loads(errors.render(about(code, status), b"application/json").body)
        assert body == {"code": code, "message": REFUSALS[code].message}


def test_external_text_is_isolated_in_direction(errors: PageErrors) -> None:
    nasty = Status(phase="failed", detail="<script>\u202e\n", app="<b>\u202e", reason="<i>\x00")
    page = errors.render(about("session_ended", nasty, job="<j>"), HTML).body.decode()
    for bad in ("<script>\u202e", "\u202e", "<b>", "<i>", "<j>", "\x00"):
        assert bad not in page


def test_the_job_link_follows_the_setting(errors: PageErrors) -> None:
    refusal = about("session_ended", Status(phase="failed"), job="a/b?c#d&e {sid}")
    page = errors.render(refusal, HTML).body.decode()
    where = f"https://cloud.example.org/#/jobs/a%2Fb%3Fc%23d%26e%20%7Bsid%7D?sid={SID}"
    assert f'href="{where}"' in page


def test_an_app_that_does_not_respond_is_named_by_its_port(errors: PageErrors) -> None:
    page = errors.render(about("app_unreachable", None), HTML).body.decode()
    assert 'data-port="8888"' in page


def test_a_public_link_reveals_nothing_about_the_job(errors: PageErrors) -> None:
    status = {"phase": "queued", "detail": "secret words", "app": "Lab"}
    raw = encode(make_route(status=status, state="starting", target=None))
    route = RouteReader().read(SID, raw, epoch="")
    refusal = replace(REFUSALS["session_starting"], subject=subject_of(route, public=True))
    page = errors.render(refusal, HTML).body.decode()
    assert "secret words" not in page
    assert "cloud.example.org" not in page
    assert "job: j1" not in page


@pytest.mark.parametrize("texts", list(LANGUAGES), ids=lambda texts: texts.language)
def test_queue_position_and_the_user_who_stopped_the_job_are_shown(texts: Texts) -> None:
    waits = Status(phase="queued", position=4, detail="2 of 4 GPUs are free")
    words = words_of(about("session_starting", waits), texts)
    assert words is not None
    others, _, ours = words.text.partition("2 of 4 GPUs are free.")
    assert "4" in ours
    # An English detail stands in quotes in other languages, after the page's own words.
    assert bool(others) == (texts.language != "en")
    assert ("“" in ours) == (texts.language != "en")
    status = Status(phase="stopped", by="Ada\u202e Lovelace")
    words = words_of(about("session_ended", status), texts)
    assert words is not None
    assert "Ada  Lovelace" in words.text


@pytest.mark.parametrize("name", ["other_user.text", "other_user.advice", "signing_out.text"])
def test_names_of_users_are_shown_without_control_and_direction_characters(name: str) -> None:
    for texts in LANGUAGES:
        said = texts(name, holder="Ada\u202e", user="Grace\x1b\u2066")
        assert said.isprintable()
        assert "Ada" in said or "Grace" in said
