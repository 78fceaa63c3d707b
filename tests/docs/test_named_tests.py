"""Tests that every test and every path of tests/ that the documentation names exists."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in sorted({*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")})
}
CITED = re.compile(r"([\w/.]+\.py)::(test_\w+)")
PATH = re.compile(r"(?<![\w/.-])tests/[\w/.-]*\w")
# This page shows a plugin of another package, with the tests of that package.
OTHERS = "docs/plugins/write-your-own.md"


@functools.cache
def functions_of(path: Path) -> set[str]:
    """Return the names of the test functions that the module *path* defines."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)}


CITATIONS = sorted(
    {(page, *found) for page, text in PAGES.items() for found in CITED.findall(text)}
)


def test_the_pages_name_many_tests() -> None:
    assert len(CITATIONS) > 100
    assert {"docs/security.md", "docs/plugins/promises.md"} <= {page for page, *_ in CITATIONS}


def test_every_cited_test_exists() -> None:
    missing = [
        (page, path, name)
        for page, path, name in CITATIONS
        if not (ROOT / path).is_file() or name not in functions_of(ROOT / path)
    ]
    assert missing == []


@pytest.mark.parametrize("page", [page for page in PAGES if page != OTHERS])
def test_every_path_of_tests_on_a_page_exists(page: str) -> None:
    named = {path.rstrip(".") for path in PATH.findall(PAGES[page])}
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_every_test_named_without_its_file_exists() -> None:
    known: set[str] = set()
    for path in (ROOT / "tests").rglob("*.py"):
        known |= {path.stem, *functions_of(path)}
    named = {
        (page, name)
        for page, text in PAGES.items()
        if page != OTHERS
        for name in re.findall(r"`(?:[\w/.]+/)?(test_\w+)(?:\.py)?`", text)
    }
    assert {one for one in named if one[1] not in known} == set()
