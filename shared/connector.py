"""Connections for aiohttp's client, with a bound that it lacks."""

from __future__ import annotations

from functools import partial
from typing import Any, Final, cast

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_exceptions import HttpProcessingError

MOST_INTERIM: Final = 64
"""The most interim responses (1xx) before a response, as the gateway takes from an app."""
SLICE_BYTES: Final = 4096
"""While a head is expected, the parser gets this many bytes at once: some 240 of the smallest."""


class Connector(aiohttp.TCPConnector):
    """A connector that closes a connection with too many interim responses.

    aiohttp skips any number of them, and parses all that has arrived in one turn of the loop. A
    server that sends nothing else would block the loop for seconds.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # aiohttp has no public way to choose the protocol.
        self._factory = cast("partial[ResponseHandler]", partial(_Protocol, loop=self._loop))


class _Protocol(ResponseHandler):
    _interim = 0

    def data_received(self, data: bytes) -> None:
        """Parse *data* in slices until the head has arrived; without data, aiohttp resumes."""
        while len(data) > SLICE_BYTES and self._expects_head:
            super().data_received(data[:SLICE_BYTES])
            data = data[SLICE_BYTES:]
        if self.exception() is None:
            super().data_received(data)

    @property
    def _expects_head(self) -> bool:
        in_body = self._payload is not None and not self._payload.is_eof()
        return not (in_body or self._upgraded or self.exception())

    def feed_data(self, data: Any, size: int = 0) -> None:
        """Pass on a head, unless it is one interim response too many."""
        is_interim = 100 <= data[0].code < 200
        self._interim = self._interim + 1 if is_interim else 0
        if self.exception() is None and self._interim > MOST_INTERIM:
            self.set_exception(HttpProcessingError(message="too many interim responses"))
            if self.transport is not None:
                self.transport.abort()
        if self.exception() is None:
            super().feed_data(data, size)
