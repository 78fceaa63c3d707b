"""Tests that every import is declared as a dependency, and every dependency is imported."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS: Mapping[str, list[str]] = PROJECT["project"]["optional-dependencies"]
OURS = ("shared", "gateway", "controller", "deploy", "benchmarks", "tests")
# A part of another package, whose documentation presents it as its own.
PARTS = {"pydantic_core": "pydantic"}


def names_of(requirements: list[Any]) -> set[str]:
    """Return the packages in a list, including those of its included groups."""
    groups = [PROJECT["dependency-groups"][one["include-group"]]
              for one in requirements if isinstance(one, dict)]  # fmt: skip
    own = {canonicalize_name(Requirement(one).name) for one in requirements if isinstance(one, str)}
    return own.union(*map(names_of, groups))


BASE = names_of(PROJECT["project"]["dependencies"])
EVERYTHING = BASE.union(
    names_of(PROJECT["dependency-groups"]["dev"]), *map(names_of, EXTRAS.values())
)


def imports_of(folder: str) -> Iterator[tuple[str, str]]:
    """Yield the third-party packages that the modules of *folder* import, with the place."""
    for path in (ROOT / folder).rglob("*.py"):
        if "node_modules" in path.parts or "build" in path.parts:
            continue
        for node in _outside_of_type_checking(ast.parse(path.read_text())):
            names = [one.name for one in node.names]
            if isinstance(node, ast.ImportFrom):
                names = [node.module] if node.module and not node.level else []
            for name in {PARTS.get(top, top) for top in (one.partition(".")[0] for one in names)}:
                if name not in sys.stdlib_module_names and name not in OURS:
                    yield name, str(path.relative_to(ROOT))


def _outside_of_type_checking(module: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
    statements: list[Any] = [*module.body]
    while statements:
        one = statements.pop()
        if isinstance(one, ast.Import | ast.ImportFrom):
            yield one
        elif not (isinstance(one, ast.If) and ast.unparse(one.test) == "TYPE_CHECKING"):
            for blocks in ("body", "orelse", "finalbody", "handlers", "cases"):
                statements += getattr(one, blocks, ())


@cache
def packages_of(folder: str) -> Mapping[str, str]:
    """Return the packages that *folder* imports, each with one of the places."""
    there = packages_distributions()
    return {canonicalize_name(there[name][0]): where for name, where in imports_of(folder)}


@pytest.mark.parametrize(
    ("folder", "extras"),
    [("shared", ()), ("gateway", ("gateway",)), ("controller", ("controller", "s3"))],
)
def test_each_process_declares_what_it_imports(folder: str, extras: tuple[str, ...]) -> None:
    declared = BASE.union(*(names_of(EXTRAS[extra]) for extra in extras))
    found = packages_of(folder)
    assert {name: where for name, where in found.items() if name not in declared} == {}
    own = declared - BASE if extras else set[str]()
    assert own <= found.keys()


@pytest.mark.parametrize("folder", ["deploy", "benchmarks", "tests"])
def test_development_imports_are_declared_for_development(folder: str) -> None:
    found = packages_of(folder)
    assert {name: where for name, where in found.items() if name not in EVERYTHING} == {}


def test_common_dependencies_are_used_by_both_processes() -> None:
    used = [packages_of("shared").keys() | packages_of(one).keys() for one in OURS[1:3]]
    assert used[0] & used[1] >= BASE


def test_every_lock_holds_the_declared_dependencies() -> None:
    for lock, wanted in (
        ("gateway", BASE | names_of(EXTRAS["gateway"])),
        ("controller", BASE | names_of(EXTRAS["controller"]) | names_of(EXTRAS["s3"])),
        ("dev", EVERYTHING),
    ):
        text = (ROOT / f"deploy/locks/{lock}.txt").read_text()
        assert wanted <= set(re.findall(r"^([a-z0-9-]+)==", text, re.M)), lock


def test_the_supported_pythons_are_the_same_everywhere() -> None:
    """The oldest one is what tools check against; the images' one is supported, too."""
    tools, project = PROJECT["tool"], PROJECT["project"]
    oldest = project["requires-python"].removeprefix(">=")
    assert tools["mypy"]["python_version"] == oldest
    assert tools["ruff"]["target-version"] == f"py{oldest.replace('.', '')}"
    assert f"--python-version {oldest} " in (ROOT / "deploy/lock.sh").read_text()
    assert f"Python {oldest} or newer is needed" in (ROOT / "deploy/install.sh").read_text()
    stated = [
        one.removeprefix("Programming Language :: Python :: ")
        for one in project["classifiers"]
        if one.startswith("Programming Language :: Python :: 3.")
    ]
    assert stated[0] == oldest
    for name in ("controller", "gateway"):
        (base,) = re.findall(r"^ARG BASE=.+:([0-9.]+)-slim$",
                             (ROOT / f"Dockerfile.{name}").read_text(), re.M)  # fmt: skip
        assert base in stated
