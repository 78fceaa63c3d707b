"""Tests containers on a kernel that forbids namespaces: plain processes of this machine."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from deploy.local.cluster.kubelet.sandboxes import Sandbox


def runs(pid: int) -> bool:
    """Return whether a process runs; one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("end", ["exit 0", "sleep 300"])
async def test_no_process_of_a_container_outlives_it(end: str, tmp_path: Path) -> None:
    sandbox = await Sandbox.start(isolated=False)
    script = f"sleep 300 & echo $! > child; {end}"
    spec = {
        "kind": "container", "argv": ["sh", "-c", script], "env": {"PATH": os.environ["PATH"]},
        "cwd": str(tmp_path), "user": 0, "tty": False,
    }  # fmt: skip
    file = tmp_path / "child"
    try:
        with open(os.devnull, "r+b") as nothing:
            process = await sandbox.run(spec, [nothing.fileno()] * 3)
        async with asyncio.timeout(20):
            while not file.exists() or not file.read_text().strip():
                await asyncio.sleep(0.02)
            child = int(file.read_text())
            if end == "exit 0":
                assert await process.wait() == 0
            else:
                process.leave()
            while runs(child):
                await asyncio.sleep(0.02)
    finally:
        await sandbox.close()
