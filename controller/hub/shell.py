"""One shell: its stream is read into its scrollback, from which each client reads at its own pace.

The fastest client sets the pace of the shell, as a terminal does of a program that writes more
than can be shown. A client that keeps everything waiting for ``PAUSE_SECONDS``, and hardly takes
anything meanwhile, counts no more until it has caught up or takes something again: the ring moves
on, and what it missed is left out for it alone. So no client stalls the others, and none that is
stuck stalls the shell for longer than that. An interrupt of a flood has the rest of it read at
once: see ``interrupts``.
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

# How far the fastest client may be behind before the stream is left unread.
WINDOW_BYTES: Final = 128 * 1024
PAUSE_SECONDS: Final = 1.0
HANG_UP_SECONDS: Final = 2.0
MOST_TYPISTS: Final = 4096
"""Grants by which somebody has typed that are remembered for one shell."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ShellEnd:
    """Why a shell is no more, as its clients are told: ``close`` is the WebSocket's close code.

    ``exited`` says that it ended by itself, which a client may show; after any other end the close
    code alone says whether to come back. ``code`` is its exit code, where that is known.
    """

    close: CloseCode
    message: str
    exited: bool = False
    code: int | None = None


def ending_of(exited: Exited) -> ShellEnd:
    """Return what clients are told of a shell that ended by itself."""
    if exited.lost:
        return ShellEnd(REPLACED, exited.message)
    return ShellEnd(ENDED, exited.message or "the shell has ended", exited=True, code=exited.code)


ACCESS_REVOKED: Final = ShellEnd(REVOKED, "the grant was revoked")
BEGUN_ANEW: Final = ShellEnd(REPLACED, "a user who had typed was revoked: a new shell begins")


class Reader:
    """A client's place in the output of a shell.

    ``holder`` is by whose grant it is attached, ``ending`` why it is let go before the shell ends.
    """

    __slots__ = ("counts", "ending", "holder", "may_type", "news", "next", "position", "taken")

    def __init__(self, position: int, holder: Holder | None, *, may_type: bool) -> None:
        self.position = position
        # What is before it is left out.
        self.next = 0
        self.holder = holder
        self.may_type = may_type
        self.ending: ShellEnd | None = None
        self.news = asyncio.Event()
        # Whether the shell waits for this one, and how much it took since that was looked at.
        self.counts = True
        self.taken = 0


