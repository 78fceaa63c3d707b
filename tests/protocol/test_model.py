"""Tests that the model in docs/ has the same actions as the code, and that Spin finds no error."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "docs" / "proxy-events.pml"
FOLLOWING = {
    "gateway/bus/holder.py": "RouteTableHolder",
    "gateway/bus/head_poller.py": "HeadPoller",
    "gateway/bus/repairer.py": "Repairer",
    "gateway/bus/follower.py": "Follower",
}
# Actions that the model needs, and for which the code has no function.
ABSTRACT = {"copy", "drop", "go_back", "announce", "answered", "script", "learn", "forget", "holds"}

# A sign-out: one gateway ends one grant of its own. The store learns of it by a report, and the
# resulting revocation is like any other.
LOCAL = {"_sign_out"}


def functions_of(path: str, name: str) -> dict[str, ast.AsyncFunctionDef | ast.FunctionDef]:
    """Return the methods of a class."""
    tree = ast.parse((ROOT / path).read_text())
    (found,) = (one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == name)
    kinds = ast.AsyncFunctionDef | ast.FunctionDef
    return {one.name: one for one in found.body if isinstance(one, kinds)}


def uses(function: ast.AST, *names: str) -> bool:
    """Return whether the function calls one of the methods of its own object."""
    called = {
        ast.unparse(one.func).removeprefix("self.")
        for one in ast.walk(function)
        if isinstance(one, ast.Call)
    }
    return any(name.startswith(names) for name in called)


def publisher_actions() -> set[str]:
    """Return the publisher's actions that reach Redis' scripts."""
    methods = functions_of("shared/bus/publisher.py", "Publisher")
    acting = ("_change", "_call", "_send", "_notice", "_finish")
    return {n for n, f in methods.items() if not n.startswith("_") and uses(f, *acting)}


def follower_actions() -> set[str]:
    """Return the follower's actions on Redis and on its table."""
    methods: dict[str, ast.AsyncFunctionDef | ast.FunctionDef] = {}
    for path, name in FOLLOWING.items():
        methods |= functions_of(path, name)
    acting = ("_reader.", "reader.", "table.apply", "table.revoke")
    acts = {n for n, f in methods.items() if uses(f, *acting)} - LOCAL
    return acts | {"take"} & set(methods)


def test_the_model_and_the_code_name_the_same_actions() -> None:
    inlines = set(re.findall(r"^inline (\w+)\(", MODEL.read_text(), re.MULTILINE))
    done = publisher_actions() | follower_actions()
    assert inlines - ABSTRACT == done
    assert inlines >= ABSTRACT


def test_every_action_of_the_model_occurs() -> None:
    text = MODEL.read_text()
    for name in publisher_actions() | follower_actions():
        assert len(re.findall(rf"\b{name}\(", text)) >= 2, f"{name} is named, and never done"


Size = tuple[int, int, int, int]
"""Leaders, changes, faults, lost answers."""
SMALL: Size = (1, 1, 1, 0)
WHOLE: list[Size] = [(1, 2, 2, 1), (2, 1, 1, 0)]
LARGE: Size = (2, 2, 2, 1)
LARGE_MINUTES = 10
"""For a search that keeps a few bits of each state: it needs no more memory than it is given."""


def check(folder: Path, text: str, size: Size, *, large: bool = False) -> str:
    """Return Spin's output for the model *text*."""
    (folder / "model.pml").write_text(text)
    names = ("LEADERS", "CHANGES", "FAULTS", "LOST")
    options = [f"-D{name}={value}" for name, value in zip(names, size, strict=True)]
    states = ["-DBITSTATE"] if large else ["-DCOLLAPSE", "-DMEMLIM=8000"]
    # For a small search, optimising costs more time than it saves.
    compiler = ["cc", "-O0" if size == SMALL else "-O2", "-DSAFETY", *states, "-o", "pan", "pan.c"]
    for command in (["spin", "-a", *options, "model.pml"], compiler):
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    command = ["./pan", "-m1000000", "-n", *(["-w34", f"-Q{LARGE_MINUTES}"] if large else [])]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.mark.needs("spin")
def test_spin_finds_no_error_in_a_small_world(tmp_path: Path) -> None:
    output = check(tmp_path, MODEL.read_text(), SMALL)
    assert "errors: 0" in output, output


@pytest.mark.long
@pytest.mark.needs("spin")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("size", WHOLE)
def test_spin_finds_no_error(tmp_path: Path, size: Size) -> None:
    output = check(tmp_path, MODEL.read_text(), size)
    assert "errors: 0" in output, output
    assert "max search depth too small" not in output
    assert "out of memory" not in output


@pytest.mark.long
@pytest.mark.needs("spin")
@pytest.mark.timeout(3600)
def test_spin_finds_no_error_in_ten_minutes(tmp_path: Path) -> None:
    assert "errors: 0" in check(tmp_path, MODEL.read_text(), LARGE, large=True)


@pytest.mark.long
@pytest.mark.needs("spin")
@pytest.mark.parametrize(
    ("right", "wrong", "size"),
    [
        # Another table takes revocations back.
        ("f.shut = f.shut || redis.shut", "f.shut = redis.shut", (1, 2, 1, 0)),
        # An epoch that was left comes back by a failover.
        ("(head_term == f.term && head_build < f.build)", "false", (1, 1, 2, 0)),
        # An old leader rebuilds the table that another leader has built.
        ("redis.term > my_term -> goto deposed", "false -> goto deposed", (2, 1, 0, 0)),
    ],
)
def test_spin_finds_seeded_errors(tmp_path: Path, right: str, wrong: str, size: Size) -> None:
    text = MODEL.read_text()
    assert text.count(right) == 1
    assert "errors: 1" in check(tmp_path, text.replace(right, wrong), size)
