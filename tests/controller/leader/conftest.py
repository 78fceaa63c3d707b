"""Fixtures of the leader tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import cast

import pytest
from redis.asyncio import Redis

from controller.app import _make_core
from controller.configuration import read_configuration
from controller.kube.client import Kube
from controller.leader import election
from controller.leader.leader import Leader
from controller.logs.opening import open_storage
from controller.process import Process, ProcessTasks
from controller.store.database import Store
from controller.webhooks.dispatcher import Webhooks
from shared.runtime.ops import make_registry
from shared.settings import Environment
from tests.controller.leader.leading import Lead, Sender, Turns, World
from tests.controller.running import NOWHERE, Controller


@pytest.fixture
def fast_renewal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have elections renew the Lease a hundred times a second."""
    monkeypatch.setattr(election, "RENEW_SECONDS", 0.01)


@pytest.fixture
def leading(store: Store, redis: Redis, tmp_path: Path) -> Lead:
    @asynccontextmanager
    async def start(
        kubeconfig: Path | None = None,
        *,
        again: bool = True,
        webhooks: Sender | None = None,
        **settings: str,
    ) -> AsyncIterator[World]:
        nowhere = tmp_path / "kubeconfig"
        nowhere.write_text(NOWHERE)
        values = Controller(
            tmp_path, kubeconfig=kubeconfig or nowhere, redis_url="redis://127.0.0.1:1/0",
            **settings,
        ).settings  # fmt: skip
        configuration = read_configuration(Environment(values))
        registry = make_registry()
        plugins = configuration.plugins
        async with (
            Kube.connect(kubeconfig or nowhere) as kube,
            open_storage(configuration.settings.logs) as storage,
        ):
            core = _make_core(configuration.settings, plugins, store, registry, kube.now)
            tasks = ProcessTasks(asyncio.Event())
            process = Process(configuration.settings, store, registry, tasks, storage)
            turns, sender = Turns(again=again), cast(Webhooks | None, webhooks)
            leader = Leader(process, core, kube, redis, turns, sender)
            running = asyncio.create_task(leader.run())
            try:
                yield World(leader, turns, process, core, running)
            finally:
                running.cancel()
                with suppress(asyncio.CancelledError, BaseExceptionGroup):
                    await running

    return start
