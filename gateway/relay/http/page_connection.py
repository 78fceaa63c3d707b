"""Handing one request over to an aiohttp application, without a byte beyond it.

aiohttp gets the canonical head, ``Connection: close`` and the body, which is framed here. Its
transport is a view of the real one that passes nothing else. The connection ends with the response.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from gateway.core.access.access_right import AccessRight, EndReason
from gateway.core.access.decision import ServePage
from gateway.core.access.refusals import CLOSE_DRAINING, CLOSE_SERVICE_RESTART
from gateway.core.http.framing import Body, FramingError
from gateway.core.limits.addresses import client_of_key
from gateway.core.limits.connection_quota import ARRIVAL_SECONDS
from gateway.relay.context import Context
from gateway.relay.ending.closer import Lingering
from gateway.relay.transports import is_tls, pause_reading, reset, resume_reading, waiting_bytes

EXTRA_INFO: Final = "fumarole"
"""``request.transport.get_extra_info(EXTRA_INFO)`` returns the decision on a request: a
:class:`gateway.core.access.decision.ServePage`."""
READ_SECONDS: Final = 10.0
"""The time for a page to be sent and read before its connection may be evicted."""
TLS_HIGH_BYTES: Final = 1 << 15
"""The high-water mark towards the browser over TLS, which encrypts at once what is written. Clients
of pages are often unknown."""
_OF_THE_APP: Final = frozenset({CLOSE_DRAINING, CLOSE_SERVICE_RESTART})
"""End reasons after which the browser may return with the same right."""


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class PageConnection(asyncio.Protocol):
    """The downstream protocol while a page responds.

    Args:
        context: What connections share.
        browser: The real transport.
        page: aiohttp's protocol for this one request.
        body: Reads the request body.
        right: The right that admitted the request, if any; the response ends with it.
        key: The limit key of an unauthenticated connection.
        writable: False while the browser has not read earlier responses.
    """

    kind = "page"

    context: Context
    browser: asyncio.Transport
    page: asyncio.Protocol | None
    body: Body
    right: AccessRight | None
    key: str
    writable: bool
    reading: bool = True
    """False while the page applies backpressure."""
    _began: float = 0.0
    _timer: asyncio.TimerHandle | None = None

    def start(self, page_request: ServePage, head: bytes, trailing: bytes) -> None:
        """Give the page its request; *trailing* followed the head."""
        self.browser.set_protocol(self)
        if is_tls(self.browser):
            self.browser.set_write_buffer_limits(high=TLS_HIGH_BYTES)
        page = self.page
        if page is None:  # already lost
            return
        if self.right is not None:
            self.context.live.add(self)
        else:
            self._began = self.context.loop.time()
            self.context.connection_quota.add(self)
        if not self.body.done:
            # Pages accept small bodies only; a slow one is not waited for.
            self._timer = self.context.loop.call_later(
                self.context.limits.slow_body_seconds, self._body_timed_out
            )
        page.connection_made(PageTransport(self, self.browser, page_request))
        if not self.writable:
            # Earlier responses are still being read; aiohttp would take their resume_writing for
            # its own.
            self.pause_writing()
        page.data_received(head)
        if trailing:
            self.receive(trailing)

    def idle_since(self) -> float:
        """Return since when it counts as idle: its client sends or reads slowly."""
        return self._began + (READ_SECONDS if self.body.done else ARRIVAL_SECONDS)

    def evict(self) -> None:
        """Reset the connection; it stops counting at once."""
        self.context.connection_quota.remove(self)
        reset(self.browser)

    @property
    def access_right(self) -> AccessRight:
        """The right by which it is registered; read only if there is one."""
        assert self.right is not None  # noqa: S101  # entered into the registry only then
        return self.right

    def end(self, ending: EndReason) -> None:
        """Reset the connection: a truncated response must not look complete.

        A page does not depend on the app. If the session starts or gets another target, the page
        continues and can still be ended.
        """
        if ending.close_code not in _OF_THE_APP:
            reset(self.browser)
        elif not self.browser.is_closing():
            self.context.live.discard(self)
            self.context.live.add(self)

    # Events of the downstream transport

    def data_received(self, data: bytes) -> None:
        """Pass on the bytes of the request body; discard the rest."""
        self.context.turns.read(self, data)

    def receive(self, data: bytes) -> None:
        """Pass on the bytes of the request body; discard the rest."""
        self.context.meters.page.up += len(data)
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
            self.context.turns.defer(self._go_on)

    def _go_on(self) -> None:
        self.receive(b"")
        self.resume_turn()

    def yield_turn(self) -> None:
        """Stop reading for a turn."""
        pause_reading(self.browser)

    def resume_turn(self) -> None:
        """Read again, unless the page or the body prevents it."""
        if self.reading and not self.body.has_more:
            resume_reading(self.browser)

    def check_stalls(self) -> None:
        """Watch the browser if the kernel holds unacknowledged bytes for it."""
        self.context.closer.watch_if_unacknowledged(self.browser)

    @property
    def client(self) -> str:
        """The user, or the key of the address without one; "" if it is not known."""
        right = self.right
        live = self.context.live
        return client_of_key(self.key) if right is None else live.client_of(right)

    def buffered_bytes(self) -> int:
        """Return how many bytes wait for the browser."""
        return waiting_bytes(self.browser)

    def shed(self) -> None:
        """Reset the connection to free memory."""
        reset(self.browser)

    def eof_received(self) -> bool:
        """Note that the browser has left; a complete response is still sent."""
        self._lose_page(None)
        self.context.closer.watch(self.browser)
        return False

    def pause_writing(self) -> None:
        """Tell the page; a browser that reads nothing for long is reset."""
        self.context.closer.watch(self.browser)
        if self.page is not None:
            self.page.pause_writing()

    def resume_writing(self) -> None:
        """Tell the page."""
        self.context.closer.stalls.forget(self.browser)
        if self.page is not None:
            self.page.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the page, once, and unregister."""
        self.context.closer.forget(self.browser)
        self._lose_page(exc)
        self._gone()

    def _lose_page(self, exc: Exception | None) -> None:
        self._stop_timer()
        page, self.page = self.page, None
        if page is not None:
            page.connection_lost(exc)

    def _gone(self) -> None:
        if self.right is not None:
            self.context.live.discard(self)
        else:
            self.context.connection_quota.remove(self)
        self.context.pages.discard(self)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _body_timed_out(self) -> None:
        if not self.body.done:
            reset(self.browser)

    # Calls of the page's transport

    def reset(self) -> None:
        """Reset the connection."""
        reset(self.browser)

    def set_reading(self, reading: bool) -> None:
        """Read from the browser, or pause; a browser that leaves meanwhile is noticed."""
        hangups = self.context.closer.hangups
        self.reading = reading
        if reading:
            hangups.forget(self.browser)
            self.resume_turn()
        else:
            pause_reading(self.browser)
            hangups.watch(self.browser, self.browser.abort)

    def finish(self) -> None:
        """Flush, shut down our side and linger: the page has closed its transport."""
        page, self.page = self.page, None
        if page is None:
            return
        self._stop_timer()
        self.context.closer.forget(self.browser)
        ended = self.browser.is_closing()
        if not ended:
            seconds = self.context.limits.linger_seconds
            Lingering(self.context.closer, self.browser, seconds=seconds, on_closed=self._gone)
        self.context.loop.call_soon(page.connection_lost, None)


