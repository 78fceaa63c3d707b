"""Tests the pages' build: done once, repeated after a change, and refused without Node.js."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]
WEB = ROOT / "gateway" / "web"
FILES = ("build.py", "build.mjs", "package.json", "package-lock.json")


def load_script() -> ModuleType:
    """Load build.py as a module; its name alone would be ambiguous beside the folder build/."""
    spec = spec_from_file_location("build_script", WEB / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build = load_script()


@pytest.mark.parametrize("web", [WEB, ROOT / "controller" / "web"], ids=["gateway", "controller"])
def test_the_npm_lock_names_no_registry(web: Path) -> None:
    lock = (web / "package-lock.json").read_text()
    assert "resolved" not in lock
    packages = json.loads(lock)["packages"]
    assert all("integrity" in package for name, package in packages.items() if name)


def test_the_fingerprint_changes_with_every_source(tmp_path: Path) -> None:
    folder = copy(tmp_path)
    before = build.fingerprint(folder)
    assert build.fingerprint(folder) == before
    (folder / "src" / "open.js").write_text("1")
    changed = build.fingerprint(folder)
    assert changed != before
    (folder / "src" / "open.js").rename(folder / "src" / "other.js")
    assert build.fingerprint(folder) != changed


def test_an_up_to_date_build_is_not_repeated(tmp_path: Path) -> None:
    folder = copy(tmp_path)
    (folder / "build").mkdir()
    (folder / "build" / ".stamp").write_text(build.fingerprint(folder))
    # This PATH holds no node, and no other program.
    done = run(folder, path=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_without_node_the_build_names_what_is_needed(tmp_path: Path) -> None:
    folder = copy(tmp_path)
    done = run(folder, path=str(tmp_path))
    assert done.returncode == 1
    assert "node 20 or newer is needed" in done.stderr


def test_an_old_node_is_refused(tmp_path: Path) -> None:
    folder = copy(tmp_path)
    for name in ("node", "npm"):
        program = tmp_path / name
        program.write_text("#!/bin/sh\necho v18.20.4\n")
        program.chmod(0o755)
    done = run(folder, path=str(tmp_path))
    assert "node 20 or newer is needed" in done.stderr


@pytest.mark.needs("node")
def test_every_asset_named_by_a_page_is_in_the_build() -> None:
    manifest = json.loads((WEB / "build" / "manifest.json").read_text())
    names = set(re.findall(r'"src/([\w.-]+)"', (WEB / "build.mjs").read_text()))
    assert manifest.keys() == names | {"licences.txt"}
    assert all((WEB / "build" / hashed).stat().st_size for hashed in manifest.values())


def copy(tmp_path: Path) -> Path:
    folder = tmp_path / "web"
    folder.mkdir()
    for name in FILES:
        shutil.copy(WEB / name, folder / name)
    shutil.copytree(WEB / "src", folder / "src")
    return folder


def run(folder: Path, *, path: str) -> subprocess.CompletedProcess[str]:
    # -S excludes the environment's own packages, which may contain a node.
    return subprocess.run(
        [sys.executable, "-S", str(folder / "build.py")],
        env={"PATH": path, "HOME": os.environ.get("HOME", "/")},
        capture_output=True,
        text=True,
    )
