"""Every text of the pages, in each language that there is a file for in ``languages/``.

English is complete; what another language lacks is shown in English. Words of others (an app's
name, the scheduler's reasons) are filled in as they came, and are in whatever language they are.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from gateway.core.http.accept import preferred_language

FOLDER: Final = Path(__file__).resolve().parent / "languages"
_DEFAULT: Final = "en"


class Texts:
    """The texts of one language, by dotted names."""

    def __init__(self, language: str, texts: Mapping[str, str]) -> None:
        self.language = language
        self._texts = dict(texts)

    def __call__(self, name: str, **values: object) -> str:
        """Return the text *name* with *values* in the places that it names."""
        return self._texts[name].format(**values)

    def __contains__(self, name: object) -> bool:
        return name in self._texts

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def for_scripts(self, names: Sequence[str]) -> dict[str, str]:
        """Return what the scripts *names* say, by the names that they know it by."""
        prefixes = tuple(f"scripts.{name}." for name in names)
        return {
            name.removeprefix("scripts."): text
            for name, text in self._texts.items()
            if name.startswith(prefixes)
        }


class Languages:
    """All languages; the first one is shown where a browser names none of them."""

    def __init__(self, texts: Sequence[Texts]) -> None:
        self._by_name = {one.language: one for one in texts}
        self._default = texts[0]

    def of(self, accept_language: bytes) -> Texts:
        """Return the texts for who sent this ``Accept-Language``."""
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
    """Return the texts in the file *path* alone."""
    return dict(_flat(tomllib.loads(path.read_text("utf-8"))))


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


LANGUAGES: Final = load_languages()
"""Part of the program, as its modules are: without them it does not start."""
