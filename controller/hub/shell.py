"""One shell: its stream is read into a scrollback, from which each client reads at its own pace.

The fastest client sets the pace of the shell, as a terminal does for a program that writes more
than can be shown. A client that delays the shell for ``PAUSE_SECONDS`` and accepts hardly anything
in that time no longer counts, until it has caught up or reads again. The ring moves on, and only
that client misses output. So no client stalls the others, and a stuck client stalls the shell only
for that long. An interrupt of a flood has the rest of it read at once: see ``interrupts``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from controller.hub.claims import Holder
from controller.hub.clipboard import ClipboardGuard
from controller.hub.interrupts import INTERRUPTS, Drain
from controller.hub.protocol import DEFAULT_SIZE, ENDED, REPLACED, REVOKED, CloseCode, Resume, Size
from controller.hub.scrollback import REPLAY_BYTES, SEGMENT_BYTES, Scrollbacks
from controller.kube.exec import Exited, TerminalStream

# How far the fastest client may lag behind before the stream is not read further.
WINDOW_BYTES: Final = 128 * 1024
PAUSE_SECONDS: Final = 1.0
HANG_UP_SECONDS: Final = 2.0
MOST_CLIENTS: Final = 64
"""The most clients that have left and whose input stays counted. The count of an attached client is
never forgotten: a page that is told a lower one would send again what the shell has."""
MOST_TYPISTS: Final = 4096
"""The most grants that are remembered as having sent input to one shell."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ShellEnd:
    """Why a shell has ended, as clients see it: ``close`` is the WebSocket's close code.

    ``exited`` means that it ended by itself, which a client may show. After any other end only the
    close code matters: it says whether to reconnect. ``code`` is the exit code, if it is known.
    """

    close: CloseCode
    message: str
    exited: bool = False
    code: int | None = None


def ending_of(exited: Exited) -> ShellEnd:
    """Return what clients are sent about a shell that ended by itself."""
    if exited.lost:
        return ShellEnd(REPLACED, exited.message)
    return ShellEnd(ENDED, exited.message or "the shell has ended", exited=True, code=exited.code)


ACCESS_REVOKED: Final = ShellEnd(REVOKED, "the grant was revoked")
ATTACHED_AGAIN: Final = ShellEnd(REPLACED, "the client has attached again")
BEGUN_ANEW: Final = ShellEnd(REPLACED, "a user who had sent input was revoked: a new shell starts")


class ClientInput:
    """The input of a client over all its connections, of which only the latest may send."""

    __slots__ = ("name", "reader", "typed")

    def __init__(self) -> None:
        self.name = ("", "")
        self.typed = 0
        """How many bytes were sent to the shell."""
        self.reader: Reader | None = None


class Reader:
    """A client's position in the output of a shell.

    ``holder`` is its grant. ``ending`` is set if it is disconnected before the shell ends.
    """

    __slots__ = (
        "changed", "counts", "ending", "holder", "input", "may_type", "next", "position", "taken",
    )  # fmt: skip

    def __init__(self, position: int, holder: Holder, *, may_type: bool) -> None:
        self.position = position
        # Output before it is skipped.
        self.next = 0
        self.holder = holder
        self.input = ClientInput()
        self.may_type = may_type
        self.ending: ShellEnd | None = None
        self.changed = asyncio.Event()
        # Whether the shell waits for this client, and how much it read since that was checked.
        self.counts = True
        self.taken = 0


