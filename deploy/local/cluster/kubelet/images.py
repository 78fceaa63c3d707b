"""The local programs behind the names of images. Add an image here, and only here.

A name is matched without registry and tag: ``quay.io/jupyter/base-notebook:1`` is
``jupyter/base-notebook``. A name that is not in the table fails like a pull of a missing image.

The environment variable `MORE_VARIABLE` names a JSON file of further images: each has a name,
``visible`` (paths), ``environment`` and, optionally, ``user``.
"""

import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[4]
MORE_VARIABLE: Final = "FUMAROLE_CLUSTER_IMAGES"
_HOME: Final = "/work"
_SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Image:
    """The content of an image.

    Attributes:
        entrypoint: The beginning of the command; a container's ``command`` replaces it.
        command: Its arguments; ``command`` or ``args`` of a container replace them.
        environment: Variables, which those of the container override.
        visible: Paths of this machine that are visible read-only, in addition to the system's own.
        working_dir: The folder where the program starts: a writable folder of the container.
        user: The numeric user as which the program sees itself.
    """

    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    visible: tuple[Path, ...] = ()
    working_dir: str = _HOME
    user: int = 1000


def find_image(name: str) -> Image | None:
    """Return the image *name*, or None."""
    bare = name.partition("@")[0]
    head, slash, tail = bare.rpartition("/")
    bare = head + slash + tail.partition(":")[0]
    images = {**IMAGES, **_read_more()}
    while bare not in images:
        first, slash, rest = bare.partition("/")
        # Only a part that looks like a host is removed, as in a real reference.
        if not slash or not ("." in first or ":" in first or first == "localhost"):
            return None
        bare = rest
    return images[bare]


def _python_paths() -> tuple[Path, ...]:
    """Return the paths that this interpreter needs."""
    paths = [Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable).resolve().parent.parent]
    return tuple(dict.fromkeys([*paths, *(path.resolve() for path in paths)]))


def _existing(*paths: str) -> tuple[Path, ...]:
    return tuple(Path(path) for path in paths if os.path.exists(path))


def _environment(**more: str) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:{_SYSTEM_PATH}"
    return {"PATH": path, "HOME": _HOME, "LANG": "C.UTF-8", **more}


_PYTHON: Final = Image(
    command=(sys.executable,),
    environment=_environment(PYTHONUNBUFFERED="1"),
    visible=_python_paths(),
)
_SHELL: Final = Image(
    # A signal interrupts `wait`, so the shell ends at once when it is asked to.
    command=("bash", "-c", "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done"),
    environment=_environment(PS1="\\u@\\h:\\w\\$ "),
    visible=_python_paths(),
)


@cache
def _read_more() -> dict[str, Image]:
    """Return the further images. They are read late, since this process may be a fork."""
    path = os.environ.get(MORE_VARIABLE)
    if path is None:
        return {}
    return {
        name: replace(
            _PYTHON,
            environment=_environment(**image["environment"]),
            visible=(*_python_paths(), *map(Path, image["visible"])),
            user=image.get("user", _PYTHON.user),
        )
        for name, image in json.loads(Path(path).read_text()).items()
    }


IMAGES: Final[Mapping[str, Image]] = {
    "jupyter/base-notebook": Image(
        entrypoint=(sys.executable, "-m", "jupyterlab"),
        command=("--ip=0.0.0.0", "--port=8888", "--no-browser", "--IdentityProvider.token="),
        environment=_environment(JUPYTER_PREFER_ENV_PATH="0"),
        visible=_python_paths(),
    ),
    "shell": _SHELL,
    "debian": replace(_SHELL, command=("bash",)),
    "desktop": Image(
        entrypoint=(sys.executable, "-m", "deploy.local.apps.desktop"),
        environment=_environment(PYTHONPATH=str(ROOT), PYTHONUNBUFFERED="1"),
        # Xvnc, if it is installed, needs its keyboard maps.
        visible=(*_python_paths(), ROOT / "deploy", *_existing("/var/lib/xkb")),
    ),
    "python": _PYTHON,
    # TensorBoard, if it is installed in this environment.
    "tensorflow/tensorflow": _PYTHON,
    "busybox": Image(
        command=(shutil.which("sh", path=os.defpath) or "/bin/sh",), environment=_environment()
    ),
}
