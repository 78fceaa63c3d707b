"""Tests that the start of a real Xvnc closes no foreign descriptor, on both event loops."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

import pytest
import uvloop

from deploy.local.apps.x11 import start_xvnc, xvnc
from tests.gateway.xvnc import PORTS


@pytest.mark.needs("xvnc")
@pytest.mark.parametrize("make_loop", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_no_foreign_descriptor_is_closed(
    make_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def start() -> None:
        program = xvnc()
        assert program is not None
        server = await start_xvnc(program, PORTS.take(), "-SecurityTypes", "None")
        try:
            others = [os.dup(0) for _ in range(20)]
            await asyncio.sleep(0.05)  # the loop still closes transports
            for other in others:
                os.close(other)
        finally:
            server.process.kill()
            await server.process.wait()

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(start())
