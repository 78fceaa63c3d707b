"""How many descriptors may be used, and for what."""

from __future__ import annotations

import resource
from typing import Final

RESERVED: Final = 256
"""Descriptors kept for what is open already: to dial apps with, to ask Redis."""


def ceiling(most: int | None = None) -> int:
    """Return the descriptor from which on nothing new is begun; the kernel gives the lowest free.

    Args:
        most: How many there may be; None for what the process may have.
    """
    most = most or resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return most - min(RESERVED, most // 4)
