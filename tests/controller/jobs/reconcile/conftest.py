"""Fixtures of the reconciler's tests: controllers over embedded clusters."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from controller.jobs.cluster.informer import InformerCache
from deploy.local.cluster.lags import chosen_lags
from tests.controller.jobs.parts import Parts, make_parts, running_informer
from tests.controller.jobs.reconcile.attempts_world import World, open_world
from tests.controller.jobs.two_accounts import TwoAccounts
from tests.controller.lag_seeds import LAG_SEEDS
from tests.controller.new_stores import leading_store
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
    async with (
        leading_store(tmp_path) as (store, term),
        running_informer(both.kube, instance) as informer,
    ):
        yield make_parts(
            kube=both.kube, store=store, informer=informer, pipeline=make_pipeline(), term=term,
            instance=instance,
        ), informer  # fmt: skip
