"""Tests that each image's files run alone, without files or packages of the other image.

No Docker engine is needed: the tests read the image files, lay out the copied files in an empty
folder, install the packages into an empty environment, and start the command.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest

from shared.version import VERSION
from tests.controller.test_restore_running import world_of
from tests.deploy.kubernetes.manifests import read
from tests.deploy.test_wheel import IMPORT_ALL
from tests.programs import RedisServer
from tests.shared.samples import SIGNERS, key_set_of

ROOT = Path(__file__).parents[2]
NAMES = ("gateway", "controller")
START_SECONDS = 30.0
SHARE_AT_START = 0.75
"""Of the memory that a pod requests; the rest is for what it serves."""
KUBECONFIG = {
    "apiVersion": "v1", "kind": "Config", "current-context": "none",
    "clusters": [{"name": "none", "cluster": {"server": "https://127.0.0.1:1"}}],
    "users": [{"name": "none", "user": {"token": "none"}}],
    "contexts": [{"name": "none", "context": {"cluster": "none", "user": "none"}}],
}  # fmt: skip


@dataclass(frozen=True)
class Image:
    """The content of an image file: the installed lock, the steps for /srv, the command."""

    lock: str
    steps: tuple[tuple[str, str], ...]
    entrypoint: tuple[str, ...]
    script: str
    workdir: str
    user: str
    final: str

    @classmethod
    def read(cls, path: Path) -> Image:
        text = re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE)
        build, final = text.split("\nFROM ")[1:]
        steps = re.findall(r"^(COPY|RUN) ((?:.+\\\n)*.+)$", build, re.MULTILINE)
        first = build.partition("WORKDIR /srv/fumarole")[0].count("\nCOPY")
        first += build.partition("WORKDIR /srv/fumarole")[0].count("\nRUN")
        assert "COPY --from=build /srv/fumarole /srv/fumarole\n" in final
        return cls(
            lock=re.findall(r"-r (gateway|controller)\.txt", build)[0] + ".txt",
            steps=tuple(steps[first:]),
            entrypoint=tuple(json.loads(re.findall(r"^ENTRYPOINT (.+)$", final, re.MULTILINE)[0])),
            script=re.findall(r"^RUN (printf (?:.+\\\n)*.+)$", final, re.MULTILINE)[0],
            workdir=re.findall(r"^WORKDIR (\S+)$", final, re.MULTILINE)[0],
            user=re.findall(r"^USER (\S+)$", final, re.MULTILINE)[0],
            final=final,
        )

    def lay_out(self, folder: Path, programs: Path) -> Path:
        """Carry out the steps that make the image's working directory; return the directory."""
        workdir = folder / self.workdir.lstrip("/")
        workdir.mkdir(parents=True)
        for web in ROOT.glob("*/web/build"):  # the earlier steps build these
            shutil.copytree(web, folder / "build" / web.relative_to(ROOT))
        for word, text in self.steps:
            if word == "COPY":
                source, target = text.split()
                shutil.copytree(ROOT / source, workdir / target, ignore=ignored_by_docker)
            else:
                script = text.replace("/build/", f"{folder}/build/")
                path = {"PATH": f"{programs}:{os.environ['PATH']}"}
                subprocess.run(["sh", "-euc", script], cwd=workdir, env=path, check=True)
        return workdir


def ignored_by_docker(folder: str, names: list[str]) -> set[str]:
    """Return the names in *folder* that .dockerignore keeps out of the images."""
    here = Path(folder).relative_to(ROOT)
    patterns = (ROOT / ".dockerignore").read_text().split()
    return {
        name
        for name in names
        for pattern in patterns
        if fnmatchcase(str(here / name), pattern)
        or (pattern.startswith("**/") and fnmatchcase(name, pattern.removeprefix("**/")))
    }


def make_environment(folder: Path, lock: str) -> Path:
    """Install *lock* into an empty environment; return its Python."""
    uv = Path(sys.prefix) / "bin" / "uv"
    quiet = {"check": True, "capture_output": True}
    subprocess.run([uv, "venv", "--python", sys.executable, folder], **quiet)  # type: ignore[call-overload]  # one dict
    python = folder / "bin" / "python"
    sync = [uv, "pip", "sync", "--require-hashes", "--python", python, ROOT / "deploy/locks" / lock]
    subprocess.run(sync, **quiet)  # type: ignore[call-overload]  # one dict
    return python


