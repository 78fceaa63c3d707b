"""Handing one request over to an aiohttp application, and never a byte trailing it.

aiohttp gets the canonical head, ``Connection: close`` and the body, framed here; its transport is
a view of the real one that tells it nothing else. The connection ends with its answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gateway.core.access.refusals import CLOSE_DRAINING, CLOSE_SERVICE_RESTART
from gateway.core.http.framing import Body, FramingError
from gateway.core.limits.connection_quota import ARRIVAL_SECONDS
from gateway.relay.ending.lingering import Lingering
from gateway.relay.transports import pause_reading, reset, resume_reading
from gateway.relay.turns import SMALL_READ

if TYPE_CHECKING:
    from gateway.core.access.access_right import AccessRight, EndReason
    from gateway.core.access.decision import ServePage
    from gateway.relay.context import Context

EXTRA_INFO: Final = "fumarole"
"""``request.transport.get_extra_info(EXTRA_INFO)`` returns what was decided of a request: a
:class:`gateway.core.access.decision.ServePage`."""
READ_SECONDS: Final = 10.0
"""For a page to be answered and read, while room is wanted."""
_OF_THE_APP: Final = frozenset({CLOSE_DRAINING, CLOSE_SERVICE_RESTART})
"""Ends after which the browser may come back by the same right."""


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class PageConnection(asyncio.Protocol):
    """The downstream protocol while a page answers.

    Args:
        path: The data path.
        browser: The real transport.
        page: aiohttp's protocol for this one request.
        body: Reads the request's body.
        right: By which the request is answered, if by any: ends with it.
        key: By what an unauthenticated connection is counted.
        writable: False while the browser has not read the answers before this one.
    """

    kind = "page"

    path: Context
    browser: asyncio.Transport
    page: asyncio.Protocol | None
    body: Body
    right: AccessRight | None
    key: str
    writable: bool
    _began: float = 0.0
    _timer: asyncio.TimerHandle | None = None

    def start(self, page_request: ServePage, head: bytes, trailing: bytes) -> None:
        """Give the page its request; *trailing* followed the head."""
        self.browser.set_protocol(self)
        page = self.page
        if page is None:  # already lost
            return
        if self.right is not None:
            self.path.parts.live.add(self)
        else:
            self._began = self.path.parts.loop.time()
            self.path.connection_quota.add(self)
        if not self.body.done:
            # Pages take small bodies only; one that comes by drops is not waited for.
            self._timer = self.path.parts.loop.call_later(
                self.path.parts.limits.slow_body_seconds, self._impatient
            )
        page.connection_made(PageTransport(self, self.browser, page_request))
        if not self.writable:
            # The answers before it are still being read; aiohttp takes a resume for its own.
            self.pause_writing()
        page.data_received(head)
        if trailing:
            self.receive(trailing)

    def idle_since(self) -> float:
        """Return since when its client is waited for, which sends little or reads little."""
        return self._began + (READ_SECONDS if self.body.done else ARRIVAL_SECONDS)

    def evict(self) -> None:
        """Reset the connection; its place is free at once."""
        self.path.connection_quota.remove(self)
        reset(self.browser)

    @property
    def access_right(self) -> AccessRight:
        """By which right the request is answered; only asked when there is one."""
        assert self.right is not None  # noqa: S101  # entered into the registry only then
        return self.right

    def end(self, ending: EndReason) -> None:
        """Reset the connection: an answer that was under way must not look complete.

        What becomes of the app is nothing to a page: where the session starts, or moves, it goes
        on, and may still be ended.
        """
        if ending.close_code not in _OF_THE_APP:
            reset(self.browser)
        elif not self.browser.is_closing():
            self.path.parts.live.discard(self)
            self.path.parts.live.add(self)

    # What the browser's transport calls

    def data_received(self, data: bytes) -> None:
        """Pass on what belongs to the request's body; the rest is discarded."""
        if len(data) < SMALL_READ:
            self.receive(data)
        else:
            self.path.turns.take(self, data)

    def receive(self, data: bytes) -> None:
        """Pass on what belongs to the request's body; the rest is discarded."""
        self.path.meters.page.up += len(data)
        if self.page is None or self.body.done:
            return
        try:
            piece = self.body.feed(data)
        except FramingError:
            reset(self.browser)
            return
        self.body.trailing_data = b""
        if piece:
            self.page.data_received(piece)
        if self.body.has_more:
            pause_reading(self.browser)
            self.path.turns.defer(self._go_on)

    def _go_on(self) -> None:
        self.receive(b"")
        if not self.body.has_more:
            resume_reading(self.browser)

    def pause_for_others(self) -> None:
        """Stop reading for a turn."""
        pause_reading(self.browser)

    def resume_after_others(self) -> None:
        """Read again."""
        if not self.body.has_more:
            resume_reading(self.browser)

    def look_for_stalls(self) -> None:
        """Have the browser watched where the kernel holds something for it."""
        self.path.ends.look_at(self.browser)

    def eof_received(self) -> bool:
        """The browser has left; an answer that is complete still goes out."""
        self._lose_page(None)
        self.path.ends.watch(self.browser)
        return False

    def pause_writing(self) -> None:
        """Pass it on; a browser that takes nothing for long is reset."""
        self.path.ends.watch(self.browser)
        if self.page is not None:
            self.page.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on."""
        self.path.ends.stalls.forget(self.browser)
        if self.page is not None:
            self.page.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the page, once, and leave the registry."""
        self.path.ends.forget(self.browser)
        self._lose_page(exc)
        self._gone()

    def _lose_page(self, exc: Exception | None) -> None:
        self._stop_timer()
        page, self.page = self.page, None
        if page is not None:
            page.connection_lost(exc)

    def _gone(self) -> None:
        if self.right is not None:
            self.path.parts.live.discard(self)
        else:
            self.path.connection_quota.remove(self)
        self.path.pages.discard(self)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _impatient(self) -> None:
        if not self.body.done:
            reset(self.browser)

    # What the page's transport calls

    def reset(self) -> None:
        """Reset the connection."""
        reset(self.browser)

    def wrote(self, count: int) -> None:
        """Count what the page has written."""
        self.path.meters.page.down += count

    def set_reading(self, reading: bool) -> None:
        """Read from the browser, or not; it may leave unread."""
        hangups = self.path.ends.hangups
        if reading:
            hangups.forget(self.browser)
            resume_reading(self.browser)
        else:
            pause_reading(self.browser)
            hangups.watch(self.browser, self.browser.abort)

    def finish(self) -> None:
        """The page closed: flush, shut our side, and read on for a moment."""
        page, self.page = self.page, None
        if page is None:
            return
        self._stop_timer()
        self.path.ends.forget(self.browser)
        ended = self.browser.is_closing()
        if not ended:
            seconds = self.path.parts.limits.linger_seconds
            Lingering(self.path.ends, self.browser, seconds=seconds, gone=self._gone)
        self.path.parts.loop.call_soon(page.connection_lost, None)


