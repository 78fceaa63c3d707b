"""All shells of this hub, kept equal to the terminals that the store says it holds.

The store decides, the hub follows: it looks every second, and once more whenever somebody attaches,
so that a terminal of a moment ago is found and one that is no longer held is not served. While the
store does not answer nothing is ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from controller.hub.clipboard import ClipboardGuard
from controller.hub.opening import open_shell
from controller.hub.protocol import ENDED, REPLACED
from controller.hub.revoked import Holder, Revocations
from controller.hub.shell import BEGUN_ANEW, Shell, ShellEnd
from controller.kube.exec import ExecFailed, ExecTarget, Executor
from controller.sessions.terminals import Terminal
from controller.store.errors import StoreUnavailable
from controller.store.sessions.revocations import StoredRevocation

REFRESH_SECONDS: Final = 2.0
LOOK_SECONDS: Final = 1.0
OPEN_SECONDS: Final = 20.0
# After a failure the container is left in peace for so long.
AGAIN_SECONDS: Final = 2.0
# Shells that are opened ahead of their first client, at a time.
AHEAD: Final = 8

_SESSION_ENDED = ShellEnd(ENDED, "the session has ended")
_POD_REPLACED = ShellEnd(REPLACED, "the job's pod was replaced")
_MOVED = ShellEnd(REPLACED, "another hub holds the terminal")
_HUB_ENDS = ShellEnd(REPLACED, "the terminal hub ends")

log = logging.getLogger(__name__)


class NotHeld(Exception):
    """This hub holds no such terminal."""


class Terminals(Protocol):
    """What the hub asks of the store; see ``controller.sessions.terminals``."""

    async def refresh(self) -> None:
        """Say that this hub is alive."""

    async def leave(self) -> None:
        """Say that this hub ends."""

    async def find(self, sid: str) -> Terminal | None:
        """Return the terminal if it is this hub's."""

    async def held(self) -> Mapping[str, Terminal]:
        """Return all terminals that are this hub's."""

    async def moved(self, sids: Collection[str]) -> Collection[str]:
        """Return which of these have not ended, and are another hub's by now."""

    async def revocations(self) -> Collection[StoredRevocation]:
        """Return what was revoked since the last call."""


@dataclass(slots=True, eq=False)
class HeldShell:
    """A terminal and its shell, once there is one."""

    terminal: Terminal
    shell: Shell | None = None
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    failure: tuple[float, ExecFailed] | None = None

    @property
    def container(self) -> ExecTarget:
        """Where its shell runs."""
        terminal = self.terminal
        return ExecTarget(terminal.namespace, terminal.pod, terminal.container)

    def end(self, ending: ShellEnd) -> None:
        """End its shell."""
        if self.shell is not None:
            self.shell.end(ending)