def settings_for(name: str, folder: Path, redis_url: str) -> dict[str, str]:
    """Return the environment of a process of its own."""
    files = {
        "link": base64.b64encode(os.urandom(32)).decode(),
        "grants": base64.b64encode(os.urandom(32)).decode(),
        "jwks": key_set_of(SIGNERS["EdDSA"]).decode(),
        "kubeconfig": json.dumps(KUBECONFIG),
    }
    for file, text in files.items():
        (folder / file).write_text(text)
    prefix = f"FUMAROLE_{name.upper()}"
    settings = {
        "FUMAROLE_REDIS_URL": redis_url,
        "FUMAROLE_LINK_KEY_FILE": str(folder / "link"),
        f"{prefix}_LISTEN": "127.0.0.1:0",
        f"{prefix}_OPS_LISTEN": "127.0.0.1:0",
        f"{prefix}_ADDRESS_FILE": str(folder / "addresses"),
        f"{prefix}_PUBLIC_URL": "http://localhost:8480",
        f"{prefix}_TOKEN_ISSUER": "http://localhost:8481",
        f"{prefix}_TOKEN_JWKS": str(folder / "jwks"),
    }
    own = {
        "gateway": {
            "FUMAROLE_GATEWAY_GRANT_KEY_FILE": str(folder / "grants"),
            "FUMAROLE_GATEWAY_UPSTREAM_NETWORKS": "127.0.0.0/8",
        },
        "controller": {
            "FUMAROLE_CONTROLLER_STATE_FOLDER": str(folder),
            "FUMAROLE_CONTROLLER_HUB_LISTEN": "127.0.0.1:0",
            "FUMAROLE_CONTROLLER_HUB_ADVERTISE": "127.0.0.1:0",
            "KUBECONFIG": str(folder / "kubeconfig"),
        },
    }
    return settings | own[name]


def wait_until_healthy(process: subprocess.Popen[bytes], addresses: Path) -> None:
    """Return when the process' ops listener reports that it is alive."""
    deadline = time.monotonic() + START_SECONDS
    while not addresses.exists():
        assert process.poll() is None, process.communicate()[1].decode()
        assert time.monotonic() < deadline, "it does not listen"
        time.sleep(0.05)
    ops = json.loads(addresses.read_text())["ops"]
    with urllib.request.urlopen(f"http://{ops}/healthz", timeout=5) as response:
        assert response.status == 200


def without_bytecode(folder: Path) -> list[Path]:
    """Return the modules that a start would have to compile."""
    return [
        one
        for one in folder.rglob("*.py")
        if not list(one.parent.glob(f"__pycache__/{one.stem}.*"))
    ]


