"""What the kernel still holds of a connection whose transport has given up."""

from __future__ import annotations

import os
from collections.abc import Iterator

_PIECE = 65536


def read_left(descriptor: int, most: int) -> Iterator[bytes]:
    """Yield what can be read from a non-blocking *descriptor* without waiting, up to *most*."""
    while most > 0 and descriptor >= 0:
        try:
            data = os.read(descriptor, min(_PIECE, most))
        except OSError:
            return
        if not data:
            return
        most -= len(data)
        yield data
