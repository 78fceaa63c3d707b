"""What is built for others: a wheel has all that a process needs, and nothing of the build."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from shared.version import VERSION

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, ROOT / "gateway" / "web" / "build.py"], check=True, timeout=300)
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=120, capture_output=True)
    return folder


@pytest.mark.needs("node")
def test_the_wheel_has_the_built_pages_and_not_their_sources(dist: Path) -> None:
    with zipfile.ZipFile(dist / f"fumarole-{VERSION}-py3-none-any.whl") as wheel:
        names = wheel.namelist()
    built = [name for name in names if name.startswith("gateway/web/build/")]
    assert "gateway/web/build/manifest.json" in built
    assert {name.rpartition(".")[2] for name in built} >= {"js", "css", "svg", "txt"}
    sources = [name for name in names if name.startswith("gateway/web/") and name not in built]
    assert sources == []
    assert {f"{one}/py.typed" for one in ("shared", "controller", "gateway")} <= set(names)
    assert not [name for name in names if name.startswith(("tests/", "deploy/", "benchmarks/"))]


@pytest.mark.needs("node")
def test_a_wheel_can_be_built_from_the_sdist_without_node(dist: Path, tmp_path: Path) -> None:
    with tarfile.open(dist / f"fumarole-{VERSION}.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    source = tmp_path / f"fumarole-{VERSION}"
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=source, check=True, timeout=120, capture_output=True)
    name = f"fumarole-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(dist / name) as here, zipfile.ZipFile(tmp_path / name) as there:
        assert there.namelist() == here.namelist()


@pytest.mark.needs("node")
def test_programs_of_an_installed_wheel_find_their_pages(dist: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(dist / f"fumarole-{VERSION}-py3-none-any.whl") as wheel:
        wheel.extractall(tmp_path / "site")
    program = (
        "import gateway.__main__, controller.__main__, controller.store.migrations as m\n"
        "from gateway.pages.assets import load_assets\n"
        "load_assets()\n"
        "print(gateway.__file__, m.__file__)"
    )
    env = os.environ | {"PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    for path in done.stdout.split():
        assert Path(path).is_relative_to(tmp_path / "site")