@dataclass(frozen=True)
class Made:
    """An image's files in a folder, and an environment with its packages alone."""

    name: str
    image: Image
    folder: Path
    workdir: Path
    programs: Path

    @property
    def command(self) -> list[str]:
        """The image's command."""
        return [str(self.programs / "python"), *self.image.entrypoint[1:]]

    def read_only(self, writable: Path) -> Path:
        """Return a program that runs the image's command, at its place, where only *writable* is.

        It runs as the image's user, who has no rights beyond its own.
        """
        quoted = {key: shlex.quote(str(path)) for key, path in
                  {"workdir": self.workdir, "writable": writable}.items()}  # fmt: skip
        number = self.image.user.partition(":")[0]
        mounts = (
            "mount -t tmpfs tmpfs /srv && mkdir /srv/fumarole"
            f" && mount --bind {quoted['workdir']} /srv/fumarole"
            " && mount -o remount,bind,ro /srv/fumarole"
            f" && mount --bind {quoted['writable']} {quoted['writable']}"
            " && mount -o remount,bind,ro / && cd /srv/fumarole"
            f' && exec unshare -U --map-user={number} --map-group={number} "$@"'
        )
        words = shlex.join(["unshare", "-Urm", "sh", "-euc", mounts, "pod", *self.command])
        program = self.folder / f"read-only-{self.name}"
        program.write_text(f'#!/bin/sh\nexport TMPDIR={quoted["writable"]}\nexec {words} "$@"\n')
        program.chmod(0o755)
        return program


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Made]:
    """Return a function that makes an image's files and environment, once."""

    @cache
    def make(name: str) -> Made:
        folder = tmp_path_factory.mktemp(name)
        image = Image.read(ROOT / f"Dockerfile.{name}")
        programs = make_environment(folder / "env", image.lock).parent
        workdir = image.lay_out(folder / "image", programs)
        script = image.script.replace("/usr/local/bin", str(programs))
        script = script.replace("/srv/", f"{folder}/image/srv/")
        subprocess.run(["sh", "-euc", script], check=True)
        return Made(name, image, folder, workdir, programs)

    return make


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    found = re.findall(r"^VmRSS:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.M)
    return int(found[0]) * 1024


def requested_bytes(deployment: str) -> int:
    """Return the memory that the manifests request for a Deployment's container."""
    for one in read("base/controller.yaml", "base/hub.yaml", "base/gateway.yaml"):
        if one["kind"] == "Deployment" and one["metadata"]["name"] == deployment:
            (container,) = one["spec"]["template"]["spec"]["containers"]
            request: str = container["resources"]["requests"]["memory"]
            return int(request.removesuffix("Mi")) << 20
    raise AssertionError(deployment)


@pytest.mark.parametrize("name", NAMES)
def test_an_image_holds_what_its_process_needs_and_no_more(
    name: str, made: Callable[[str], Made]
) -> None:
    image = made(name)
    assert {path.name for path in image.workdir.iterdir()} == {"shared", name}
    assert not image.image.user.startswith(("0", "root"))
    assert not without_bytecode(image.workdir), "it would be compiled at each start"
    assert 'sysconfig.get_path("stdlib")' in image.image.final, "it has no bytecode either"
    assert [path.name for path in (image.workdir / name / "web").iterdir()] == ["build"]
    unreadable = [path for path in image.workdir.rglob("*") if not path.stat().st_mode & 0o004]
    assert not unreadable

    done = subprocess.run(
        [*image.command[:1], "-c", IMPORT_ALL, name],
        cwd=image.workdir, env={}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_an_image_has_the_command_of_the_docs(
    name: str, made: Callable[[str], Made], tmp_path: Path
) -> None:
    path = {"PATH": f"{made(name).programs}:{os.environ['PATH']}"}
    command = [f"fumarole-{name}", "--version"]
    done = subprocess.run(command, cwd=tmp_path, env=path, capture_output=True, text=True)
    assert done.stdout.split() == [f"fumarole-{name}", VERSION], done.stderr
    done = subprocess.run(command[:1], cwd=tmp_path, env=path, capture_output=True, text=True)
    assert done.returncode == 2
    assert "FUMAROLE_LINK_KEY_FILE is not set" in done.stderr


@pytest.mark.parametrize(
    ("name", "roles"), [("gateway", ""), ("controller", "api,reconciler"), ("controller", "hub")]
)
def test_a_process_starts_within_the_memory_that_its_pod_requests(
    name: str,
    roles: str,
    made: Callable[[str], Made],
    tmp_path: Path,
    redis_server: RedisServer,
) -> None:
    image = made(name)
    settings = settings_for(name, tmp_path, redis_server.url)
    if roles:
        settings["FUMAROLE_CONTROLLER_ROLES"] = roles
    process = subprocess.Popen(
        image.command, cwd=image.workdir, env=settings, stderr=subprocess.PIPE
    )
    try:
        wait_until_healthy(process, tmp_path / "addresses")
        deployment = f"fumarole-{'hub' if roles == 'hub' else name}"
        assert resident_bytes(process.pid) < SHARE_AT_START * requested_bytes(deployment)
    finally:
        process.terminate()
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors.decode()


@pytest.mark.needs("namespaces")
@pytest.mark.timeout(300)
async def test_a_session_is_opened_by_the_images_on_a_read_only_file_system(
    made: Callable[[str], Made], redis_server: RedisServer, tmp_path: Path
) -> None:
    programs = {name: made(name).read_only(tmp_path) for name in NAMES}
    store = f"sqlite:///{tmp_path}/store.db"
    async with world_of(tmp_path, redis_server.url, store, programs=programs) as world:
        await world.run("web")
        await world.enter("page", "web")
        assert (await world.look("page")).text.startswith("web ")
