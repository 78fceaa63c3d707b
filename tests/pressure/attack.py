"""Checks what must hold during an attack and after it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.pressure.gateway_under_test import PressureRig

# Python's own need for the work: garbage is collected now and then.
SLACK_BYTES = 16 << 20
# docs/limits.md: the bytes that wait for a reader on one side of a connection.
HELD_BYTES = 512 << 10
# A turn takes 5 ms at most; others wait for a few turns, and for their own processor time.
OTHERS_P95_SECONDS = 0.15
OTHERS_SLOWEST_SECONDS = 1.0
AFTERWARDS_SECONDS = 8.0
LISTENING = "0A"


@asynccontextmanager
async def attacked(
    ground: PressureRig, *, most: int = SLACK_BYTES, seconds: float = 0.8
) -> AsyncIterator[None]:
    """Assert that an honest session is served, and that the gateway grows by at most *most* bytes.

    The honest session runs for at least *seconds*. Then all attackers are reset, and no trace of
    them
    may stay.
    """
    others = await ground.others()
    await others.seen()
    began, had_waited = time.monotonic(), ground.waited()
    async with ground.watched() as memory:
        yield
        await asyncio.sleep(max(0.0, seconds - (time.monotonic() - began)))
        seen = await others.seen()
    late = ground.waited() - had_waited  # the time that other programs of this machine took
    assert seen.wrong == []
    assert seen.trips, "the honest session was never answered"
    assert memory.growth <= most, f"the gateway grew by {memory.growth >> 20} MiB"
    assert seen.p95 <= OTHERS_P95_SECONDS + late, f"others waited: {seen}"
    assert seen.slowest <= OTHERS_SLOWEST_SECONDS + 2 * late, f"others waited: {seen}"
    ground.close()
    await nothing_stays(ground)


async def nothing_stays(ground: PressureRig) -> None:
    """Wait until only the honest session's connection exists, and none other is counted."""
    began, late = time.monotonic(), ground.late()
    while max(left := await _left(ground)) > 1:
        within = AFTERWARDS_SECONDS + ground.late() - late
        assert time.monotonic() - began < within, f"still there: {left}"
        await asyncio.sleep(0.1)


async def _left(ground: PressureRig) -> tuple[int, int]:
    """Return the number of browser connections by the kernel, and by the gateway's count."""
    public = ground.process.public
    legs = [leg for leg in ground.legs() if leg.local == public and leg.state != LISTENING]
    found = (await ground.metrics()).items()
    counted = [n for name, n in found if name.startswith("fumarole_gateway_open_connections")]
    return len(legs), int(sum(counted))
