"""Fixtures of the reconciler's tests: controllers over embedded clusters."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from controller.jobs.cluster.informer import InformerCache
from controller.store.database import Store
from controller.store.instance import ensure_position, raise_term
from deploy.local.cluster.lags import chosen_lags
from tests.controller.jobs.parts import Parts, make_parts
from tests.controller.jobs.reconcile.attempts_world import World, open_world
from tests.controller.jobs.two_accounts import TwoAccounts
from tests.controller.lag_seeds import LAG_SEEDS
from tests.controller.samples import make_pipeline


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=LAG_SEEDS)
async def world(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> AsyncIterator[World]:
    """Provide a controller for the tests of one module; its ``LAGS`` replace lags of the seed."""
    folder, seed = tmp_path_factory.mktemp("lagging"), request.param
    lags = chosen_lags(seed) | getattr(request.module, "LAGS", {})
    async with open_world(folder, instance="lagging", seed=seed, lags=lags) as one:
        yield one


@pytest_asyncio.fixture(loop_scope="module")
async def settled(
    both: TwoAccounts, instance: str, tmp_path: Path
) -> AsyncIterator[tuple[Parts, InformerCache]]:
    """Provide a controller with an empty store on a cluster that has VolcanoJobs."""
    store = Store(f"sqlite:///{tmp_path}/store.db")
    await store.open()
    async with store.write() as transaction:
        await ensure_position(transaction, new_identity=os.urandom(4).hex())
        term = await raise_term(transaction)
    informer = InformerCache(both.kube, instance=instance, changed=lambda _job: None)
    watching = asyncio.create_task(informer.run())
    await informer.complete()
    yield make_parts(
        kube=both.kube, store=store, informer=informer, pipeline=make_pipeline(), term=term,
        instance=instance,
    ), informer  # fmt: skip
    watching.cancel()
    await asyncio.wait([watching])
    await store.close()
