from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager

import pytest

from controller.hub import held as held_module
from controller.hub.held import HeldShells, NotHeld
from controller.hub.protocol import ENDED, REPLACED
from controller.hub.scrollback import Scrollbacks
from controller.hub.shell import ShellEnd
from controller.kube.exec import ExecFailed, ExecTarget
from controller.sessions.terminals import Terminal, TerminalSessions
from controller.store.errors import StoreUnavailable
from controller.store.sessions.revocations import StoredRevocation
from tests.clock import Clock
from tests.controller.hub.streams import FakeExecutor
from tests.waiting import until

SID = "a" * 26
TERMINAL = Terminal(
    sid=SID, job="j1", rank=0, namespace="jobs", pod="j-j1-job-0", pod_uid="u1", container="job"
)


class FakeTerminals(TerminalSessions):
    """The store's view of terminals, in memory."""

    def __init__(self, *terminals: Terminal) -> None:
        self.terminals = {terminal.sid: terminal for terminal in terminals}
        self.down = False
        self.refused = 0
        self.refreshed = 0
        self.found = 0
        self.polled = 0
        self.polling = False
        self.left = False
        self.elsewhere: set[str] = set()
        self.revoked: list[StoredRevocation] = []
        self.pause = asyncio.Event()
        self.pause.set()

    def _check(self) -> None:
        if self.down:
            self.refused += 1
            raise StoreUnavailable("the database does not answer")

    async def refresh(self) -> None:
        self._check()
        self.refreshed += 1

    async def leave(self) -> None:
        self._check()
        self.left = True

    async def find(self, sid: str) -> Terminal | None:
        self._check()
        self.found += 1
        return self.terminals.get(sid)

    async def held(self) -> Mapping[str, Terminal]:
        self._check()
        response = dict(self.terminals)
        self.polling = True
        await self.pause.wait()
        self.polling = False
        self.polled += 1
        return response

    async def hold_poll(self) -> None:
        """Wait until a poll has read the terminals, and keep its result back."""
        self.pause.clear()
        await until(lambda: self.polling)

    async def poll(self) -> None:
        """Wait until the hub has taken the result of a poll that starts from now on."""
        self.pause.set()
        # The poll after it starts once its result was taken.
        after = self.polled + 2
        await until(lambda: self.polled > after)

    async def revocations(self) -> list[StoredRevocation]:
        self._check()
        return self.revoked

    async def moved(self, sids: Collection[str]) -> set[str]:
        self._check()
        return self.elsewhere & set(sids)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_module, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(held_module, "REFRESH_SECONDS", 0.01)


@asynccontextmanager
async def running(
    terminals: FakeTerminals, executor: FakeExecutor, clock: Callable[[], float] | None = None
) -> AsyncIterator[HeldShells]:
    loop = asyncio.get_running_loop()
    shells = HeldShells(
        terminals,
        executor,
        clock=clock or loop.time,
        wall=time.time,
        scrollbacks=Scrollbacks(),
    )
    task = asyncio.create_task(shells.run())
    await until(lambda: shells.problem is None)
    try:
        yield shells
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_shell_is_opened_before_the_first_client_attaches() -> None:
    executor = FakeExecutor()
    async with running(FakeTerminals(TERMINAL), executor) as shells:
        await until(lambda: shells.running == 1)
        assert executor.containers == [ExecTarget("jobs", "j-j1-job-0", "job")]
        shell = await shells.open(await shells.find(SID))
        assert not shell.visited
        assert len(executor.streams) == 1, "whoever attaches finds that very shell"


async def test_a_just_created_terminal_is_found() -> None:
    terminals = FakeTerminals()
    async with running(terminals, FakeExecutor()) as shells:
        await terminals.hold_poll()
        terminals.terminals[SID] = TERMINAL
        assert await shells.open(await shells.find(SID))


async def test_a_terminal_found_during_a_poll_is_not_ended_by_its_older_result() -> None:
    terminals = FakeTerminals()
    terminals.pause.clear()
    async with running(terminals, FakeExecutor()) as shells:
        await terminals.hold_poll()  # it has read no terminal
        terminals.terminals[SID] = TERMINAL
        shell = await shells.open(await shells.find(SID))
        await terminals.poll()
        assert shell.ending is None


async def test_two_concurrent_attaches_share_one_shell() -> None:
    executor = FakeExecutor()
    terminals = FakeTerminals()
    async with running(terminals, executor) as shells:
        await terminals.hold_poll()
        terminals.terminals[SID] = TERMINAL
        executor.gate.clear()
        one = asyncio.create_task(_attach(shells))
        two = asyncio.create_task(_attach(shells))
        await until(lambda: terminals.found == 2 and len(executor.commands) == 1)
        executor.gate.set()
        assert await one is await two
        assert len(executor.streams) == 1


async def _attach(shells: HeldShells) -> object:
    return await shells.open(await shells.find(SID))


