"""Tests a standby replica: it knows the cluster and what happened while no replica led."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from controller.jobs.cluster.informer import InformerCache
from controller.leader import standby as module
from controller.leader.standby import Standby
from tests.controller.running import eventually
from tests.controller.samples import make_observed, make_pod


@pytest.fixture
async def standby(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Standby]:
    """Yield a standby whose informer the test feeds, with a long minute."""

    async def fed(_: InformerCache) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(InformerCache, "run", fed)
    nowhere: Any = SimpleNamespace(now=time.time)
    one = Standby(nowhere, instance="test", services=False)
    running = asyncio.create_task(one.run())
    await asyncio.sleep(0)
    yield one
    running.cancel()
    await asyncio.wait([running])


def read_whole(informer: InformerCache) -> None:
    for one in informer._followed.values():
        one.seen.set()


async def test_a_new_leader_first_receives_changes_made_without_leader(standby: Standby) -> None:
    reported: list[str] = []
    informer = standby.informer
    informer.jobs.put(make_observed(job_id="old"))
    assert standby.problems() == ("the cluster has not been read yet",)
    read_whole(informer)
    assert standby.problems() == ()
    informer.pods.put(make_pod(job_id="lately"))
    standby.lead(reported.append)
    assert reported == ["lately"]
    informer.pods.put(make_pod(1, job_id="now"))
    assert reported == ["lately", "now"]
    standby.stand_by()
    informer.pods.put(make_pod(2, job_id="later"))
    assert reported == ["lately", "now"]
    assert set(informer.job_ids()) == {"old", "lately", "now", "later"}


async def test_the_initial_list_reports_no_change_to_an_immediate_leader(
    standby: Standby,
) -> None:
    reported: list[str] = []
    standby.lead(reported.append)
    standby.informer.jobs.put(make_observed(job_id="old"))
    assert reported == []
    read_whole(standby.informer)
    standby.informer.jobs.put(make_observed(job_id="new", name="j-new"))
    assert reported == ["new"]


async def test_removed_pods_are_kept_for_a_while_and_throughout_leadership(
    standby: Standby, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT_SECONDS", 0.05)
    informer, reported = standby.informer, list[str]()
    read_whole(informer)
    forgetting = asyncio.create_task(standby._forget())
    informer.pods.put(make_pod())
    informer.pods.drop(make_pod())
    assert informer.job_ids() == ["j1"]
    await eventually(lambda: is_forgotten(informer), seconds=60)
    standby.lead(reported.append)
    informer.pods.put(make_pod())
    informer.pods.drop(make_pod())
    await asyncio.sleep(0.3)
    assert len(informer.departed()) == 1
    forgetting.cancel()


async def is_forgotten(informer: InformerCache) -> bool:
    return not informer.departed() and not informer.job_ids()
