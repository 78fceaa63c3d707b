"""The last protocol of a connection releases its transport."""

from __future__ import annotations

import asyncio
import gc
import weakref
from unittest.mock import Mock

from gateway.relay.ending.closer import Closer, Lingering


class Transport(Mock):
    """A transport with weak references."""


async def test_a_closed_connection_is_freed_without_the_cycle_collector() -> None:
    """With TLS a transport holds 256 KiB and its last protocol, which must not hold it."""
    transport = Transport(spec=asyncio.Transport)
    transport.get_write_buffer_size.return_value = 0
    ends = Mock(spec=Closer, loop=asyncio.get_running_loop())
    reported: list[str] = []
    lingering = Lingering(ends, transport, seconds=60.0, on_closed=lambda: reported.append("gone"))
    lingering.connection_lost(None)
    assert reported == ["gone"]
    ends.reset_mock()
    there = weakref.ref(transport)
    assert not any(one is transport for one in gc.get_referents(lingering))
    del transport
    gc.collect()  # a Mock is full of cycles of its own; the protocol is still held here
    assert there() is None
    assert lingering is not None
