"""Provides a webhook receiver that refuses some messages, and disconnects after others."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from pathlib import Path
from typing import Any

from tests.controller.webhooks.receiving import SECRET, Request, Server, response


class SelectiveReceiver(Server):
    """Refuses some messages, and closes the connection after it has received others."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(self.choose)
        self._chance = chance
        self.taken: list[dict[str, Any]] = []

    async def choose(self, request: Request, _writer: asyncio.StreamWriter) -> bytes | None:
        luck = self._chance.random()
        if luck < 0.1:
            return response(500)
        self.taken.append(request.json)
        return response(200) if luck < 0.95 else None

    def settings(self, folder: Path) -> Path:
        """Return the settings file that makes controllers send all updates to this receiver."""
        (folder / "webhooks.secret").write_text(base64.b64encode(SECRET).decode())
        row = {
            "name": "orchestrator", "url": self.url, "secret_file": "webhooks.secret",
            "http": True, "networks": ["127.0.0.0/8"],
        }  # fmt: skip
        path = folder / "webhooks.json"
        path.write_text(json.dumps({"receivers": [row]}))
        return path
