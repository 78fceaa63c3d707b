"""Runs all attackers at once beside honest sessions, for a chosen time.

``FUMAROLE_PRESSURE_SECONDS`` sets the duration (600), ``FUMAROLE_PRESSURE_SESSIONS`` the number of
honest sessions (200). The results are printed, and appended to the file ``FUMAROLE_SOAK_LOG``.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path

import pytest

from tests.pressure.attack import nothing_stays
from tests.pressure.attackers import ATTACKERS, attack_on
from tests.pressure.conftest import WIRES
from tests.pressure.gateway_under_test import HonestProcess, PressureRig, running_ground
from tests.pressure.honest import WORKS, HonestResults

SECONDS = float(os.environ.get("FUMAROLE_PRESSURE_SECONDS", "600"))
SESSIONS = int(os.environ.get("FUMAROLE_PRESSURE_SESSIONS", "200"))
QUIET_SECONDS = 10.0
SETTLE_SECONDS = 60.0
# Limits forget an address after two minutes; its memory goes with the last trim.
MEMORY_SECONDS = 180.0
TAKE_DOWN_SECONDS = 60.0
# Several rounds of an attacker.
SESSION_SECONDS = 10.0
# The allowed ratio to the memory before, once all attackers are gone.
RETURN = 1.1


def note(name: str, **figures: object) -> None:
    """Print an observation, and append it to the log."""
    line = json.dumps({"pressure": name} | figures)
    print(line)
    if path := os.environ.get("FUMAROLE_SOAK_LOG"):
        with Path(path).open("a") as log:
            log.write(line + "\n")


def in_ms(seen: HonestResults) -> dict[str, object]:
    """Return the text of *seen*, with times in milliseconds."""
    times = {name: round(1000 * getattr(seen, name), 1) for name in ("p50", "p95", "slowest")}
    return {"trips": seen.trips, "wrong": len(seen.wrong)} | times


async def attacked_by_all(ground: PressureRig, seconds: float) -> None:
    """Run all attackers; their sessions end after a while, as other sessions do.

    Otherwise the routes of thousands of sessions would count as memory that the attack has left.
    """
    bus = ground.rig.bus
    others = frozenset(bus.routes)
    attacks = [asyncio.create_task(attack_on(ground, one)) for one in ATTACKERS.values()]
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        over = bus.routes.keys() - others
        await asyncio.sleep(min(SESSION_SECONDS, seconds))
        for sid in over:
            await bus.remove(sid)
    for one in attacks:
        one.cancel()
    _, left = await asyncio.wait(attacks, timeout=TAKE_DOWN_SECONDS)
    assert not left, f"attackers that do not end: {left}"
    ground.close()
    for sid in bus.routes.keys() - others:
        await bus.remove(sid)


async def all_are_served(others: HonestProcess) -> None:
    """Wait until the honest sessions have made about one round trip each."""
    trips = 0
    async with asyncio.timeout(SETTLE_SECONDS):
        while trips < 2 * SESSIONS:
            trips += (await others.seen()).trips
            await asyncio.sleep(0.5)


async def settled_memory(ground: PressureRig, most: float) -> int:
    """Return the memory once it is back to *most*, or once it is clear that it stays higher."""
    deadline = time.monotonic() + MEMORY_SECONDS
    while (found := ground.rss()) > most and time.monotonic() < deadline:
        await asyncio.sleep(0.5)
    return found


@pytest.mark.long
@pytest.mark.timeout(SECONDS * 2 + 600)
@pytest.mark.parametrize("wire", WIRES)
async def test_honest_sessions_are_fully_served_beside_all_attackers(
    tmp_path: Path, wire: str
) -> None:
    async with running_ground(tmp_path, tls=wire == "TLS") as ground:
        async with ground.honest(SESSIONS, pause=0.5, works=WORKS) as others:
            await all_are_served(others)
            # A first round loads everything that is loaded on first use, before the measurement.
            await attacked_by_all(ground, min(10.0, SECONDS / 4))
            await others.seen()
            await asyncio.sleep(min(QUIET_SECONDS, SECONDS / 4))
            quiet, before = await others.seen(), ground.rss()
            async with ground.watched() as memory:
                await attacked_by_all(ground, SECONDS)
            beside = await others.seen()
            kept = await settled_memory(ground, before * RETURN)
        await nothing_stays(ground)
        # A TLS connection keeps its largest buffers (some 85 KiB) for life. So the attack's remains
        # are
        # measured beside as many new connections.
        async with ground.honest(SESSIONS, pause=0.5, works=WORKS) as others:
            await all_are_served(others)
            after = await settled_memory(ground, before * RETURN)
    sizes = {"before": before, "most": memory.most, "kept": kept, "after": after}
    mib = {name: size >> 20 for name, size in sizes.items()}
    note(
        wire, seconds=SECONDS, sessions=SESSIONS, quiet=in_ms(quiet), beside=in_ms(beside), mib=mib
    )
    assert quiet.wrong == []
    assert beside.wrong == []
    assert after <= before * RETURN
