"""Tests how the process ends when it cannot start."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from tests import warm
from tests.controller.running import NOWHERE, ROOT, Controller


def test_a_port_in_use_is_reported_in_one_line(tmp_path: Path) -> None:
    nowhere = tmp_path / "kubeconfig"
    nowhere.write_text(NOWHERE)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        settings = Controller(
            tmp_path, kubeconfig=nowhere, redis_url="redis://127.0.0.1:1/0",
            FUMAROLE_CONTROLLER_LISTEN=address, FUMAROLE_CONTROLLER_HUB_LISTEN="127.0.0.1:0",
            FUMAROLE_CONTROLLER_ROLES="api,reconciler,hub",
        ).settings  # fmt: skip
        known = {name: text for name, text in os.environ.items() if "FUMAROLE" not in name}
        done = warm.run([sys.executable, "-m", "controller"], cwd=ROOT, env=known | settings)
    assert done.returncode == 1
    said = done.stdout + done.stderr
    assert f"cannot listen at {address}" in said
    assert "Traceback" not in said