class Shell:
    """A shell that runs, from :meth:`run` until :attr:`ending` is set.

    Args:
        stream: The shell's own.
        first: What has been read from it already.
        scrollbacks: Where its output is kept.
        guard: Where what the programs in it say must not reach a clipboard.
        stream_id: Names its output, to clients that come back.
    """

    def __init__(
        self,
        stream: TerminalStream,
        first: bytes,
        scrollbacks: Scrollbacks | None = None,
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
        self._typists: set[Holder] = set()
        self.suspect = False
        """Whether somebody has typed into it whose grant was revoked since."""
        self._scrollbacks = scrollbacks or Scrollbacks()
        self.scrollback = self._scrollbacks.make()
        self._retired = False
        self._record(first)
        self.size = DEFAULT_SIZE
        self.ending: ShellEnd | None = None
        self.visited = False

    # The stream's side

    async def run(self) -> None:
        """Read the stream until the shell ends, or is ended; then hang up."""
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
            self.tell()
            await self._keep_pace()
        return received

    def _record(self, output: bytes) -> None:
        shown = output if self._guard is None else self._guard.feed(output)
        self._scrollbacks.append(self.scrollback, shown)

    async def _keep_pace(self) -> None:
        """Wait for the fastest client, but not for long."""
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
        """Say whether *reader* is to wait: what comes next is left out after an interrupt."""
        return self._drain.is_going and self._is_far_behind(reader)

    def _leave_out(self) -> None:
        """After an interrupt, have clients that are far behind go on near the end."""
        place = self.scrollback.tail(SEGMENT_BYTES)
        for reader in self._readers:
            if self._is_far_behind(reader):
                reader.next = place
        self._moved.set()
        self.tell()

    async def _hang_up(self) -> None:
        try:
            async with asyncio.timeout(HANG_UP_SECONDS):
                await self._stream.close()
        except TimeoutError:
            log.info("a shell's stream did not close in time")

    def _set_ending(self, ending: ShellEnd) -> None:
        self.ending = self.ending or ending
        self._moved.set()
        self.tell()

    def tell(self) -> None:
        """Have every client look whether there is news."""
        for reader in self._readers:
            reader.news.set()

    def end(self, ending: ShellEnd) -> None:
        """Hang up, and tell the clients *ending*; the first ending counts."""
        self._set_ending(ending)
        self._stop.set()

    def retire(self) -> None:
        """Forget the output once the last client has left: nobody can come back for it."""
        self._retired = True
        self._let_go()

    def _let_go(self) -> None:
        if not self._readers:
            self._scrollbacks.detach(self.scrollback)
            if self._retired:
                self._scrollbacks.forget(self.scrollback)

    # The clients' side

    @property
    def is_read(self) -> bool:
        """Whether somebody is attached."""
        return bool(self._readers)

    def enter(
        self,
        holder: Holder | None = None,
        *,
        may_type: bool = False,
        resume: Resume | None = None,
    ) -> Reader:
        """Return a new client's place: without *resume* at the end of the scrollback's replay."""
        reader = Reader(self._place(resume), holder, may_type=may_type)
        self._readers.add(reader)
        self._scrollbacks.attach(self.scrollback)
        self.visited = True
        return reader

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
        """Say whether a client comes back for the last words of this shell, which has exited."""
        ending = self.ending
        if ending is None or not ending.exited or resume is None or resume.offset < 0:
            return False
        return resume.stream == self.stream_id

    def leave(self, reader: Reader) -> None:
        """Forget a client."""
        self._readers.discard(reader)
        self._moved.set()
        self._let_go()

    def read(self, reader: Reader, most: int) -> tuple[bytes, int]:
        """Return what comes next for *reader* (empty at the end), and how much had to be skipped.

        Call it again only when what it returned has been sent: that is what moves the pace. News is
        to be cleared before, so that whatever comes after is noticed.
        """
        skipped = max(0, max(self.scrollback.start, reader.next) - reader.position)
        reader.position += skipped
        data = self.scrollback.read(reader.position, most)
        reader.position += len(data)
        reader.taken += len(data)
        # One that is slow is never rid of what came while nobody waited for it.
        if self._backlog(reader) <= WINDOW_BYTES // 2 or reader.taken >= WINDOW_BYTES:
            reader.counts = True
        self._moved.set()
        return data, skipped

    async def type(self, data: bytes, reader: Reader | None = None) -> None:
        """Send *data* to the shell for *reader*; returns when more may be sent."""
        async with self._typing:
            if self.ending is not None or (reader is not None and reader.ending is not None):
                return
            if reader is not None and reader.holder is not None and data:
                self._remember(reader.holder)
            if data in INTERRUPTS and reader is not None and self._waits_for(reader):
                self._drain.begin()
                self._moved.set()
            await self._stream.send(data)

    def _waits_for(self, reader: Reader) -> bool:
        return self._backlog(reader) > WINDOW_BYTES // 2

    # Revocations

    def _remember(self, holder: Holder) -> None:
        if len(self._typists) < MOST_TYPISTS:
            self._typists.add(holder)
        elif holder not in self._typists and not self.suspect:
            # Whose typing is not remembered cannot be told from a revoked user's later on.
            self._suspect()

    def withdraw(self, revoked: Callable[[Holder], bool]) -> bool:
        """Let go the clients whose grants are *revoked*; say whether the shell must be begun anew.

        It must be where one of them has typed and nobody else is there to decide. Others who may
        type are told, and decide by :meth:`renew`.
        """
        for reader in self._readers:
            if reader.ending is None and reader.holder is not None and revoked(reader.holder):
                reader.ending = ACCESS_REVOKED
                reader.news.set()
        gone = {holder for holder in self._typists if revoked(holder)}
        if not gone:
            return False
        self._typists -= gone
        self._suspect()
        return not any(reader.may_type and reader.ending is None for reader in self._readers)

    def _suspect(self) -> None:
        self.suspect = True
        self.tell()

    def renew(self) -> None:
        """End a suspect shell, so that its clients come back for a new one."""
        if self.suspect:
            self.end(BEGUN_ANEW)

    async def resize(self, size: Size) -> None:
        """Give the terminal *size*, and tell all clients."""
        if size == self.size or self.ending is not None:
            return
        self.size = size
        self.tell()
        async with self._typing:
            await self._stream.resize(size.cols, size.rows)