async def test_an_unassigned_terminal_is_not_held() -> None:
    async with running(FakeTerminals(), FakeExecutor()) as shells:
        with pytest.raises(NotHeld):
            await shells.find(SID)


async def test_an_ended_session_ends_its_shell() -> None:
    terminals, executor = FakeTerminals(TERMINAL), FakeExecutor()
    async with running(terminals, executor) as shells:
        shell = await shells.open(await shells.find(SID))
        del terminals.terminals[SID]
        await until(lambda: shell.ending is not None)
        assert shell.ending == ShellEnd(ENDED, "the session has ended")
        await until(lambda: executor.streams[0].closed)
        with pytest.raises(NotHeld):
            await shells.find(SID)


async def test_a_terminal_moved_to_another_hub_closes_with_service_restart() -> None:
    terminals, executor = FakeTerminals(TERMINAL), FakeExecutor()
    async with running(terminals, executor) as shells:
        shell = await shells.open(await shells.find(SID))
        terminals.elsewhere.add(SID)
        del terminals.terminals[SID]
        await until(lambda: shell.ending is not None)
        assert shell.ending == ShellEnd(REPLACED, "another hub holds the terminal")


async def test_attaching_to_an_ended_session_is_refused_before_the_next_poll() -> None:
    terminals, executor = FakeTerminals(TERMINAL), FakeExecutor()
    async with running(terminals, executor) as shells:
        shell = await shells.open(await shells.find(SID))
        terminals.pause.clear()
        del terminals.terminals[SID]
        with pytest.raises(NotHeld):
            await shells.find(SID)
        assert shell.ending is not None


async def test_another_pod_gets_another_shell() -> None:
    terminals, executor = FakeTerminals(TERMINAL), FakeExecutor()
    async with running(terminals, executor) as shells:
        shell = await shells.open(await shells.find(SID))
        terminals.terminals[SID] = dataclasses.replace(TERMINAL, pod_uid="u2")
        await until(lambda: shell.ending is not None)
        assert shell.ending is not None
        assert shell.ending.close == REPLACED
        assert await shells.open(await shells.find(SID)) is not shell
        await until(lambda: executor.streams[0].closed)
        assert not executor.streams[1].closed


async def test_an_exited_shell_is_reopened_for_an_attaching_client() -> None:
    terminals, executor = FakeTerminals(TERMINAL), FakeExecutor()
    async with running(terminals, executor) as shells:
        shell = await shells.open(await shells.find(SID))
        executor.streams[0].exit(0)
        await until(lambda: shell.ending is not None)
        await terminals.poll()
        assert len(executor.streams) == 1, "nobody asked for another"
        assert await shells.open(await shells.find(SID)) is not shell


async def test_an_unresponsive_store_ends_no_shell() -> None:
    terminals, executor = FakeTerminals(TERMINAL), FakeExecutor()
    async with running(terminals, executor) as shells:
        shell = await shells.open(await shells.find(SID))
        terminals.down = True
        await until(lambda: shells.problem is not None)
        assert await shells.open(await shells.find(SID)) is shell
        with pytest.raises(StoreUnavailable):
            await shells.find("b" * 26)
        assert shell.ending is None
        terminals.down = False
        await until(lambda: shells.problem is None)


async def test_a_long_store_outage_does_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    terminals = FakeTerminals()
    async with running(terminals, FakeExecutor()) as shells:
        terminals.down = True
        await until(lambda: terminals.refused >= 10)
        terminals.down = False
        await until(lambda: shells.problem is None and caplog.text.count(" again") == 2)
    assert caplog.text.count("the store is unavailable, the hub's shells stay") == 1
    assert caplog.text.count("the hub cannot register in the store") == 1


async def test_a_refused_exec_is_reported_and_retried(clock: Clock) -> None:
    terminals, executor = FakeTerminals(), FakeExecutor()
    executor.refuse = ExecFailed("pods/exec was refused with 500", status=500)
    async with running(terminals, executor, clock) as shells:
        await terminals.hold_poll()
        terminals.terminals[SID] = TERMINAL
        place = await shells.find(SID)
        for _ in range(3):
            with pytest.raises(ExecFailed, match="500"):
                await shells.open(place)
        assert len(executor.commands) == 1, "the container is left in peace for a while"
        executor.refuse = None
        clock.now += 3
        assert await shells.open(place)


async def test_at_shutdown_a_hub_notifies_store_and_clients() -> None:
    terminals, executor = FakeTerminals(TERMINAL), FakeExecutor()
    async with running(terminals, executor) as shells:
        shell = await shells.open(await shells.find(SID))
    assert terminals.left
    assert shell.ending == ShellEnd(REPLACED, "the terminal hub shuts down")
    assert executor.streams[0].closed


async def test_a_hub_shuts_down_although_the_store_does_not_respond() -> None:
    terminals, executor = FakeTerminals(TERMINAL), FakeExecutor()
    async with running(terminals, executor) as shells:
        await shells.open(await shells.find(SID))
        terminals.down = True
    assert executor.streams[0].closed
