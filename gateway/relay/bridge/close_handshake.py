"""The end of a WebSocket whose frames are ours, once its last one was written."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gateway.relay.transports import reset, resume_reading, shut

if TYPE_CHECKING:
    from websockets.server import ServerProtocol

    from gateway.relay.ending.ends import Ends


class CloseHandshake:
    """Closes *browser* when the browser does, or in two seconds at the latest.

    What the browser still sends is read and thrown away: left unread, it would turn our close
    into a reset, and the Close that was written would be lost.

    Args:
        browser: Nothing is written to it any more.
        socket: What was written to it; sees the Close that answers ours.
        ends: Closes it.
        at_once: Whether the right has ended: a browser that has not taken our Close within 250 ms
            must not get what stands before it either. Otherwise a slow reader gets everything.
    """

    __slots__ = ("_at_once", "_browser", "_ends", "_socket", "_timer")

    def __init__(
        self, browser: asyncio.Transport, socket: ServerProtocol, ends: Ends, *, at_once: bool
    ) -> None:
        self._browser = browser
        self._socket = socket
        self._ends = ends
        self._at_once = at_once
        resume_reading(browser)
        shut(browser)
        self._timer = asyncio.get_running_loop().call_later(
            ends.limits.end_seconds, self._check_written
        )
        if self._said_goodbye():
            ends.close(browser)

    def take(self, data: bytes) -> None:
        """Throw *data* away, but for the Close that answers ours.

        Where our side cannot be shut (TLS), the browser waits for us to close the connection.
        """
        if self._socket.close_sent is None or self._said_goodbye():
            return
        self._socket.receive_data(data)
        self._socket.events_received()
        # Pongs, say, which are not sent any more.
        self._socket.data_to_send()
        if self._said_goodbye():
            self._ends.close(self._browser)

    def over(self) -> None:
        """The connection is closed."""
        self._timer.cancel()

    def _said_goodbye(self) -> bool:
        return self._socket.close_rcvd is not None

    def _check_written(self) -> None:
        limits = self._ends.limits
        left = limits.linger_seconds - limits.end_seconds
        loop = asyncio.get_running_loop()
        if not self._browser.get_write_buffer_size():
            self._timer = loop.call_later(left, self._browser.abort)
        elif self._at_once:
            reset(self._browser)
        else:
            if not self._ends.watches(self._browser):
                self._ends.watch(self._browser)
            self._timer = loop.call_later(left, self._check_written)
