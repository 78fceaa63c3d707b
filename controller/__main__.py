"""``python -m controller``: the controller process, from its environment to its exit code."""

from __future__ import annotations

import asyncio
import logging
import sys

import uvloop

from controller.app import serve
from controller.kube.errors import KubeError
from controller.settings import ControllerSettings, read_settings
from shared.errors import FumaroleError
from shared.process import EXIT_FAILED, raise_descriptor_limit, stop_on_signals
from shared.settings import EXIT_BAD_SETTINGS, or_exit

log = logging.getLogger(__name__)


def main() -> None:
    """Run the controller until SIGTERM or SIGINT; end at once at a second one."""
    settings = or_exit(read_settings, prefix="FUMAROLE_CONTROLLER_")
    settings.log.apply()
    try:
        uvloop.run(_run(settings))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(EXIT_BAD_SETTINGS) from None
    except (FumaroleError, KubeError, OSError) as error:
        log.error("the controller cannot go on", extra={"why": str(error)})
        raise SystemExit(EXIT_FAILED) from None


async def _run(settings: ControllerSettings) -> None:
    stopping = asyncio.Event()
    stop_on_signals(stopping)
    raise_descriptor_limit()
    await serve(settings, stopping=stopping)


if __name__ == "__main__":
    main()
