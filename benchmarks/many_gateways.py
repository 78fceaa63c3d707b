"""How soon many gateways have applied an event: ``python -m benchmarks.many_gateways``.

All follow one Redis, on the cores that the machine has. Each gateway itself measures the time of
its last event from publication to application (`fumarole_gateway_bus_lag_seconds`). So the
benchmark need not poll twenty gateways while they work. The time in an event is in whole
milliseconds, rounded down here, so a reported value is up to 1 ms too high.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import math
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.growth import Latency, latency_of
from benchmarks.peers.fumarole import Orchestrator, make_route, new_sid, running_redis, settings
from benchmarks.programs import cores, running
from benchmarks.soak.sampling import Gateway
from shared.routes.route import Route

GATEWAYS: Final = 20
EVENTS: Final = 50
_SETTLE_SECONDS: Final = 0.2
_START_SECONDS: Final = 120.0


async def measure(gateways: int, events: int, folder: Path) -> Latency:
    """Return how long events took until the last of *gateways* had applied them."""
    routes = [make_route(new_sid(), 1) for _ in range(100)]
    async with AsyncExitStack() as stack:
        redis = await stack.enter_async_context(running_redis(folder))
        orchestrator = Orchestrator(redis, folder)
        await orchestrator.rebuild(routes)
        beats = asyncio.create_task(orchestrator.beat_for_good())
        stack.callback(beats.cancel)
        followers = [await _start(stack, folder, number) for number in range(gateways)]
        await _until_known(followers, len(routes))
        seconds = []
        for _ in range(events):
            await _publish(orchestrator, make_route(new_sid(), 1))
            await asyncio.sleep(_SETTLE_SECONDS)
            told = [await follower.metrics() for follower in followers]
            seconds.append(max(one["bus lag"] for one in told))
    return latency_of(f"event published → applied by all of {gateways} gateways", seconds)


async def _start(stack: AsyncExitStack, folder: Path, number: int) -> Gateway:
    own = folder / str(number)
    own.mkdir()
    addresses = own / "addresses.json"
    env = settings(folder) | {"FUMAROLE_GATEWAY_ADDRESS_FILE": str(addresses)}
    command = [sys.executable, "-m", "gateway"]
    core = cores()[number % len(cores())]
    process = await stack.enter_async_context(
        running(command, core=core, log=own / "log", env=env, cwd=own)
    )
    async with asyncio.timeout(_START_SECONDS):
        while not addresses.exists():
            await asyncio.sleep(0.05)
    return Gateway(process.pid, own)


async def _until_known(followers: list[Gateway], routes: int) -> None:
    async with asyncio.timeout(_START_SECONDS):
        for follower in followers:
            while (await follower.metrics()).get("routes") != routes:
                await asyncio.sleep(0.1)


async def _publish(orchestrator: Orchestrator, route: Route) -> None:
    now = math.floor(time.time() * 1e3) / 1e3
    await orchestrator.publisher.upsert(route.sid, msgspec.json.encode(route), now=now)


def main() -> None:
    """Measure, and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gateways", type=int, default=GATEWAYS)
    parser.add_argument("--events", type=int, default=EVENTS)
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(measure(told.gateways, told.events, Path(folder)))
    print(json.dumps(dataclasses.asdict(found)))


if __name__ == "__main__":
    main()