class HeldShells:
    """The shells of this hub, from :meth:`run` on.

    Args:
        terminals: The store's view.
        executor: Starts the shells.
        clock: Monotonic seconds.
        wall: Unix seconds.
    """

    def __init__(
        self,
        terminals: Terminals,
        executor: Executor,
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._wall = wall
        self._revocations = Revocations()
        self._terminals = terminals
        self._executor = executor
        self._clock = clock
        self._places: dict[str, HeldShell] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._ahead = asyncio.Semaphore(AHEAD)
        self.problem: str | None = "not registered yet"

    @property
    def running(self) -> int:
        """How many shells run."""
        shells = [place.shell for place in self._places.values()]
        return sum(1 for shell in shells if shell is not None and shell.ending is None)

    async def run(self) -> None:
        """Keep this hub registered and its shells as they should be, until cancelled.

        Then the store is told and every shell is ended, so that its client comes back for another.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                tasks.create_task(self._every(REFRESH_SECONDS, self._refresh))
                tasks.create_task(self._every(LOOK_SECONDS, self._look))
                try:
                    await asyncio.Event().wait()
                finally:
                    self._end_all()
        finally:
            self._tasks = None
            await self._leave()

    def _end_all(self) -> None:
        for place in self._places.values():
            place.end(_HUB_ENDS)

    async def _leave(self) -> None:
        try:
            async with asyncio.timeout(REFRESH_SECONDS):
                await self._terminals.leave()
        except (StoreUnavailable, TimeoutError):
            log.warning("the store could not be told that this hub ends; it will notice")

    async def _every(self, seconds: float, act: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await act()
            except StoreUnavailable as error:
                self.problem = str(error)
                log.warning("the store does not answer, what is held stays: %s", error)
            await asyncio.sleep(seconds)

    async def _refresh(self) -> None:
        await self._terminals.refresh()
        self.problem = None

    async def _look(self) -> None:
        """Compare once what is held with what should be."""
        # Only what was there before the question can be judged by the answer.
        before = dict(self._places)
        held = await self._terminals.held()
        missing = before.keys() - held.keys()
        moved = await self._terminals.moved(missing) if missing else ()
        for sid, place in before.items():
            if self._places.get(sid) is place:
                gone = _MOVED if sid in moved else _SESSION_ENDED
                self._judge(sid, place, held.get(sid), gone)
        await self._withdraw()
        for sid, terminal in held.items():
            if sid not in self._places:
                self._open_ahead(self._put(terminal))
        self._revocations.forget(self._wall())

    def _judge(self, sid: str, place: HeldShell, terminal: Terminal | None, gone: ShellEnd) -> None:
        if terminal is None:
            del self._places[sid]
            place.end(gone)
        elif terminal.shell != place.terminal.shell:
            del self._places[sid]
            place.end(_POD_REPLACED)

    def _put(self, terminal: Terminal) -> HeldShell:
        place = self._places[terminal.sid] = HeldShell(terminal)
        return place

    # Revocations

    async def _withdraw(self) -> None:
        """Let go whose grants were revoked, and begin anew the shells that are nobody's now."""
        if not self._revocations.take(await self._terminals.revocations()):
            return
        for sid, place in self._places.items():
            shell = place.shell
            if shell is None or shell.ending is not None:
                continue
            if shell.withdraw(partial(self._revocations.cover, sid)):
                place.end(BEGUN_ANEW)
                self._open_ahead(place)

    def is_revoked(self, sid: str, holder: Holder) -> bool:
        """Say whether *holder*'s grant to *sid* was revoked, as of the last :meth:`find`."""
        return self._revocations.cover(sid, holder)

    # Shells

    async def find(self, sid: str) -> HeldShell:
        """Return the place of *sid*, as the store has it now.

        Raises:
            NotHeld: If it is not this hub's.
            StoreUnavailable: If that cannot be known.
        """
        place = self._places.get(sid)
        try:
            terminal = await self._terminals.find(sid)
            moved = await self._terminals.moved({sid}) if terminal is None else ()
            # Before anybody comes in: who attaches now is not there to decide about the shell.
            await self._withdraw()
        except StoreUnavailable:
            if place is None:
                raise
            return place
        # Another caller may have found it meanwhile.
        place = self._places.get(sid)
        if place is not None:
            self._judge(sid, place, terminal, _MOVED if sid in moved else _SESSION_ENDED)
        if terminal is None:
            raise NotHeld
        return self._places.get(sid) or self._put(terminal)

    async def open(self, place: HeldShell) -> Shell:
        """Return the shell of *place*, a new one if there is none or it has ended.

        Raises:
            ExecFailed: If none could be started, now or a moment ago.
        """
        async with place.opening:
            if place.shell is None or place.shell.ending is not None:
                place.shell = await self._start(place)
            return place.shell

    async def _start(self, place: HeldShell) -> Shell:
        if place.failure is not None and self._clock() < place.failure[0]:
            raise place.failure[1]
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                stream, first = await open_shell(self._executor, place.container)
        except TimeoutError:
            raise self._failed(place, ExecFailed("the shell did not start in time")) from None
        except ExecFailed as error:
            raise self._failed(place, error) from error
        guard = None if place.terminal.may_copy else ClipboardGuard()
        shell = Shell(stream, first, guard=guard)
        # Ended, or the hub with it, while the shell was being started.
        if self._tasks is None or self._places.get(place.terminal.sid) is not place:
            await stream.close()
            raise ExecFailed("the terminal has ended")
        self._tasks.create_task(self._keep(shell, place.terminal))
        return shell

    def _failed(self, place: HeldShell, error: ExecFailed) -> ExecFailed:
        place.failure = (self._clock() + AGAIN_SECONDS, error)
        return error

    async def _keep(self, shell: Shell, terminal: Terminal) -> None:
        named = {"sid": terminal.sid, "job": terminal.job, "rank": terminal.rank}
        log.info("a shell runs", extra=named)
        try:
            await shell.run()
        except Exception:  # the outermost boundary of a shell: its fault must not end the others
            log.exception("a shell failed", extra=named)
        if shell.ending is not None:
            log.info("a shell ended", extra=named | {"why": shell.ending.message})

    def _open_ahead(self, place: HeldShell) -> None:
        """Open the shell before anybody attaches: its prompt is there when the page is."""
        if self._tasks is not None:
            self._tasks.create_task(self._try_to_open(place))

    async def _try_to_open(self, place: HeldShell) -> None:
        async with self._ahead:
            try:
                await self.open(place)
            except ExecFailed as error:
                # Whoever attaches tries again, and is told.
                terminal = place.terminal
                log.info(
                    "a shell could not be opened: %s",
                    error,
                    extra={
                        "sid": terminal.sid,
                        "job": terminal.job,
                        "rank": terminal.rank,
                        "pod": f"{terminal.namespace}/{terminal.pod}",
                    },
                )
