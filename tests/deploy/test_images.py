"""Tests that each image's files run alone, without files or packages of the other image.

No Docker engine is needed: the tests read the image files, lay out the copied files in an empty
folder, install the packages into an empty environment, and start the command.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.programs import RedisServer
from tests.shared.samples import SIGNERS, key_set_of

ROOT = Path(__file__).parents[2]
START_SECONDS = 30.0
KUBECONFIG = {
    "apiVersion": "v1", "kind": "Config", "current-context": "none",
    "clusters": [{"name": "none", "cluster": {"server": "https://127.0.0.1:1"}}],
    "users": [{"name": "none", "user": {"token": "none"}}],
    "contexts": [{"name": "none", "context": {"cluster": "none", "user": "none"}}],
}  # fmt: skip


@dataclass(frozen=True)
class Image:
    """The content of an image file: the installed lock, the copied files, the command."""

    lock: str
    copies: tuple[tuple[str, str], ...]
    entrypoint: tuple[str, ...]
    runs: tuple[str, ...]
    script: str
    workdir: str
    user: str

    @classmethod
    def read(cls, path: Path) -> Image:
        text = path.read_text()
        final = text.rsplit("\nFROM ", 1)[1]
        copies = re.findall(r"^COPY (?:--from=\S+ )?(\S+) (/srv\S+)$", final, re.MULTILINE)
        return cls(
            lock=re.findall(r"require-hashes -r (\w+\.txt)", text)[0],
            copies=tuple((source.removeprefix("/build/"), target) for source, target in copies),
            entrypoint=tuple(json.loads(re.findall(r"^ENTRYPOINT (.+)$", final, re.MULTILINE)[0])),
            runs=tuple(re.findall(r"^RUN (python .+)$", final, re.MULTILINE)),
            script=re.findall(r"^RUN (printf (?:.+\\\n)*.+)$", final, re.MULTILINE)[0],
            workdir=re.findall(r"^WORKDIR (\S+)$", final, re.MULTILINE)[0],
            user=re.findall(r"^USER (\S+)$", final, re.MULTILINE)[0],
        )

    def lay_out(self, folder: Path) -> Path:
        """Copy the files as the image has them; return the working directory."""
        ignore = shutil.ignore_patterns("__pycache__", "node_modules", "build")
        for source, target in self.copies:
            built = source.endswith("/build")
            shutil.copytree(
                ROOT / source,
                folder / target.lstrip("/"),
                ignore=None if built else ignore,
                dirs_exist_ok=True,
            )
        return folder / self.workdir.lstrip("/")


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
    with urllib.request.urlopen(f"http://{ops}/healthz", timeout=5) as answer:
        assert answer.status == 200


def without_bytecode(folder: Path) -> list[Path]:
    """Return the modules that a start would have to compile."""
    return [
        one
        for one in folder.rglob("*.py")
        if not list(one.parent.glob(f"__pycache__/{one.stem}.*"))
    ]


def command_of_the_docs(name: str, image: Image, folder: Path) -> str:
    """Install the image's command, run it in another folder, and return the name that it prints."""
    programs = folder / "env/bin"
    script = image.script.replace("/usr/local/bin", str(programs))
    script = script.replace("/srv/", f"{folder}/image/srv/")
    subprocess.run(["sh", "-euc", script], check=True)
    path = {"PATH": f"{programs}:{os.environ['PATH']}"}
    command = [f"fumarole-{name}", "--version"]
    done = subprocess.run(command, cwd=folder, env=path, capture_output=True, text=True, check=True)
    return re.sub(r"\S+$", "", done.stdout.strip())


@pytest.mark.parametrize("name", ["gateway", "controller"])
def test_a_process_starts_with_only_the_files_of_its_image(
    name: str, tmp_path: Path, redis_server: RedisServer
) -> None:
    image = Image.read(ROOT / f"Dockerfile.{name}")
    assert not image.user.startswith(("0", "root"))
    python = make_environment(tmp_path / "env", image.lock)
    workdir = image.lay_out(tmp_path / "image")
    other = {"gateway": "controller", "controller": "gateway"}[name]
    assert {path.name for path in workdir.iterdir()} == {"shared", name}
    assert not (workdir / other).exists()
    command = [str(python), *image.entrypoint[1:]]
    for run in image.runs:
        subprocess.run([python, *run.split()[1:]], cwd=workdir, check=True)
    assert not without_bytecode(workdir), "it would be compiled at each start"

    bare = subprocess.run(command, cwd=workdir, env={"HOME": str(tmp_path)}, capture_output=True)
    assert bare.returncode == 2, bare.stderr.decode()
    assert b"FUMAROLE_LINK_KEY_FILE is not set" in bare.stderr

    assert command_of_the_docs(name, image, tmp_path) == f"fumarole-{name} "

    settings = settings_for(name, tmp_path, redis_server.url)
    process = subprocess.Popen(command, cwd=workdir, env=settings, stderr=subprocess.PIPE)
    try:
        wait_until_healthy(process, tmp_path / "addresses")
    finally:
        process.terminate()
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors.decode()
