"""Runs every command of every tutorial, in order, in a folder that holds the repository alone."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from deploy.local.processes import die_with_parent
from deploy.local.smoke.gateway import client, open_link

ROOT = Path(__file__).parents[2]
TUTORIALS = ROOT / "docs/tutorials"
READY = "Ctrl-C ends everything"
# The ports in the tutorials; the test waits until they are free.
PORTS = (8480, 8481, 8488, 8600)
PATIENCE_SECONDS = 120.0
# The first command makes the environment.
INSTALL_SECONDS = 900.0
_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.timeout(600)


def commands_of(page: str) -> Iterator[tuple[str, bool]]:
    """Return a tutorial's commands, and for each one whether it stays in the background."""
    for block in _BLOCK.findall(page):
        so_far = ""
        for line in block.splitlines():
            if line.endswith(" &"):
                if so_far:
                    yield so_far, False
                yield line.removesuffix(" &"), True
                so_far = ""
            else:
                so_far += line + "\n"
        if so_far:
            yield so_far, False


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """Provide a folder with the committed files and nothing else."""
    there = tmp_path / "fumarole"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        source = ROOT / name
        if source.is_file():
            (there / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, there / name)
    return there


@pytest.fixture
def installed(empty: Path) -> Path:
    """Provide the same folder after ``make install``, with this environment in place of a new one.

    Programs of the environment do not run in the pods of its cluster, which see this folder alone.
    """
    (empty / ".venv").mkdir()
    for entry in (ROOT / ".venv").iterdir():
        if entry.name != ".installed":
            (empty / ".venv" / entry.name).symlink_to(entry)
    (empty / ".venv/.installed").touch()
    for pages in ("controller/web/build", "gateway/web/build"):
        shutil.copytree(ROOT / pages, empty / pages)
    # The sources have kept their times, so their compiled files are valid here, too.
    for package in ("controller", "deploy", "gateway", "shared"):
        for compiled in (ROOT / package).rglob("__pycache__"):
            shutil.copytree(compiled, empty / compiled.relative_to(ROOT), dirs_exist_ok=True)
    return empty


async def until_free() -> None:
    """Return when no process uses the tutorials' ports."""

    def is_free(port: int) -> bool:
        # A demo holds the UDP port from before it listens until its end.
        with socket.socket() as probe, socket.socket(type=socket.SOCK_DGRAM) as held:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
                held.bind(("127.0.0.1", port))
            except OSError:
                return False
        return True

    async with asyncio.timeout(PATIENCE_SECONDS):
        while not all(map(is_free, PORTS)):
            await asyncio.sleep(0.2)


@contextmanager
def background(command: str, folder: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run *command* until the end of the block, then interrupt it as Ctrl-C does."""
    with log.open("wb") as output:
        running = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=folder,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
    try:
        yield running
    finally:
        os.killpg(running.pid, signal.SIGINT)
        running.wait(PATIENCE_SECONDS)


async def until_written(text: str, log: Path, running: subprocess.Popen[bytes]) -> None:
    """Return when *log* contains *text*."""
    async with asyncio.timeout(INSTALL_SECONDS):
        while text not in log.read_text():
            assert running.poll() is None, log.read_text()
            await asyncio.sleep(0.1)


async def follow_tutorial(name: str, folder: Path, stack: ExitStack) -> list[str]:
    """Run every command of a tutorial; return the output of those in the foreground."""
    printed = []
    await until_free()
    for number, (command, stays) in enumerate(commands_of((TUTORIALS / name).read_text())):
        if not stays:
            done = await asyncio.to_thread(
                subprocess.run,
                ["bash", "-ec", command],
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=PATIENCE_SECONDS,
            )
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
            printed.append(done.stdout)
            continue
        log = folder.parent / f"{number}.log"
        running = stack.enter_context(background(command, folder, log))
        await until_written(READY if command.startswith("make demo") else "8600", log, running)
    return printed


async def seen_in_browser(link: str, text: str) -> None:
    """Open *link* as a browser does, and wait for *text* in the app."""
    async with client() as http, asyncio.timeout(PATIENCE_SECONDS):
        while (opened := await open_link(http, link)) is None:
            await asyncio.sleep(0.1)
        await opened.until_ready()
        async with await opened.get(opened.start) as response:
            assert text in await response.text()


@pytest.mark.needs("curl")
async def test_an_app_of_ones_own_is_opened(installed: Path) -> None:
    with ExitStack() as stack:
        printed = await follow_tutorial("own-app.md", installed, stack)
        text = [one.read_text()[-2000:] for one in sorted(installed.parent.glob("*.log"))]
        assert "#token=" in printed[-1], "\n".join(text)
        await seen_in_browser(printed[-1].strip(), "Directory listing")


@pytest.mark.long
@pytest.mark.timeout(1800)
async def test_all_tutorials_work_in_order_from_a_fresh_clone(empty: Path) -> None:
    with ExitStack() as stack:
        printed = await follow_tutorial("first-session.md", empty, stack)
        async with client() as http, http.get("http://localhost:8480") as response:
            assert response.status == 200
    assert "jupyterlab" in printed[-1].lower()
    for name, text in (("own-orchestrator.md", "JupyterLab"), ("own-app.md", "Directory listing")):
        with ExitStack() as stack:
            printed = await follow_tutorial(name, empty, stack)
            await seen_in_browser(printed[-1].strip(), text)
