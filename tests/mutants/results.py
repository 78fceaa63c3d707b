"""Stores the results, and writes the page of the documentation that shows them."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.mutants.mutations import Module, Mutant
from tests.mutants.worker import MutantResult

HERE: Final = Path(__file__).resolve().parent
RESULTS: Final = HERE / "results.json"
REASONS: Final = HERE / "reasons.toml"
ROOT: Final = HERE.parents[1]
PAGE: Final = ROOT / "docs" / "mutants.md"
NO_REASON: Final = "A test is missing."
# In an element, Markdown and HTML still read these characters.
_PUNCTUATION: Final = re.compile(r"[|&<>*_`~\[\]\\]")

Found = dict[str, Any]

_HEAD: Final = """\
# Mutation score

This page shows how many deliberate mistakes in the most important modules the tests notice.

A mutant is a module with one small mistake in it: a reversed comparison, a negated condition, a
removed statement. The tests near the module have to fail. The score is the share of mutants for
which they do. `make mutants` measures it and writes this page.

- `ONLY=gateway/live` measures one module. The other modules keep their figures.
- `SAMPLE=100` tries a hundred mutants of each module. The choice is the same each time.
- The tests near a module are those that `tests/mutants/targets.py` names, and of these only the
  ones that execute the mutated line. Tests that start whole systems are left out, so the full
  suite notices more. A test that takes longer than 8 seconds is left out too.
- *Timed out* counts as noticed: the tests took longer than three times their usual time and
  15 seconds.
- Docstrings, log lines, annotations, decorators, imports, and sentences in errors are not mutated.
- A survivor stays in the score even when its reason says that the mutant makes no visible
  difference.
- *167 (190 now)*: the module has changed since it was measured, or was joined from several. Its
  other figures are those of the measurement.

"""


def store(found: Mapping[str, Found]) -> None:
    """Add the results to those of other modules."""
    RESULTS.write_text(json.dumps(known() | dict(found), indent=1, sort_keys=True) + "\n")


def known() -> dict[str, Found]:
    """Return the previous results, by file."""
    return dict(json.loads(RESULTS.read_text())) if RESULTS.exists() else {}


def summary(total: int, tried: Sequence[MutantResult]) -> Found:
    """Return the stored form of a module's mutants."""
    survivors = [one for one in tried if one.outcome == "passed"]
    return {
        "mutants": total,
        "tried": len(tried),
        "timed out": sum(one.outcome == "timed out" for one in tried),
        "survivors": [
            {
                "function": one.mutant.function,
                "operator": one.mutant.operator,
                "text": one.mutant.text,
                "tests": one.tests,
            }
            for one in survivors
        ],
    }


def reasons() -> dict[tuple[str, ...], str]:
    """Return why survivors survive, by file, function, operator and text."""
    rows = tomllib.loads(REASONS.read_text()).get("survivor", [])
    return {
        (row["file"], row["function"], row["operator"], row["text"]): row["reason"] for row in rows
    }


def stale(file: str, mutants: Iterable[Mutant]) -> list[str]:
    """Return the reasons that match no mutant of *file*, because the code has changed."""
    there = {one.key for one in mutants}
    return [" ".join(key) for key in reasons() if key[0] == file and key not in there]


def write_page(files: Iterable[str]) -> None:
    """Write the page from the results of *files*."""
    measured = known()
    found = {file: measured[file] for file in files if file in measured}
    sources = {file: (ROOT / file).read_text() for file in found}
    now = {file: len(Module(file, file, source).mutants()) for file, source in sources.items()}
    PAGE.write_text(render(found, reasons(), now))


def render(
    found: Mapping[str, Found], why: Mapping[tuple[str, ...], str], now: Mapping[str, int]
) -> str:
    """Return the page: a table of scores, then each module's survivors.

    *now* is how many mutants each module has today.
    """
    rows = [
        "| Module | Mutants | Tried | Timed out | Survived | Score |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    rows += [_row(f"`{file}`", one, now[file]) for file, one in found.items()]
    rows.append(_row("All", _sum(found.values()), sum(now.values())))
    parts = [_HEAD + "\n".join(rows) + "\n"]
    parts += [_survivors(file, one["survivors"], why) for file, one in found.items()]
    return "\n".join(part for part in parts if part)


def _sum(found: Iterable[Found]) -> Found:
    together: Found = {"mutants": 0, "tried": 0, "timed out": 0, "survivors": []}
    for one in found:
        together = {name: together[name] + one[name] for name in together}
    return together


def _row(name: str, one: Found, now: int) -> str:
    survived = len(one["survivors"])
    mutants = f"{one['mutants']:,}" + (f" ({now:,} now)" if now != one["mutants"] else "")
    return (
        f"| {name} | {mutants} | {one['tried']:,} | {one['timed out']} | {survived} "
        f"| {score(one):.1f} % |"
    )


def score(one: Found) -> float:
    """Return the percentage of mutants that tests noticed."""
    tried = int(one["tried"])
    return 100.0 * (tried - len(one["survivors"])) / tried if tried else 0.0


def _survivors(file: str, survivors: Sequence[Found], why: Mapping[tuple[str, ...], str]) -> str:
    if not survivors:
        return ""
    rows = [f"## {file}", "", "| In | Operator | Mutation | Why it survives |", "|---|---|---|---|"]
    for one in survivors:
        key = (file, one["function"], one["operator"], one["text"])
        unseen = "" if one["tests"] else "No test near it executes the line. "
        function = f"`{one['function']}`" if one["function"] else "module"
        reason = why.get(key) or unseen + NO_REASON
        rows.append(f"| {function} | {one['operator']} | {_code(one['text'])} | {reason} |")
    return "\n".join(rows) + "\n"


def _code(text: str) -> str:
    """Return *text* as code in a table cell; the middle of a long text is left out."""
    short = text if len(text) <= 180 else f"{text[:110]} … {text[-65:]}"
    if "|" in short:
        # GitHub ends a cell at a bare bar, and the site shows the backslash before an escaped one.
        return f"<code>{_PUNCTUATION.sub(lambda one: f'&#{ord(one[0])};', short)}</code>"
    fence = "``" if "`" in short else "`"
    return fence + short + fence