class PageTransport(asyncio.Transport):
    """The transport that aiohttp sees."""

    def __init__(
        self, connection: PageConnection, browser: asyncio.Transport, page_request: ServePage
    ) -> None:
        super().__init__()
        self._connection = connection
        self._browser = browser
        self._page_request = page_request
        self._traffic = connection.context.meters.page
        self._closing = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the decision for ``fumarole``; anything else from the real transport."""
        if name == EXTRA_INFO:
            return self._page_request
        return self._browser.get_extra_info(name, default)

    def is_closing(self) -> bool:
        """Return whether either side has closed it."""
        return self._closing or self._browser.is_closing()

    def close(self) -> None:
        """End the response."""
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
            self._traffic.down += len(data)
            self._browser.write(data)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None:
        """Write to the browser."""
        if not self._closing:
            pieces = list(list_of_data)
            self._traffic.down += sum(map(len, pieces))
            self._browser.writelines(pieces)

    def can_write_eof(self) -> bool:
        """Return False: the gateway itself ends the response."""
        return False

    def pause_reading(self) -> None:
        """Apply backpressure to the browser."""
        self._connection.set_reading(False)

    def resume_reading(self) -> None:
        """Read from the browser again."""
        self._connection.set_reading(True)

    def is_reading(self) -> bool:
        """Return whether bytes may arrive."""
        return not self.is_closing() and self._browser.is_reading()

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait to be sent."""
        return self._browser.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the watermarks of the page's backpressure."""
        self._browser.set_write_buffer_limits(high, low)
