"""Runs the reference orchestrator: ``python -m deploy.local.orchestrator``.

Settings, from the environment:

- ``ORCHESTRATOR_LISTEN``: host:port.
- ``ORCHESTRATOR_STATE``: a folder for its key.
- ``ORCHESTRATOR_ISSUER``: its public URL, which is the ``iss`` of the tokens.
- ``ORCHESTRATOR_CONTROLLER``: the controller's URL.
- ``ORCHESTRATOR_GATEWAY``: the gateways' public URL.
- ``ORCHESTRATOR_TOOLS_FILE``: the controller's file of tools, if it has one.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult

import aiohttp
import yaml
from aiohttp import web

from deploy.local.orchestrator.controller import Controller
from deploy.local.orchestrator.handlers import Handlers
from deploy.local.orchestrator.keys import ensure_key
from deploy.local.orchestrator.sessions import Sessions
from deploy.local.orchestrator.tokens import Tokens
from shared import settings


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of the orchestrator."""

    listen: tuple[str, int]
    state: Path
    issuer: str
    controller: str
    gateway: SplitResult
    tools: Mapping[str, str]

    @classmethod
    def read(cls, environment: settings.Environment) -> Settings:
        """Return the settings; add problems to *environment*."""
        nowhere = settings.web_url("http://localhost")
        required = environment.required
        return cls(
            listen=required("ORCHESTRATOR_LISTEN", settings.listen_address, ("", 0)),
            state=required("ORCHESTRATOR_STATE", Path, Path()),
            issuer=required("ORCHESTRATOR_ISSUER", settings.origin, ""),
            controller=required("ORCHESTRATOR_CONTROLLER", settings.origin, ""),
            gateway=required("ORCHESTRATOR_GATEWAY", settings.web_url, nowhere),
            tools=environment.value("ORCHESTRATOR_TOOLS_FILE", _titles_of_tools, {}),
        )

    @property
    def gateway_sources(self) -> str:
        """The hosts of the gateway's sessions, as a source in a Content-Security-Policy."""
        port = f":{self.gateway.port}" if self.gateway.port else ""
        return f"{self.gateway.scheme}://*.{self.gateway.hostname}{port}"


def _titles_of_tools(raw: str) -> Mapping[str, str]:
    tools = yaml.safe_load(Path(raw).read_text("utf-8"))["tools"]
    return {name: tool.get("title") or name for name, tool in tools.items()}


async def serve(own: Settings) -> None:
    """Serve until SIGTERM or SIGINT."""
    own.state.mkdir(parents=True, exist_ok=True)
    key = ensure_key(own.state)
    tokens = Tokens(key, own.issuer)
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with aiohttp.ClientSession(own.controller) as http:
        controller = Controller(http, lambda: tokens.for_controller(time.time()))
        sessions = Sessions(controller, tokens, gateway=own.gateway, clock=time.time)
        app = Handlers(
            key=key,
            controller=controller,
            sessions=sessions,
            origin=own.issuer,
            gateway_sources=own.gateway_sources,
            tools=own.tools,
        ).make_app()
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            await web.TCPSite(runner, *own.listen).start()
            await stopping.wait()
        finally:
            await runner.cleanup()


def main() -> None:
    """Read the settings and serve."""
    asyncio.run(serve(settings.or_exit(Settings.read, prefix="ORCHESTRATOR_")))


if __name__ == "__main__":
    main()