class PageTransport(asyncio.Transport):
    """What aiohttp sees of the connection."""

    def __init__(
        self, connection: PageConnection, browser: asyncio.Transport, page_request: ServePage
    ) -> None:
        super().__init__()
        self._connection = connection
        self._browser = browser
        self._page_request = page_request
        self._closing = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return our judgement for ``fumarole``; anything else from the real transport."""
        if name == EXTRA_INFO:
            return self._page_request
        return self._browser.get_extra_info(name, default)

    def is_closing(self) -> bool:
        """Say whether it was closed, from here or from there."""
        return self._closing or self._browser.is_closing()

    def close(self) -> None:
        """End the answer."""
        if not self._closing:
            self._closing = True
            self._connection.finish()

    def abort(self) -> None:
        """Reset the connection."""
        self._closing = True
        reset(self._browser)

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Write to the browser."""
        if not self._closing:
            self._connection.wrote(len(data))
            self._browser.write(data)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None:
        """Write to the browser."""
        if not self._closing:
            pieces = list(list_of_data)
            self._connection.wrote(sum(map(len, pieces)))
            self._browser.writelines(pieces)

    def can_write_eof(self) -> bool:
        """Say no: the end of the answer is ours to write."""
        return False

    def pause_reading(self) -> None:
        """Hold the browser back."""
        self._connection.set_reading(False)

    def resume_reading(self) -> None:
        """Let the browser go on."""
        self._connection.set_reading(True)

    def is_reading(self) -> bool:
        """Say whether bytes may come."""
        return not self.is_closing() and self._browser.is_reading()

    def get_write_buffer_size(self) -> int:
        """Return how much waits to be sent."""
        return self._browser.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set when the page is held back."""
        self._browser.set_write_buffer_limits(high, low)