class Shell:
    """A running shell, from :meth:`run` until :attr:`ending` is set.

    Args:
        stream: The shell's stream.
        first: Output that was read from it already.
        guard: Removes sequences that set a clipboard.
        stream_id: Identifies the output for clients that resume.
    """

    def __init__(
        self,
        stream: TerminalStream,
        first: bytes,
        scrollbacks: Scrollbacks,
        guard: ClipboardGuard | None = None,
        *,
        stream_id: str = "",
    ) -> None:
        self.stream_id = stream_id
        self._stream = stream
        self._guard = guard
        self._readers: set[Reader] = set()
        self._moved = asyncio.Event()
        self._drain = Drain(self._leave_out)
        self._typing = asyncio.Lock()
        self._stop = asyncio.Event()
        self._inputs: dict[tuple[str, str], ClientInput] = {}
        self._typists: set[Holder] = set()
        self.suspect = False
        """Whether a user whose grant was revoked since has sent input."""
        self._scrollbacks = scrollbacks
        self.scrollback = self._scrollbacks.make()
        self._retired = False
        self._record(first)
        self.size = DEFAULT_SIZE
        self.ending: ShellEnd | None = None
        self.visited = False

    # The stream

    async def run(self) -> None:
        """Read the stream until the shell ends or is ended; then hang up."""
        reading = asyncio.create_task(self._read())
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await self._stream.resize(self.size.cols, self.size.rows)
            await asyncio.wait((reading, stopping), return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                self._set_ending(ending_of(reading.result()))
        finally:
            self._set_ending(ShellEnd(REPLACED, "the connection to the container was lost"))
            reading.cancel()
            stopping.cancel()
            self._drain.cancel()
            await asyncio.gather(reading, stopping, return_exceptions=True)
            await self._hang_up()

    async def _read(self) -> Exited:
        while not isinstance(received := await self._stream.receive(), Exited):
            self._record(received)
            self._drain.heard()
            self.notify()
            await self._keep_pace()
        return received

    def _record(self, output: bytes) -> None:
        shown = output if self._guard is None else self._guard.feed(output)
        self._scrollbacks.append(self.scrollback, shown)

    async def _keep_pace(self) -> None:
        """Wait for the fastest client, up to ``PAUSE_SECONDS``."""
        if not self._all_behind():
            return
        for reader in self._readers:
            reader.taken = 0
        try:
            async with asyncio.timeout(PAUSE_SECONDS):
                while self._all_behind():
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            for reader in self._readers:
                reader.counts = reader.counts and reader.taken >= WINDOW_BYTES
                reader.taken = 0

    def _all_behind(self) -> bool:
        if self._drain.is_going:
            return False
        counting = [reader for reader in self._readers if reader.counts]
        if not counting:
            return False
        return all(self._backlog(reader) > WINDOW_BYTES for reader in counting)

    def _backlog(self, reader: Reader) -> int:
        return self.scrollback.end - reader.position

    def _is_far_behind(self, reader: Reader) -> bool:
        return self._backlog(reader) > 2 * WINDOW_BYTES

    def is_held(self, reader: Reader) -> bool:
        """Return whether *reader* must wait: its next output is skipped after an interrupt."""
        return self._drain.is_going and self._is_far_behind(reader)

    def _leave_out(self) -> None:
        """After an interrupt, have clients that are far behind continue near the end."""
        place = self.scrollback.tail(SEGMENT_BYTES)
        for reader in self._readers:
            if self._is_far_behind(reader):
                reader.next = place
        self._moved.set()
        self.notify()

    async def _hang_up(self) -> None:
        try:
            async with asyncio.timeout(HANG_UP_SECONDS):
                await self._stream.close()
        except TimeoutError:
            log.info("the stream of a shell did not close in time")

    def _set_ending(self, ending: ShellEnd) -> None:
        self.ending = self.ending or ending
        self._moved.set()
        self.notify()

    def notify(self) -> None:
        """Wake every client."""
        for reader in self._readers:
            reader.changed.set()

    def end(self, ending: ShellEnd) -> None:
        """Hang up, and send *ending* to the clients; only the first ending counts."""
        self._set_ending(ending)
        self._stop.set()

    def retire(self) -> None:
        """Drop the output once the last client has left: no client can resume it."""
        self._retired = True
        self._let_go()

    def _let_go(self) -> None:
        if not self._readers:
            self._scrollbacks.detach(self.scrollback)
            if self._retired:
                self._scrollbacks.forget(self.scrollback)

    # Clients

    @property
    def is_read(self) -> bool:
        """Whether a client is attached."""
        return bool(self._readers)

    def enter(
        self, holder: Holder, *, may_type: bool, resume: Resume | None, client: str | None = None
    ) -> Reader:
        """Return a new client's position; without *resume* it is the end of the replay.

        *client* is the client's name for itself. An earlier connection of the same client and user
        ends, so that the count of its input is final.
        """
        reader = Reader(self._place(resume), holder, may_type=may_type)
        if client is not None and may_type:
            self._go_on_with_input(reader, (holder.sub, client))
        self._readers.add(reader)
        self._scrollbacks.attach(self.scrollback)
        self.visited = True
        return reader

    def _go_on_with_input(self, reader: Reader, name: tuple[str, str]) -> None:
        reader.input.name = name
        reader.input = self._inputs.setdefault(name, reader.input)
        earlier, reader.input.reader = reader.input.reader, reader
        if earlier is not None and earlier.ending is None:
            earlier.ending = ATTACHED_AGAIN
            earlier.changed.set()

    def _keep_count(self, of: ClientInput) -> None:
        """Keep the count of a client that leaves, instead of the one that left longest ago."""
        of.reader = None
        self._inputs[of.name] = self._inputs.pop(of.name)
        left = [name for name, one in self._inputs.items() if one.reader is None]
        for name in left[:-MOST_CLIENTS]:
            del self._inputs[name]

    def _place(self, resume: Resume | None) -> int:
        ring = self.scrollback
        if resume is None:
            return ring.end
        if resume.offset < 0:
            return ring.tail(-resume.offset)
        if resume.stream in (None, self.stream_id) and resume.offset <= ring.end:
            return resume.offset
        return ring.tail(REPLAY_BYTES)

    def may_finish(self, resume: Resume | None) -> bool:
        """Return whether a client resumes this shell, which has exited, for its last output."""
        ending = self.ending
        if ending is None or not ending.exited or resume is None or resume.offset < 0:
            return False
        return resume.stream == self.stream_id

    def leave(self, reader: Reader) -> None:
        """Remove a client."""
        self._readers.discard(reader)
        if reader.input.reader is reader:
            self._keep_count(reader.input)
        self._moved.set()
        self._let_go()

    def read(self, reader: Reader, most: int) -> tuple[bytes, int]:
        """Return the next output for *reader* (empty at the end), and how much was skipped.

        Call it again only when the output has been sent, since that sets the pace. Clear
        ``changed`` before the call, so that later changes are noticed.
        """
        skipped = max(0, max(self.scrollback.start, reader.next) - reader.position)
        reader.position += skipped
        data = self.scrollback.read(reader.position, most)
        reader.position += len(data)
        reader.taken += len(data)
        # A slow client counts again once it has caught up, or reads a whole window.
        if self._backlog(reader) <= WINDOW_BYTES // 2 or reader.taken >= WINDOW_BYTES:
            reader.counts = True
        self._moved.set()
        return data, skipped

    async def type(self, data: bytes, reader: Reader) -> None:
        """Send *data* to the shell as input of *reader*; returns when more may be sent."""
        async with self._typing:
            if self.ending is not None or reader.ending is not None:
                return
            if data:
                self._remember(reader.holder)
            if data in INTERRUPTS and self._waits_for(reader):
                self._drain.begin()
                self._moved.set()
            # Counted before the wait: the stream has taken it by then.
            reader.input.typed += len(data)
            await self._stream.send(data)

    def _waits_for(self, reader: Reader) -> bool:
        return self._backlog(reader) > WINDOW_BYTES // 2

    # Revocations

    def _remember(self, holder: Holder) -> None:
        if len(self._typists) < MOST_TYPISTS:
            self._typists.add(holder)
        elif holder not in self._typists and not self.suspect:
            # Input that is not remembered cannot be told from a revoked user's later.
            self._suspect()

    def withdraw(self, revoked: Callable[[Holder], bool]) -> bool:
        """Disconnect clients whose grants are *revoked*; return whether the shell must be replaced.

        It must be if one of them has sent input and nobody else is attached who may decide. Other
        users who may send input are notified, and decide by :meth:`renew`.
        """
        for reader in self._readers:
            if reader.ending is None and revoked(reader.holder):
                reader.ending = ACCESS_REVOKED
                reader.changed.set()
        gone = {holder for holder in self._typists if revoked(holder)}
        if not gone:
            return False
        self._typists -= gone
        self._suspect()
        return not any(reader.may_type and reader.ending is None for reader in self._readers)

    def _suspect(self) -> None:
        self.suspect = True
        self.notify()

    def renew(self) -> None:
        """End a suspect shell, so that its clients reconnect to a new one."""
        if self.suspect:
            self.end(BEGUN_ANEW)

    async def resize(self, size: Size) -> None:
        """Resize the terminal, and notify all clients."""
        if size == self.size or self.ending is not None:
            return
        self.size = size
        self.notify()
        async with self._typing:
            await self._stream.resize(size.cols, size.rows)
