from __future__ import annotations

import asyncio
import logging

import pytest

from gateway.relay.errands import Errands


async def test_errands_end_with_their_owner() -> None:
    errands, ended = Errands(), []

    async def errand() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            ended.append(True)

    errands.run(errand(), failed=lambda: ended.append(False))
    await asyncio.sleep(0)
    assert len(errands) == 1
    await errands.close()
    assert ended == [True]
    assert len(errands) == 0


async def test_what_an_errand_raises_is_logged_and_ends_who_waits_for_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def errand() -> None:
        raise RuntimeError("oops")

    errands, ended = Errands(), []
    with caplog.at_level(logging.ERROR):
        errands.run(errand(), failed=lambda: ended.append(True))
        await asyncio.sleep(0.01)
    assert "an errand failed" in caplog.text
    assert ended == [True]
    assert len(errands) == 0
