"""The model in docs/ speaks of the same actions as the code, and Spin finds nothing wrong in it."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "docs" / "proxy-events.pml"
FOLLOWING = {
    "gateway/keeping.py": "Keeper",
    "gateway/watching.py": "Watch",
    "gateway/mending.py": "Mender",
    "gateway/follower.py": "Follower",
}
# What the model needs, and the code has no function for.
ABSTRACT = {"copy", "announce", "answered", "script", "learn", "forget", "holds"}


def functions_of(path: str, name: str) -> dict[str, ast.AsyncFunctionDef | ast.FunctionDef]:
    """Return the methods of a class."""
    tree = ast.parse((ROOT / path).read_text())
    (found,) = (one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == name)
    kinds = ast.AsyncFunctionDef | ast.FunctionDef
    return {one.name: one for one in found.body if isinstance(one, kinds)}


def uses(function: ast.AST, *names: str) -> bool:
    """Say whether the function calls one of the methods of its own object."""
    called = {
        ast.unparse(one.func).removeprefix("self.")
        for one in ast.walk(function)
        if isinstance(one, ast.Call)
    }
    return any(name.startswith(names) for name in called)


def publisher_actions() -> set[str]:
    """Return what a publisher can do that reaches Redis' scripts."""
    methods = functions_of("shared/bus/publisher.py", "Publisher")
    acting = ("_change", "_call", "_send", "_notice", "_finish")
    return {n for n, f in methods.items() if not n.startswith("_") and uses(f, *acting)}


def follower_actions() -> set[str]:
    """Return what a follower does with Redis, and with its table."""
    methods: dict[str, ast.AsyncFunctionDef | ast.FunctionDef] = {}
    for path, name in FOLLOWING.items():
        methods |= functions_of(path, name)
    acting = ("_reader.", "table.apply", "table.revoke")
    return {n for n, f in methods.items() if uses(f, *acting)} | {"take"} & set(methods)


def test_the_model_and_the_code_name_the_same_actions() -> None:
    inlines = set(re.findall(r"^inline (\w+)\(", MODEL.read_text(), re.MULTILINE))
    done = publisher_actions() | follower_actions()
    assert inlines - ABSTRACT == done
    assert inlines >= ABSTRACT


def test_every_action_of_the_model_takes_place() -> None:
    text = MODEL.read_text()
    for name in publisher_actions() | follower_actions():
        assert len(re.findall(rf"\b{name}\(", text)) >= 2, f"{name} is named, and never done"


# Leaders, changes, faults, lost answers.
SIZES = [(1, 1, 1, 0), (1, 1, 1, 1)]


def check(folder: Path, text: str, size: tuple[int, int, int, int]) -> str:
    """Return what Spin says of the model *text*."""
    (folder / "model.pml").write_text(text)
    names = ("LEADERS", "CHANGES", "FAULTS", "LOST")
    options = [f"-D{name}={value}" for name, value in zip(names, size, strict=True)]
    compiler = ["cc", "-O2", "-DSAFETY", "-DCOLLAPSE", "-DMEMLIM=4000", "-o", "pan", "pan.c"]
    for command in (["spin", "-a", *options, "model.pml"], compiler):
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    command = ["./pan", "-m400000", "-n"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.mark.long
@pytest.mark.needs("spin")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("size", SIZES)
def test_spin_finds_no_error(tmp_path: Path, size: tuple[int, int, int, int]) -> None:
    told = check(tmp_path, MODEL.read_text(), size)
    assert "errors: 0" in told, told
    assert "max search depth too small" not in told
    assert "out of memory" not in told


@pytest.mark.long
@pytest.mark.needs("spin")
@pytest.mark.timeout(3600)
def test_spin_finds_that_another_table_took_revocations_back(tmp_path: Path) -> None:
    text, right = MODEL.read_text(), "f.shut = f.shut || redis.shut"
    assert right in text
    assert "errors: 1" in check(tmp_path, text.replace(right, "f.shut = redis.shut"), (1, 2, 1, 0))
