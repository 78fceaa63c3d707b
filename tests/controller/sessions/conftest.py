"""Fixtures for session tests: a job, and a publisher of its sessions."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from controller.jobs.spec.accepted import Vault, public_spec
from controller.store.database import Store
from controller.store.jobs.job_rows import insert_job
from tests.clock import Clock
from tests.controller.samples import UID, make_record
from tests.controller.sessions.publishing import JOB, LINK_KEY, World, publishing


@pytest.fixture
async def job(store: Store) -> None:
    record = make_record(
        uid=UID,
        state="RUNNING",
        message=None,
        spec=public_spec(JOB),
        sealed=Vault([LINK_KEY]).seal("j1", JOB.secrets(), random=os.urandom),
    )
    async with store.write() as transaction:
        await insert_job(transaction, record, labels={})


@pytest.fixture
async def world(store: Store, redis: Redis, clock: Clock, job: None) -> AsyncIterator[World]:
    async with publishing(store, redis, clock) as one:
        yield one
