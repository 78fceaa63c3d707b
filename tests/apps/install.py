"""Installs an app's packages into a folder of its own, outside of the repository."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from benchmarks.install import unpack
from tests.apps.table import RealApp

FOLDER_VARIABLE: Final = "FUMAROLE_APPS_FOLDER"
ROOT: Final = Path(__file__).parents[2]
_SECONDS: Final = 1200
_HEADERS: Final = Path("/usr/include/node/node.h")


class CannotInstall(Exception):
    """An app's packages are not available; the message gives the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """The folder of an app's packages; ``version`` is the app's."""

    folder: Path
    version: str

    def image(self) -> dict[str, Any]:
        """Return the image of the app for the embedded kubelet: the paths that a container sees."""
        environment = {
            "PATH": f"{self.folder / 'venv' / 'bin'}:{os.environ['PATH']}",
            "NPM": str(self.folder / "node_modules"),
            "DEBIAN": str(self.folder / "debian"),
            "PROJECT": str(ROOT),
            "PROJECT_PYTHON": sys.executable,
            "PYTHONUNBUFFERED": "1",
        }
        # If Xvnc is installed, it needs its keyboard maps.
        paths = [self.folder, ROOT / "deploy", Path("/var/lib/xkb")]
        visible = [str(path) for path in paths if path.exists()]
        return {"visible": visible, "environment": environment}


def apps_folder() -> Path:
    """Return the folder of installed apps, which is kept from run to run."""
    given = os.environ.get(FOLDER_VARIABLE)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(given) if given else cache / "fumarole-apps"


def install(app: RealApp, folder: Path) -> Installed:
    """Install *app*, unless the same packages are installed already; return where it is.

    Raises:
        CannotInstall: If a package is not available.
    """
    if app.image:
        return Installed(folder=folder, version=f"{app.name} {version(app.name)}")
    own = folder / app.name
    wanted = [*app.pypi, *app.npm, *app.debian]
    stamp = own / "installed.json"
    if stamp.exists() and (done := json.loads(stamp.read_text()))["wanted"] == wanted:
        return Installed(folder=own, version=done["version"])
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir(parents=True)
    try:
        versions = [*_from_pypi(app, own), *_from_npm(app, own), *_from_debian(app, own)]
    except (OSError, subprocess.SubprocessError) as error:
        output = getattr(error, "stderr", None) or error
        raise CannotInstall(f"{app.title}: {str(output)[-600:]}") from error
    listed = ", ".join(versions)
    stamp.write_text(json.dumps({"wanted": wanted, "version": listed}))
    return Installed(folder=own, version=listed)


def _run(command: list[str], **environment: str) -> None:
    subprocess.run(
        command,
        env=os.environ | environment,
        check=True,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )


def _from_pypi(app: RealApp, own: Path) -> list[str]:
    if app.pypi:
        uv, venv = [sys.executable, "-m", "uv"], own / "venv"
        _run([*uv, "venv", "--quiet", "--python", sys.executable, str(venv)])
        _run([*uv, "pip", "install", "--quiet", "--python", str(venv / "bin/python"), *app.pypi])
    return [package.replace("==", " ") for package in app.pypi]


def _from_npm(app: RealApp, own: Path) -> list[str]:
    if app.npm:
        # Compiled packages need Node's headers: the system's, if there are any.
        headers = {"npm_config_nodedir": "/usr"} if _HEADERS.exists() else {}
        options = ["--silent", "--no-fund", "--no-audit", "--prefix", str(own)]
        _run(["npm", "install", *options, *app.npm], **headers)
    return [re.sub(r"(?<=.)@", " ", package) for package in app.npm]


def _from_debian(app: RealApp, own: Path) -> list[str]:
    root = own / "debian"
    return [f"{name} {unpack(name, root, [])[name]}" for name in app.debian]
