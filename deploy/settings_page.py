"""Keeps docs/settings.md: names, types and defaults come from the code, meanings from the page.

``python -m deploy.settings_page`` rewrites the first three columns of each row, and adds a row for
each setting that has none. Write the meaning of a setting into the page itself. A test fails while
the page differs from the code, or while a row has no meaning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Any, Final, TypeVar, get_type_hints

from controller.settings import read_settings
from controller.volcano.quantities import Quantity
from gateway.settings import settings_from
from shared.settings import Environment, on_or_off

T = TypeVar("T")

PAGE: Final = Path(__file__).resolve().parents[1] / "docs/settings.md"
# Settings of other programs, or for tests alone.
_OTHERS: Final = ("KUBERNETES_SERVICE_HOST",)
_NEEDED: Final = object()
_ROW: Final = re.compile(r"^\| `([A-Z0-9_]+)` \|.*\| (.*?) ?\|$")
_UNITS: Final = (
    ("_SECONDS", "seconds"),
    ("_BYTES", "bytes"),
    ("_FILE", "file"),
    ("KUBECONFIG", "file"),
)
_TYPES: Final = (
    ("bool", "yes or no"),
    ("float", "number"),
    ("int", "integer"),
    ("Quantity", "quantity"),
    ("Network", "networks"),
    ("SplitResult", "URL"),
    ("Path", "folder"),
)
LONGEST_DEFAULT: Final = 60


class Recording(Environment):
    """An empty environment that records each setting that is read from it."""

    def __init__(self) -> None:
        super().__init__({})
        self.asked: dict[str, tuple[Callable[[str], Any], object]] = {}

    def optional(self, name: str, parse: Callable[[str], T]) -> T | None:
        """Record that *name* has no default."""
        self.asked.setdefault(name, (parse, None))
        return super().optional(name, parse)

    def value(self, name: str, parse: Callable[[str], T], default: T) -> T:
        """Record the *default* of *name*."""
        self.asked.setdefault(name, (parse, default))
        return super().value(name, parse, default)

    def required(self, name: str, parse: Callable[[str], T], stand_in: T) -> T:
        """Record that *name* is needed, even if another reader has a default for it."""
        self.asked[name] = (parse, _NEEDED)
        return super().required(name, parse, stand_in)


def asked_settings() -> dict[str, tuple[str, str]]:
    """Return the type and default of every setting of both processes, as the page shows them."""
    found = {}
    for read in (settings_from, read_settings):
        recording = Recording()
        read(recording)
        found.update(recording.asked)
    return {
        name: (_type_of(name, parse), _shown(parse, default))
        for name, (parse, default) in found.items()
        if name not in _OTHERS
    }


def _type_of(name: str, parse: Callable[[str], Any]) -> str:
    unit = next((unit for suffix, unit in _UNITS if name.endswith(suffix)), None)
    if unit is not None:
        return unit
    if parse is on_or_off:
        return "on or off"
    kind = str(_result_of(parse))
    if "tuple[str, int]" in kind:
        return "host:port"
    if "NoneType" not in kind and any(word in kind for word in ("dict", "tuple[", "frozenset")):
        kind_of_list = "networks" if "Network" in kind else "list"
        return "names and values" if "dict" in kind else kind_of_list
    return next((shown for word, shown in _TYPES if word in kind), "text")


def _result_of(parse: Callable[[str], Any]) -> object:
    try:
        return get_type_hints(parse).get("return", parse)
    except (TypeError, NameError):
        return parse


def _shown(parse: Callable[[str], Any], default: object) -> str:
    if default is _NEEDED:
        return "needed"
    if parse is on_or_off:
        return "`on`" if default else "`off`"
    text = _text(default)
    if not text:
        return "none"
    return f"`{text}`" if len(text) <= LONGEST_DEFAULT else "see there"


def _text(value: object) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}" if value < 1e6 else f"{value:.0f}"
        case str() | int() | Quantity():
            return str(value)
        case (str() as host, int() as port):
            return f"{host}:{port}"
        case (str() as name, str() as given) if "/" in name:
            return f"{name}={given}"
        case Mapping():
            return ",".join(f"{name}={given}" for name, given in value.items())
        case frozenset():
            return ",".join(sorted(map(str, value)))
        case tuple() | list():
            return ",".join(map(_text, value))
        case IPv4Network() | IPv6Network():
            return str(value)
        case _:  # None, too.
            return f"{getattr(value, 'default', '') or ''}"


def render(page: str) -> str:
    """Return *page* with the types and defaults of the code.

    A setting that no longer exists loses its row. A new setting gets a row without a meaning.
    """
    settings, lines, seen = asked_settings(), [], set()
    for line in page.splitlines():
        row = _ROW.match(line)
        if row is None:
            lines.append(line)
        elif row[1] in settings:
            seen.add(row[1])
            lines.append("| `{}` | {} | {} | {} |".format(row[1], *settings[row[1]], row[2]))
    for name in sorted(settings.keys() - seen):
        lines.insert(_place_of(name, lines), "| `{}` | {} | {} |  |".format(name, *settings[name]))
    return "\n".join(lines) + "\n"


def _place_of(name: str, lines: list[str]) -> int:
    """Return the line before which the row of *name* goes: after the row with the nearest name."""
    rows = [(row[1], number) for number, line in enumerate(lines) if (row := _ROW.match(line))]
    alike = [(_shared(name, other), other < name, number) for other, number in rows]
    return max(alike, default=(0, True, len(lines) - 1))[2] + 1


def _shared(one: str, other: str) -> int:
    pairs = zip(one, other, strict=False)
    return next((number for number, pair in enumerate(pairs) if pair[0] != pair[1]), len(one))


def silent_rows(page: str) -> list[str]:
    """Return the settings whose row has no meaning."""
    rows = map(_ROW.match, page.splitlines())
    return [row[1] for row in rows if row is not None and not row[2].strip()]


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text()))
