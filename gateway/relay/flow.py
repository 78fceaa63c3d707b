"""Flow control that does not mind a transport that is closing already."""

from __future__ import annotations

import asyncio


def hold(transport: asyncio.Transport | None) -> None:
    """Stop reading from *transport*, so that its peer is held back."""
    if transport is not None and not transport.is_closing():
        transport.pause_reading()


def release(transport: asyncio.Transport | None) -> None:
    """Read from *transport* again."""
    if transport is not None and not transport.is_closing():
        transport.resume_reading()


def shut(transport: asyncio.Transport) -> None:
    """Shut our side down after what was written, where the transport can (TLS cannot)."""
    if transport.is_closing():
        return
    if transport.can_write_eof():
        transport.write_eof()
    else:
        transport.close()
