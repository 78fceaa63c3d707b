"""Provides what both recording and reopening need of a controller."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import aiohttp

from tests.controller.running import SIGNER, Controller
from tests.recorded.recording import FOLDER
from tests.shared.samples import make_claims


def plugin_environment(folder: Path, *, trouble: str = "") -> dict[str, str]:
    """Return the environment for the plugin: where it is, and where it records its hooks."""
    return {
        "PYTHONPATH": str(FOLDER / "plugin"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "COST_CENTRE_LOG": str(folder / "hooks.log"),
        "COST_CENTRE_TROUBLE": trouble,
    }


def hooks_noted(folder: Path) -> list[str]:
    """Return the recorded hook calls of the plugin, in order."""
    path = folder / "hooks.log"
    return path.read_text().splitlines() if path.exists() else []


async def read_page(controller: Controller, path: str, after: int = 0) -> Any:
    """Return a page of updates or of the ledger, from the oldest one kept."""
    token = SIGNER.sign(make_claims(time.time(), aud="fumarole-controller"))
    headers = {"Accept": "application/json", "Authorization": f"Bearer {token}"}
    url = f"http://{controller.addresses['api']}{path}?limit=1000&after={after}"
    async with aiohttp.ClientSession() as http, http.get(url, headers=headers) as response:
        content = await response.json()
        if response.status == 410:
            return await read_page(controller, path, content["details"]["through"])
        assert response.status == 200, content
        return content
