"""The texts of the pages: the same ones in every language, all of them used, none missing."""

from __future__ import annotations

import re
from pathlib import Path
from string import Formatter

import pytest

from gateway.pages.texts import FOLDER, LANGUAGES, Texts, load_languages, read_language

WEB = FOLDER.parents[1] / "web" / "src"
ENGLISH = read_language(FOLDER / "en.toml")
OTHERS = [path for path in FOLDER.glob("*.toml") if path.stem != "en"]
# Names that a program puts together, by what they begin with.
MADE = ("refusals.", "starts.", "ends.", "kinds.", "scripts.starting.")


def places(text: str) -> set[str]:
    """Return the names that *text* is filled in with."""
    return {name for _, name, _, _ in Formatter().parse(text) if name is not None}


@pytest.mark.parametrize("path", OTHERS, ids=lambda path: path.stem)
def test_every_language_has_every_text_with_the_same_places(path: Path) -> None:
    texts = read_language(path)
    assert texts.keys() == ENGLISH.keys()
    for name, text in texts.items():
        assert places(text) == places(ENGLISH[name]), name
        assert bool(text) == bool(ENGLISH[name]), name


def test_english_and_german_are_there() -> None:
    assert {texts.language for texts in LANGUAGES} >= {"en", "de"}
    assert LANGUAGES.of(b"").language == "en"
    assert LANGUAGES.of(b"de-CH,de;q=0.9,en;q=0.8").language == "de"


def test_scripts_ask_only_for_texts_that_they_are_given() -> None:
    said = {name for texts in LANGUAGES for name in texts if name.startswith("scripts.")}
    program = "\n".join(source.read_text("utf-8") for source in WEB.glob("*.[jt]s"))
    asked = {f"scripts.{name}" for name in re.findall(r"""\btext\(\s*"([a-z_.]+)\"""", program)}
    assert asked
    assert asked <= said


def test_no_text_is_left_over() -> None:
    """What nothing says any more is not translated any more."""
    sources = [*FOLDER.parent.glob("*.py"), *WEB.glob("*.[jt]s")]
    program = "\n".join(source.read_text("utf-8") for source in sources)
    said = set(re.findall(r"""["']([a-z_.]+)["']""", program))
    for name in ENGLISH:
        ours = {name, name.partition(".")[2]}
        assert ours & said or name.startswith(MADE), name


def test_what_a_text_is_filled_with_is_not_filled_in_again() -> None:
    texts = Texts("xx", {"a.b": "{app}: {what}"})
    assert texts("a.b", app="{what}", what="{0}") == "{what}: {0}"


def test_a_language_that_lacks_a_text_shows_it_in_english(tmp_path: Path) -> None:
    (tmp_path / "en.toml").write_text('[a]\nb = "one"\nc = "two"\n')
    (tmp_path / "xx.toml").write_text('[a]\nb = "eins"\n')
    texts = load_languages(tmp_path).of(b"xx")
    assert (texts("a.b"), texts("a.c")) == ("eins", "two")
