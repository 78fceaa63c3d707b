"""Tests that each job ends as it should, with random API server faults and a slow Volcano.

- Calls are refused.
- Responses are lost after the call took effect.
- Watches break and expire.

Meanwhile jobs are suspended, resumed and ended.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from controller.jobs.reconcile.actions import Actions
from controller.kube import transport, watch
from controller.kube.client import Kube
from controller.kube.errors import Expired, KubeError, Throttled, Unavailable, error_from
from controller.store.jobs.job_rows import JobRecord
from deploy.local.cluster.lags import chosen_lags
from tests.controller.jobs import parts
from tests.controller.jobs.reconcile.attempts_world import World, open_world
from tests.controller.running import eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

FAILS: Final = {"invocation": {"command": ["sh", "-c", "sleep 0.5; exit 3"]}}
ENDS: Final = {"invocation": {"command": ["sh", "-c", "sleep 0.5"]}}
RETRIES: Final = {"max_retry": 1, "policies": [{"event": "PodFailed", "action": "RestartJob"}]}
KINDS: Final[dict[str, tuple[dict[str, Any], tuple[str, str]]]] = {
    "good": (ENDS, ("SUCCESS", "completed")),
    "bad": (FAILS, ("FAILURE", "exit_code")),
    "retried": (FAILS | RETRIES, ("FAILURE", "exit_code")),
    "ended": ({}, ("SUCCESS", "asked")),
    "paused": ({"parameters": {"s": {"type": "secret", "value": "x"}}}, ("SUCCESS", "asked")),
}
"""What jobs are asked for, and how they end."""

REFUSALS: Final = (
    (500, {"kind": "Status", "message": "etcdserver: request timed out"}),
    (429, {"kind": "Status", "reason": "TooManyRequests"}),
    (409, {"kind": "Status", "reason": "Conflict", "message": "the object has been modified"}),
)


class Faults:
    """Faults between the controller and the API server; ``count`` is their number."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.count = 0

    def _happens(self, share: float) -> bool:
        happens = self._chance.random() < share
        self.count += happens
        return happens

    def install(self, kube: Kube, monkeypatch: pytest.MonkeyPatch) -> None:
        """Inject faults into the calls and streams of *kube*."""
        once, stream = kube._transport.once, kube.stream

        async def faulty_once(call: Any) -> Any:
            if self._happens(0.15):
                status, body = self._chance.choice(REFUSALS)
                raise error_from(status, body, 0.0)
            response = await once(call)
            if self._happens(0.15):
                raise Unavailable("the answer was lost", status=self._chance.choice((0, 500)))
            return response

        @asynccontextmanager
        async def faulty_stream(*args: Any, **options: Any) -> AsyncIterator[Any]:
            if self._happens(0.4):
                kind = self._chance.choice((Unavailable, Expired, Throttled))
                raise kind("a stream was refused")
            async with stream(*args, **options) as content:
                yield content

        monkeypatch.setattr(transport, "PAUSES_SECONDS", (0.01, 0.02))
        monkeypatch.setattr(watch, "LONGEST_PAUSE_SECONDS", 1.0)
        monkeypatch.setattr(kube._transport, "once", faulty_once)
        monkeypatch.setattr(kube, "stream", faulty_stream)


async def reconcile_to_the_end(world: World, job_id: str) -> JobRecord:
    while not (record := await world.parts.record(job_id)).is_final:
        try:
            again = await world.parts.reconciler.reconcile(job_id)
            await asyncio.sleep(min(again.after if again is not None else 0.3, 0.3))
        except KubeError:
            await asyncio.sleep(0.1)
    return record


async def ask(world: World, job_id: str, kind: str, chance: random.Random) -> None:
    """Send the job the commands that users send."""
    commands = world.parts.commands
    await asyncio.sleep(chance.uniform(0, 6))
    for _ in range(3 if kind == "paused" else 0):
        await commands.suspend(job_id)
        await asyncio.sleep(chance.uniform(0, 3))
        await commands.resume(job_id)
        await asyncio.sleep(chance.uniform(0, 3))
    if kind in ("ended", "paused"):
        await commands.end(job_id)


@pytest.mark.parametrize("seed", range(2))
async def test_each_job_ends_with_its_expected_outcome_despite_faults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    # Concurrent commands change records, which the checks of these actions do not expect.
    monkeypatch.setattr(parts, "CheckedActions", Actions)
    chance, lags = random.Random(seed), {**chosen_lags(seed), "volcano-client": 6.0}
    faults, ends = Faults(chance), dict[str, asyncio.Task[JobRecord]]()
    async with open_world(tmp_path, instance="faults", seed=seed, lags=lags) as world:
        for kind, (fields, _) in KINDS.items():
            for number in range(3):
                await world.submit(f"{kind}-{number}", **fields)
        with monkeypatch.context() as patched:
            faults.install(world.kube, patched)
            async with asyncio.timeout(240), asyncio.TaskGroup() as tasks:
                for job_id in [f"{kind}-{number}" for kind in KINDS for number in range(3)]:
                    ends[job_id] = tasks.create_task(reconcile_to_the_end(world, job_id))
                    tasks.create_task(ask(world, job_id, job_id.partition("-")[0], chance))
        assert faults.count > 50
        for job_id, end in ends.items():
            record = end.result()
            expected = KINDS[job_id.partition("-")[0]][1]
            assert (record.state, record.reason) == expected, record
            if expected[1] == "asked":
                gone = partial(world.nothing_is_left, job_id)
                await eventually(gone, what=f"something is left of {job_id}")
