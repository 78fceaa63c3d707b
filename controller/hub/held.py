"""All shells of this hub, kept equal to the store's terminals of this hub.

The store decides and the hub follows. It reads the store every second, and whenever a client
attaches, so that a new terminal is found at once and one that moved is not served. While the store
is unavailable, no shell is ended.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Final

from controller.hub.claims import Holder, Revocations
from controller.hub.clipboard import ClipboardGuard
from controller.hub.opening import open_shell
from controller.hub.protocol import ENDED, REPLACED, Resume
from controller.hub.scrollback import Scrollbacks
from controller.hub.shell import BEGUN_ANEW, Shell, ShellEnd
from controller.kube.exec import ExecFailed, ExecTarget, Executor
from controller.sessions.terminals import Terminal, TerminalSessions
from controller.store.errors import StoreUnavailable
from shared.log import Outage

REFRESH_SECONDS: Final = 2.0
LOOK_SECONDS: Final = 1.0
OPEN_SECONDS: Final = 20.0
# Pause after a failure to open a shell in a container.
AGAIN_SECONDS: Final = 2.0
FORBIDDEN: Final = 403
REPORT_SECONDS: Final = 20.0
"""Between two records in the store that the API server refused the shells of a terminal."""
# The most shells that are opened concurrently before their first client attaches.
AHEAD: Final = 8
MOST_SHELLS: Final = 8
"""The most shells of one session."""

_SESSION_ENDED = ShellEnd(ENDED, "the session has ended")
_POD_REPLACED = ShellEnd(REPLACED, "the job's pod was replaced")
_MOVED = ShellEnd(REPLACED, "another hub holds the terminal")
_HUB_ENDS = ShellEnd(REPLACED, "the terminal hub shuts down")

_NOT_REGISTERED: Final = "the hub cannot register in the store"
_STORE_UNAVAILABLE: Final = "the store is unavailable, the hub's shells stay"

log = logging.getLogger(__name__)


def _fresh_id() -> str:
    return secrets.token_hex(8)


class NotHeld(Exception):
    """This hub does not hold the terminal."""


class NoSuchShell(Exception):
    """The session has no such shell, and none can be added; the text says why."""


@dataclass(slots=True, eq=False)
class HeldShell:
    """A slot for a shell, which holds it once it is open; ``gone`` if none may be opened."""

    terminal: Terminal
    shell: Shell | None = None
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    failure: tuple[float, ExecFailed] | None = None
    gone: bool = False

    @property
    def container(self) -> ExecTarget:
        """The container of the shell."""
        terminal = self.terminal
        return ExecTarget(terminal.namespace, terminal.pod, terminal.container)

    @property
    def is_live(self) -> bool:
        """Whether a shell runs or is being opened."""
        return self.opening.locked() or (self.shell is not None and self.shell.ending is None)

    @property
    def is_unused(self) -> bool:
        """Whether no shell runs, and no client reads the rest of an ended one."""
        return not (self.is_live or (self.shell is not None and self.shell.is_read))

    def replace(self, shell: Shell) -> None:
        """Put *shell* in the slot, instead of an ended one."""
        if self.shell is not None:
            self.shell.retire()
        self.shell = shell

    def leave(self, ending: ShellEnd) -> None:
        """End the shell; no other follows."""
        self.gone = True
        if self.shell is not None:
            self.shell.end(ending)
            self.shell.retire()


@dataclass(slots=True, eq=False)
class HeldTerminal:
    """A terminal and its shells. The first has no name; clients name the others."""

    terminal: Terminal
    shells: dict[str, HeldShell] = field(default_factory=dict)
    gone: bool = False
    reports_from: float = 0.0

    def __post_init__(self) -> None:
        """Make the slot of the first shell."""
        self.shells[""] = HeldShell(self.terminal)

    def find(self, name: str, *, may_open: bool) -> HeldShell:
        """Return the slot of the shell *name*, a new one if necessary.

        Raises:
            NoSuchShell: If it does not exist and cannot be added.
        """
        if name and not may_open and name not in self.names():
            raise NoSuchShell("This shell has ended, or never existed.")
        if name not in self.shells:
            for old in [one for one, place in self.shells.items() if one and place.is_unused]:
                self._forget(old)
            if len(self.shells) >= MOST_SHELLS:
                raise NoSuchShell(f"This session already has {MOST_SHELLS} shells: end one first.")
            self.shells[name] = HeldShell(self.terminal, gone=self.gone)
        return self.shells[name]

    def _forget(self, name: str) -> None:
        place = self.shells.pop(name)
        place.gone = True
        if place.shell is not None:
            place.shell.retire()

    def names(self) -> tuple[str, ...]:
        """Return the names of running shells in the order of their opening."""
        return tuple(name for name, place in self.shells.items() if not name or place.is_live)

    def notify(self) -> None:
        """Wake all attached clients, so that they compare :meth:`names`."""
        for place in self.shells.values():
            if place.shell is not None:
                place.shell.notify()

    def leave(self, ending: ShellEnd) -> None:
        """End all shells; no others follow."""
        self.gone = True
        for place in self.shells.values():
            place.leave(ending)


@dataclass(slots=True, eq=False, repr=False)
class HeldShells:
    """The shells of this hub, from :meth:`run` on."""

    terminals: TerminalSessions
    """The terminals in the store."""
    executor: Executor
    _: KW_ONLY
    clock: Callable[[], float]
    """Monotonic seconds."""
    wall: Callable[[], float]
    """Unix seconds."""
    scrollbacks: Scrollbacks
    _revocations: Revocations = field(default_factory=Revocations, init=False)
    _places: dict[str, HeldTerminal] = field(default_factory=dict, init=False)
    _tasks: asyncio.TaskGroup | None = None
    _ahead: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AHEAD), init=False)
    problem: str | None = "not registered yet"

    @property
    def running(self) -> int:
        """The number of running shells."""
        shells = [place.shell for place in self._all()]
        return sum(1 for shell in shells if shell is not None and shell.ending is None)

    def _all(self) -> Iterator[HeldShell]:
        return (place for held in self._places.values() for place in held.shells.values())

    async def run(self) -> None:
        """Keep this hub registered and its shells equal to the store's, until cancelled.

        At the end the hub unregisters and ends every shell, so that clients reconnect elsewhere.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                registering = Outage(
                    log, begins=_NOT_REGISTERED, ends="the hub is registered in the store again"
                )
                tasks.create_task(self._every(REFRESH_SECONDS, self._refresh, registering))
                looking = Outage(
                    log, begins=_STORE_UNAVAILABLE, ends="the store is available again"
                )
                tasks.create_task(self._every(LOOK_SECONDS, self._look, looking))
                try:
                    await asyncio.Event().wait()
                finally:
                    self._end_all()
        finally:
            self._tasks = None
            await self._leave()

    def _end_all(self) -> None:
        for held in self._places.values():
            held.leave(_HUB_ENDS)

    async def _leave(self) -> None:
        try:
            async with asyncio.timeout(REFRESH_SECONDS):
                await self.terminals.leave()
        except (StoreUnavailable, TimeoutError):
            log.warning("the hub could not unregister from the store; its entry expires")

    async def _every(
        self, seconds: float, act: Callable[[], Awaitable[None]], outage: Outage
    ) -> None:
        while True:
            try:
                await act()
                outage.passed()
            except StoreUnavailable as error:
                self.problem = str(error)
                outage.failed(error)
            await asyncio.sleep(seconds)

    async def _refresh(self) -> None:
        await self.terminals.refresh()
        self.problem = None

    async def _look(self) -> None:
        """Compare the shells with the store's terminals once."""
        # Terminals that are added during the query are not in its result, and must stay.
        before = dict(self._places)
        held = await self.terminals.held()
        missing = before.keys() - held.keys()
        moved = await self.terminals.moved(missing) if missing else ()
        for sid, place in before.items():
            if self._places.get(sid) is place:
                gone = _MOVED if sid in moved else _SESSION_ENDED
                self._judge(sid, place, held.get(sid), gone)
        await self._withdraw()
        for sid, terminal in held.items():
            if sid not in self._places:
                self._open_ahead(self._put(terminal), "")
        self._revocations.forget(self.wall())

    def _judge(
        self, sid: str, place: HeldTerminal, terminal: Terminal | None, gone: ShellEnd
    ) -> None:
        if terminal is None:
            del self._places[sid]
            place.leave(gone)
        elif terminal.shell != place.terminal.shell:
            del self._places[sid]
            place.leave(_POD_REPLACED)

    def _put(self, terminal: Terminal) -> HeldTerminal:
        place = self._places[terminal.sid] = HeldTerminal(terminal)
        return place

    # Revocations

    async def _withdraw(self) -> None:
        """Disconnect clients whose grants were revoked, and replace shells without an owner."""
        if not self._revocations.take(await self.terminals.revocations()):
            return
        for sid, held in self._places.items():
            for name, place in held.shells.items():
                shell = place.shell
                if shell is None or shell.ending is not None:
                    continue
                if shell.withdraw(partial(self._revocations.cover, sid)):
                    shell.end(BEGUN_ANEW)
                    self._open_ahead(held, name)

    def is_revoked(self, sid: str, holder: Holder) -> bool:
        """Return whether *holder*'s grant to *sid* was revoked, as of the last :meth:`find`."""
        return self._revocations.cover(sid, holder)

    # Shells

    async def find(self, sid: str) -> HeldTerminal:
        """Return the terminal *sid* as it is in the store now.

        Raises:
            NotHeld: If this hub does not hold it.
            StoreUnavailable: If the store cannot be read.
        """
        place = self._places.get(sid)
        try:
            terminal = await self.terminals.find(sid)
            moved = await self.terminals.moved({sid}) if terminal is None else ()
            # Before the caller attaches: it must not count as a user who decides about the shell.
            await self._withdraw()
        except StoreUnavailable:
            if place is None:
                raise
            return place
        # A concurrent caller may have added it.
        place = self._places.get(sid)
        if place is not None:
            self._judge(sid, place, terminal, _MOVED if sid in moved else _SESSION_ENDED)
        if terminal is None:
            raise NotHeld
        return self._places.get(sid) or self._put(terminal)

    async def open(
        self,
        held: HeldTerminal,
        name: str = "",
        *,
        may_open: bool = True,
        resume: Resume | None = None,
    ) -> Shell:
        """Return the shell *name* of *held*; open a new one if there is none or it has ended.

        A client that resumes a shell that has exited gets the rest of its output.

        Raises:
            NoSuchShell: If there is no shell of that name, and none may be added.
            ExecFailed: If none could be started, now or a moment ago.
        """
        place = held.find(name, may_open=may_open)
        async with place.opening:
            shell = place.shell
            if shell is not None and (shell.ending is None or shell.may_finish(resume)):
                return shell
            shell = await self._start(place)
            place.replace(shell)
        held.notify()
        if self._tasks is not None:
            self._tasks.create_task(self._keep(shell, held))
        return shell

    async def _start(self, place: HeldShell) -> Shell:
        if place.failure is not None and self.clock() < place.failure[0]:
            raise place.failure[1]
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                stream, first = await open_shell(self.executor, place.container)
        except TimeoutError:
            raise self._failed(place, ExecFailed("the shell did not start in time")) from None
        except ExecFailed as error:
            raise self._failed(place, error) from error
        # The terminal or the hub ended while the shell was started.
        if self._tasks is None or place.gone:
            await stream.close()
            raise ExecFailed("the terminal has ended")
        guard = None if place.terminal.may_copy else ClipboardGuard()
        return Shell(stream, first, self.scrollbacks, guard, stream_id=_fresh_id())

    def _failed(self, place: HeldShell, error: ExecFailed) -> ExecFailed:
        place.failure = (self.clock() + AGAIN_SECONDS, error)
        terminal = place.terminal
        named = {"sid": terminal.sid, "job": terminal.job, "rank": terminal.rank}
        pod = f"{terminal.namespace}/{terminal.pod}"
        if error.status == FORBIDDEN:
            self._report_refused(terminal)
        level = logging.WARNING if error.status in (401, FORBIDDEN) else logging.INFO
        log.log(level, "cannot open a shell: %s", error, extra=named | {"pod": pod})
        return error

    def _report_refused(self, terminal: Terminal) -> None:
        """Have the leader restore this hub's rights; a client may try again meanwhile."""
        held, now = self._places.get(terminal.sid), self.clock()
        if self._tasks is None or held is None or now < held.reports_from:
            return
        held.reports_from = now + REPORT_SECONDS
        self._tasks.create_task(self._record_refused(terminal))

    async def _record_refused(self, terminal: Terminal) -> None:
        try:
            await self.terminals.record_refused(terminal)
        except StoreUnavailable as error:
            extra = {"sid": terminal.sid, "why": str(error)}
            log.warning("a refused shell cannot be recorded", extra=extra)

    async def _keep(self, shell: Shell, held: HeldTerminal) -> None:
        terminal = held.terminal
        named = {"sid": terminal.sid, "job": terminal.job, "rank": terminal.rank}
        log.info("shell opened", extra=named)
        try:
            await shell.run()
        except Exception:  # the outermost boundary of a shell: other shells must continue
            log.exception("shell failed", extra=named)
        held.notify()
        if shell.ending is not None:
            log.info("shell ended", extra=named | {"why": shell.ending.message})

    def _open_ahead(self, held: HeldTerminal, name: str) -> None:
        """Open the shell before a client attaches, so that the page begins with a prompt."""
        if self._tasks is not None:
            self._tasks.create_task(self._try_to_open(held, name))

    async def _try_to_open(self, held: HeldTerminal, name: str) -> None:
        # A failure is logged; a client that attaches tries again and gets the error.
        async with self._ahead:
            with suppress(ExecFailed, NoSuchShell):
                await self.open(held, name)
