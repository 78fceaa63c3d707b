"""The texts of the pages, in each language with a file in ``languages/``.

English is complete; a text that another language lacks is shown in English. Foreign text, such as
an app's or a user's name or the scheduler's reason, is not translated. It loses characters that
control a text or its direction, and the page that shows it escapes it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from gateway.core.access.refusals import Refusal, Subject, subject_of
from gateway.core.http.accept import preferred_language
from shared.routes.route import Route
from shared.routes.statuses import NO_HUB, Status
from shared.text import without_controls

FOLDER: Final = Path(__file__).resolve().parent / "languages"
_DEFAULT: Final = "en"


class Texts:
    """The texts of one language, by dotted names."""

    def __init__(self, language: str, texts: Mapping[str, str]) -> None:
        self.language = language
        self._texts = dict(texts)

    def __call__(self, name: str, **values: object) -> str:
        """Return the text *name* with *values* filled in, which are shown as one line each."""
        shown = {key: without_controls(str(value)) for key, value in values.items()}
        return self._texts[name].format(**shown)

    def __contains__(self, name: object) -> bool:
        return name in self._texts

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def for_scripts(self, names: Sequence[str]) -> dict[str, str]:
        """Return the texts of the scripts *names*, by the keys that the scripts use."""
        prefixes = tuple(f"scripts.{name}." for name in names)
        return {
            name.removeprefix("scripts."): text
            for name, text in self._texts.items()
            if name.startswith(prefixes)
        }


class Languages:
    """All languages; the first one is the default."""

    def __init__(self, texts: Sequence[Texts]) -> None:
        self._by_name = {one.language: one for one in texts}
        self._default = texts[0]

    def of(self, accept_language: bytes) -> Texts:
        """Return the texts in the language that ``Accept-Language`` prefers."""
        name = preferred_language(accept_language, self._by_name)
        return self._by_name[name] if name is not None else self._default

    def __iter__(self) -> Iterator[Texts]:
        return iter(self._by_name.values())


def load_languages(folder: Path = FOLDER) -> Languages:
    """Return the languages in *folder*, English first."""
    english = read_language(folder / f"{_DEFAULT}.toml")
    others = sorted(path for path in folder.glob("*.toml") if path.stem != _DEFAULT)
    return Languages(
        [
            Texts(_DEFAULT, english),
            *(Texts(path.stem, english | read_language(path)) for path in others),
        ]
    )


def read_language(path: Path) -> dict[str, str]:
    """Return the texts in the file *path*, by dotted names."""
    return dict(_flat(tomllib.loads(path.read_text("utf-8"))))


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


LANGUAGES: Final = load_languages()
"""Loaded at import, as parts of the program."""


# The texts of a session that starts or has ended


class CardTexts(NamedTuple):
    """A page's heading, its text, and what the user can do next."""

    title: str
    text: str
    advice: str


_DETAILED: Final = frozenset({"ends.failed", "ends.evicted", "starts.queued", "starts.preparing"})
"""Phases for which the status detail, in English, is shown instead of a text."""
_PULLS: Final = frozenset({None, "ContainerCreating", "PodInitializing"})
"""The kubelet's reasons while it pulls an image normally; the detail then names the image."""


def words_of(refusal: Refusal, texts: Texts) -> CardTexts | None:
    """Return the texts about the session of *refusal*; None if there are only standard texts."""
    if refusal.ends_at is not None:
        return _ends_soon(refusal, refusal.ends_at, texts)
    status = None if refusal.subject is None else refusal.subject.status
    if status is None:
        return None
    match refusal.code:
        case "session_ended":
            words = f"ends.{status.phase}"
        case "session_expired":
            words = "ends.expired"
        case "session_starting":
            words = f"starts.{NO_HUB if status.reason == NO_HUB else status.phase}"
        case _:
            return None
    if f"{words}.title" not in texts:
        return None
    title = texts(f"{words}.title", app=named(refusal.subject) or texts("page.your_app"))
    text = _text(status, words, texts)
    if refusal.code == "session_starting":
        by_itself = "" if status.phase == "suspended" else texts("starts.by_itself")
        return CardTexts(title, text, by_itself)
    again = "" if status.phase == "closed" else texts("ends.again")
    return CardTexts(title, f"{texts('ends.over')} {text}", again)


def _ends_soon(refusal: Refusal, ends_at: int, texts: Texts) -> CardTexts:
    """Return the texts of an end notice; a script replaces the time by local time."""
    usual, words = f"refusals.{refusal.code}", f"ends.{refusal.code}"
    app = named(refusal.subject)
    title = texts(f"{words}.title", app=app) if app else texts(f"{usual}.title")
    time = datetime.fromtimestamp(ends_at, UTC).strftime("%H:%M UTC")
    return CardTexts(title, texts(f"{words}.text", time=time), texts(f"{usual}.advice"))


def named(subject: Subject | None) -> str | None:
    """Return the name of the app, if it is known."""
    name = subject.status.app if subject is not None and subject.status is not None else None
    return without_controls(name) if name else None


def title_of(route: Route, texts: Texts) -> str:
    """Return the title of the session of *route*: its app, and its rank if that is not 0."""
    app = named(subject_of(route)) or texts(f"kinds.{route.kind}")
    return texts("page.rank", app=app, rank=route.rank) if route.rank else app


def _text(status: Status, words: str, texts: Texts) -> str:
    detail = without_controls(status.detail or "")
    if words == "ends.stopped" and status.by:
        return texts(f"{words}.text_by", user=status.by)
    if words == "starts.preparing" and detail and status.reason in _PULLS:
        return texts(f"{words}.text_image", image=detail)
    said = texts(f"{words}.said", words=_sentence(detail)) if detail and words in _DETAILED else ""
    if words == "starts.queued" and status.position is not None:
        return f"{said} {texts(f'{words}.position', position=status.position)}".lstrip()
    return said or texts(f"{words}.text")


def _sentence(text: str) -> str:
    """Return *text* with a capital letter and a final stop."""
    whole = text[0].upper() + text[1:]
    return whole if whole[-1] in ".!?…" else f"{whole}."
