"""Waits for a state that a test cannot be notified of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(condition: Callable[..., object], seconds: float = 30.0) -> None:
    """Return once *condition* holds; raise TimeoutError if it does not within *seconds*."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.002)
