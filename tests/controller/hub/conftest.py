"""Fixtures for hub tests: a hub whose shells are streams in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from controller.hub import held
from controller.store.database import Store
from controller.store.sessions.session_rows import Session, insert_session
from tests.clock import Clock
from tests.controller.hub.attaching import SID, Hub, assign, hub_serving
from tests.controller.hub.rows import insert_job
from tests.controller.hub.streams import FakeExecutor


@pytest.fixture
def executor() -> FakeExecutor:
    return FakeExecutor()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "LOOK_SECONDS", 0.05)


@pytest.fixture
async def session(store: Store, clock: Clock) -> None:
    async with store.write() as transaction:
        await insert_job(transaction, now=clock())
        made = Session(
            sid=SID, job_id="j1", rank=0, kind="terminal", endpoint=None, port=None,
            base_path="/", created_at=clock(),
        )  # fmt: skip
        await insert_session(transaction, made)


@pytest.fixture
async def hub(
    store: Store, clock: Clock, executor: FakeExecutor, session: None
) -> AsyncIterator[Hub]:
    async with hub_serving(store, clock, executor) as hub:
        await assign(hub)
        yield hub
