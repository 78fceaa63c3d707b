"""Writes docs/apps.md: how each app is started, and its last results.

The rows give all of the page except the table's last two columns. A run writes those.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.apps.table import REAL_APPS, RealApp

PAGE: Final = Path(__file__).parents[2] / "docs" / "apps.md"
_BEGIN, _END = "<!-- written by tests/apps/page.py -->", "<!-- end -->"
_HEAD: Final = (
    "app",
    "setting for the address",
    "setting for the origin",
    "transport",
    "after a restart of the gateway",
    "version seen",
    "date",
)
_UNSEEN: Final = ("not yet", "–")
Seen = Mapping[str, tuple[str, str]]
"""The version and the day, by an app's title."""


def read_seen(text: str) -> dict[str, tuple[str, str]]:
    """Return the results in the table of *text*."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    titles = {app.title for app in REAL_APPS.values()}
    return {row[0]: (row[-2], row[-1]) for row in rows if row and row[0] in titles}


def render(text: str, seen: Seen) -> str:
    """Return *text* with the rows' table and commands, and the results *seen*."""
    rows = [_row(app, seen.get(app.title, _UNSEEN)) for app in REAL_APPS.values()]
    table = [_line(_HEAD), _line(["---"] * len(_HEAD)), *rows]
    parts = ["\n".join(table), *(_commands(app) for app in REAL_APPS.values())]
    head, _, rest = text.partition(_BEGIN)
    return f"{head}{_BEGIN}\n\n" + "\n\n".join(parts) + f"\n\n{_END}{rest.partition(_END)[2]}"


def write_seen(app: RealApp, version: str, day: str) -> None:
    """Record in the page that *app* works."""
    text = PAGE.read_text()
    PAGE.write_text(render(text, read_seen(text) | {app.title: (version, day)}))


def _line(cells: object) -> str:
    assert isinstance(cells, (list, tuple))
    return "| " + " | ".join(cells) + " |"


def _row(app: RealApp, seen: tuple[str, str]) -> str:
    return _line([app.title, app.path, app.origin, app.transport, app.recovery, *seen])


def _commands(app: RealApp) -> str:
    begins = "" if app.start == "/" else f" Browsers begin at `{app.start}`."
    command = re.sub(r"\s+$", "", app.command)
    return f"## {app.title}\n\nPort {app.port}.{begins}\n\n```sh\n{command}\n```"
