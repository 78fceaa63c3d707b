"""Provides a leader in this process, with scripted turns and all its components."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from controller.leader.leader import Leader
from controller.process import Core, Process
from controller.store.database import FencedStore
from controller.store.errors import LeadershipLost


class Turns:
    """An election whose turns the test scripts."""

    def __init__(self, *, again: bool = True) -> None:
        self.again = again
        self.acquired = self.released = 0
        self.hangs = False
        self._turn, self._over = asyncio.Event(), asyncio.Event()
        self._error: Exception = LeadershipLost("it is another one's turn")

    def begin(self) -> None:
        """Give this replica its turn."""
        self._over.clear()
        self._turn.set()

    def lose(self, error: Exception | None = None) -> None:
        """End the turn, or raise *error*."""
        self._error = error or self._error
        self._over.set()

    async def acquire(self) -> None:
        self.acquired += 1
        await self._turn.wait()
        self._turn.clear()

    async def renew(self) -> None:
        await self._over.wait()
        raise self._error

    async def release(self) -> None:
        self.released += 1
        if self.hangs:
            await asyncio.Event().wait()


class Sender:
    """A fake webhook sender that records its leaders' terms, and may fail as it ends."""

    def __init__(self, *, fails: bool = False) -> None:
        self.terms: list[int] = []
        self.failed: Callable[[Exception], None] | None = None
        self._fails = fails

    async def run(self, store: FencedStore, *, failed: Callable[[Exception], None]) -> None:
        self.terms.append(store.term)
        self.failed = failed
        try:
            await asyncio.Event().wait()
        finally:
            if self._fails:
                raise RuntimeError("a fault")


@dataclass
class World:
    """A running leader and its parts."""

    leader: Leader
    turns: Turns
    process: Process
    core: Core
    running: asyncio.Task[None]

    async def until_leads(self, leads: bool = True) -> None:
        async with asyncio.timeout(20):
            while (self.leader.publisher is not None) != leads:
                assert not self.running.done(), self.running
                await asyncio.sleep(0.001)

    async def lead(self) -> None:
        self.turns.begin()
        await self.until_leads()

    async def failure(self) -> BaseException:
        """Return why the leader ended."""
        async with asyncio.timeout(20):
            with pytest.raises(BaseExceptionGroup) as ended:
                await self.running
        return ended.value

    def metric(self, name: str, **labels: str) -> float | None:
        return self.process.registry.get_sample_value(f"fumarole_controller_{name}", labels)


Lead = Callable[..., Any]
"""Starts a leader; see ``leading`` in conftest.py."""
