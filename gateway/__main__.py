"""``python -m gateway``: reads the settings from the environment and runs the gateway."""

from __future__ import annotations

import asyncio
import sys

import uvloop

from gateway.pages.assets import Assets, load_assets
from gateway.serving import serve
from gateway.settings import Settings, read_settings
from gateway.workers.supervise import supervise
from shared.errors import SettingsError
from shared.runtime.process import (
    EXIT_FAILED,
    raise_descriptor_limit,
    settings_from_command,
    stop_on_signals,
    tune_collector,
)
from shared.settings import EXIT_BAD_SETTINGS


def main() -> None:
    """Run the gateway until SIGTERM or SIGINT; a second signal ends the process at once."""
    settings = settings_from_command(
        "fumarole-gateway",
        read_settings,
        summary="Route browsers to the notebooks, desktops and shells of running jobs.",
        reference="docs/settings.md",
    )
    settings.log.apply()
    try:
        assets = load_assets()
    except SettingsError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(EXIT_BAD_SETTINGS) from None
    tune_collector()
    try:
        if settings.workers > 1:
            supervise(settings, assets)
        else:
            uvloop.run(_run(settings, assets))
    except OSError as error:
        print(f"error: the gateway cannot start: {error}", file=sys.stderr)
        raise SystemExit(EXIT_FAILED) from None


async def _run(settings: Settings, assets: Assets) -> None:
    stop = asyncio.Event()
    stop_on_signals(stop)
    raise_descriptor_limit()
    await serve(settings, assets, stop=stop)


if __name__ == "__main__":
    main()
