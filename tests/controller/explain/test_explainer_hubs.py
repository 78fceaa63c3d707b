"""Tests that an explanation calls no hub dead because of a clock."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from controller.explain import explainer
from controller.explain.explainer import Explainer
from controller.kube.client import Kube
from controller.store.database import Store
from controller.store.instance import Hub, refresh_hub
from controller.store.jobs.job_rows import insert_job
from controller.store.sessions.session_rows import Session, insert_session
from shared.bus import BusInspector, Keys, connect
from shared.jose.jwks import KeySource
from tests.controller.kube.api_server import Script, listing
from tests.controller.samples import UID, make_record

HUB = Hub(id="hub-1", host="127.0.0.1", port=1)


@pytest.fixture
def script() -> Script:
    return Script(listing(version="1"))


@pytest.fixture
async def explaining(store: Store, kube: Kube, tmp_path: Path) -> Explainer:
    async with store.write() as transaction:
        record = make_record(state="RUNNING", uid=UID)
        await insert_job(transaction, record, labels={})
        shell = Session(
            sid="shell", job_id="j1", rank=0, kind="terminal", endpoint=None, port=None,
            base_path="/", created_at=1.0,
        )  # fmt: skip
        await insert_session(transaction, shell)
    return Explainer(
        store=store,
        # Nothing listens on this port: Redis is unreachable.
        inspector=BusInspector(connect("redis://127.0.0.1:1/0"), Keys("test")),
        kube=kube,
        keys=KeySource(str(tmp_path / "jwks.json"), clock=time.monotonic),
        issuer="issuer",
        instance="test",
        clock=time.time,
    )


async def beat(store: Store, *, ahead: float) -> None:
    async with store.write() as transaction:
        await refresh_hub(transaction, HUB, now=time.time() + ahead)


async def saw_of_hub(explaining: Explainer) -> str:
    return (await explaining.session("shell")).findings[-1].seen


@pytest.mark.parametrize("ahead", [-600.0, 600.0])
async def test_a_hub_whose_clock_differs_counts_as_alive(
    explaining: Explainer, store: Store, ahead: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explainer, "_NEXT_HEARTBEAT_SECONDS", 0.5)
    await beat(store, ahead=ahead)

    async def keep_beating() -> None:
        while True:
            await asyncio.sleep(0.05)
            await beat(store, ahead=ahead)

    beating = asyncio.create_task(keep_beating())
    seen = await saw_of_hub(explaining)
    beating.cancel()
    assert seen == "no shell is assigned yet"


async def test_without_a_new_heartbeat_no_hub_is_alive(
    explaining: Explainer, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await saw_of_hub(explaining) == "No terminal hub is alive"
    monkeypatch.setattr(explainer, "_NEXT_HEARTBEAT_SECONDS", 0.01)
    await beat(store, ahead=-600.0)
    assert await saw_of_hub(explaining) == "No terminal hub is alive"
