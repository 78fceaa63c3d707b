"""Tests the set of mutants, and a module of which some survive its tests."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest

from tests.mutants.mutations import Module
from tests.mutants.results import ROOT, render, summary
from tests.mutants.targets import TARGETS
from tests.mutants.worker import MutantResult


def texts(source: str) -> list[str]:
    return [one.text for one in Module("a.py", "a.py", dedent(source)).mutants()]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("if a < b: pass", ["a < b -> not a < b", "a < b -> a <= b"]),
        ("if a is b: pass", ["a is b -> a is not b"]),
        ("x = a and not b", ["a and (not b) -> a or not b", "not b -> b"]),
        ("x = [True, 1, 'a']", ["True -> False", "1 -> 2", "'a' -> 'XXa'"]),
        ("def f():\n 'Doc.'\n g(a, b)", ["g(a, b) -> pass", "g(a, b) -> g(b, a)"]),
        ("def f(): return g", ["return g -> return None"]),
        ("async def f(): await g()", ["await g() -> pass"]),
        ("self.a = b", ["self.a = b -> pass"]),
        ("x = min(a, b)", ["min(a, b) -> max(a, b)"]),
        ("def f(a: Literal['b'] = 3) -> 'c': pass", ["3 -> 4"]),
        ("log.warning('gone', a, b)", []),
        ("raise No('is gone')", ["raise No('is gone') -> pass"]),
    ],
)  # fmt: skip
def test_each_mutant_changes_one_place(source: str, expected: list[str]) -> None:
    assert texts(source) == expected


def test_a_mutant_is_named_by_its_text_and_not_by_its_line() -> None:
    source = "def f(a):\n    g(a)\n    g(a)\n"
    there = [one.identity for one in Module("a.py", "a.py", source).mutants()]
    moved = [one.identity for one in Module("a.py", "a.py", f"\n\n{source}").mutants()]
    assert (
        there == moved == [f"a.py f removed statement g(a) -> pass{nth}" for nth in ("", " (#2)")]
    )


def test_compiling_a_mutant_changes_the_tree_for_it_alone() -> None:
    module = Module("a.py", "a.py", "x = 1\ny = 2\n")
    for mutant in module.mutants() * 2:
        values: dict[str, int] = {}
        exec(module.compile(mutant), values)
        assert values["x"] + values["y"] == 4


def test_every_target_module_and_its_tests_exist() -> None:
    for target in TARGETS:
        assert (ROOT / target.file).is_file()
        assert all((ROOT / path).exists() for path in target.tests), target.file


def test_the_page_states_why_a_mutant_survived() -> None:
    one, other = Module("a.py", "a.py", "x = 1\ny = 2\n").mutants()
    tried = [MutantResult(one, "passed", 3), MutantResult(other, "failed", 3)]
    found = {"a.py": summary(2, tried), "b.py": summary(2, [])}
    page = render(found, {one.key: "Nobody reads it."}, {"a.py": 2, "b.py": 3})
    assert "| `a.py` | 2 | 2 | 0 | 1 | 50.0 % |" in page
    assert "| `b.py` | 2 (3 now) | 0 | 0 | 0 | 0.0 % |" in page
    assert "| module | constant | `1 -> 2` | Nobody reads it. |" in page


def test_a_bar_in_a_mutant_ends_no_cell_of_the_page() -> None:
    (one,) = Module("a.py", "a.py", "x = 1\n").mutants()
    tried = MutantResult(replace(one, text="a_b | c -> pass"), "passed", 3)
    page = render({"a.py": summary(1, [tried])}, {}, {"a.py": 1})
    assert "| <code>a&#95;b &#124; c -&#62; pass</code> |" in page


DECIDES = """
MOST = 3
LEAST = 18

def may(age, places):
    if places > MOST:
        return False
    return age >= LEAST and places > 0

def never():
    return may(1, 2)
"""
TESTS = """
import subprocess
from deciding import LEAST, MOST, may

def test_who_may_enter():
    # What it leaves running is ended with the mutant.
    subprocess.Popen(["sleep", "600"])
    assert may(30, 1) and may(LEAST, 3) and not may(17, 1)

def test_how_many_may_enter():
    assert not may(30, MOST + 1)

def test_how_old_they_must_be():
    assert not may(LEAST - 1, 1)

def test_what_the_law_says():
    assert LEAST == 18
"""
FREEZES = """
import gc

def pytest_collection_finish():
    # As tests/conftest.py does: the collector lists none of what was imported any more.
    gc.freeze()
"""
MEASURES = """
from pathlib import Path
from tests.mutants.__main__ import in_process
from tests.mutants.mutations import Module
from tests.mutants.worker import Plan

path = Path("deciding.py").resolve()
module = Module("deciding.py", str(path), path.read_text())
for one in in_process(Plan(module, "deciding", module.mutants(), ["test_deciding.py"])):
    print(one.outcome, one.tests, one.mutant.text, sep=": ")
"""


def test_an_undetected_mutant_survives(tmp_path: Path) -> None:
    (tmp_path / "deciding.py").write_text(DECIDES)
    (tmp_path / "test_deciding.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text(FREEZES)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    long: none\n")
    measured = subprocess.run(
        [sys.executable, "-c", MEASURES],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert measured.returncode == 0, measured.stderr
    found = measured.stdout.splitlines()
    survivors = [line for line in found if line.startswith("passed: ")]
    assert "passed: 2: places > 0 -> places >= 0" in survivors
    assert "passed: 0: return may(1, 2) -> return None" in survivors
    # The constant is imported anew, with the functions that read it.
    assert "passed: 4: 3 -> 4" in survivors
    # A test that executes no line of the module may read a constant.
    assert "failed: 4: 18 -> 19" in found
    assert "failed: 2: age >= LEAST -> age > LEAST" in found
    assert "failed: 3: places > MOST -> places >= MOST" in found
    assert "failed: 1: False -> True" in found
