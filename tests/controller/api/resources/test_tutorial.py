"""Tests the tutorial's orchestrator: it follows the real API's updates, even past deleted ones."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from controller.store.outbox.update_rows import raise_counter
from tests.controller.api.conftest import Api, service_token
from tests.controller.api.resources.test_updates import happen

PROGRAM = Path(__file__).parents[4] / "docs/tutorials/orchestrator.py"


@pytest.fixture
def orchestrator(api: Api, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Load the program and give it a key that the API accepts."""
    monkeypatch.setattr(sys, "argv", [str(PROGRAM)])
    spec = importlib.util.spec_from_file_location("tutorial_orchestrator", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "CONTROLLER", str(api.client.make_url("/")))
    monkeypatch.setattr(module, "sign", lambda claims: service_token())
    return module


async def forget(api: Api, through: int) -> None:
    async with api.store.write() as transaction:
        await raise_counter(transaction, "updates_forgotten", through)


async def test_a_reader_behind_retention_continues_after_the_gap(
    api: Api, orchestrator: ModuleType
) -> None:
    await happen(api, "IN_QUEUE", "RUNNING", "SUCCESS")
    await forget(api, 2)
    assert [number async for number in orchestrator.follow(0)] == [2]


async def test_a_reader_overtaken_by_retention_within_a_stream_continues_after_the_gap(
    api: Api, orchestrator: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    await happen(api, "IN_QUEUE")
    following = orchestrator.follow(0)
    async with asyncio.timeout(20):
        assert await anext(following) == 1
        assert "IN_QUEUE" in capsys.readouterr().out
        await forget(api, 9)
        assert [number async for number in following] == [9]
