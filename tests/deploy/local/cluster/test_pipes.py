"""Tests that pipes are read to their end and closed once, so reused descriptors stay open."""

from __future__ import annotations

import asyncio
import os

import pytest
import uvloop

from deploy.local.cluster.pipes import read_chunks


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the descriptors that Python code closes."""
    numbers: list[int] = []
    close = os.close

    def counted(fd: int) -> None:
        numbers.append(fd)
        close(fd)

    monkeypatch.setattr(os, "close", counted)
    return numbers


async def _read_all(fd: int) -> bytes:
    return b"".join([chunk async for chunk in read_chunks(fd, 4)])


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_pipe_is_read_to_its_end_and_closed_once(run: object, closed: list[int]) -> None:
    assert callable(run)
    reading, writing = os.pipe()
    os.write(writing, b"hello, world")
    os.close(writing)
    assert run(_read_all(reading)) == b"hello, world"
    assert closed.count(reading) == 1
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(reading)


async def test_a_cancelled_reader_closes_the_pipe(closed: list[int]) -> None:
    reading, writing = os.pipe()
    closed.clear()  # a new event loop closes a descriptor, too, which may have had this number
    task = asyncio.create_task(_read_all(reading))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert closed.count(reading) == 1
    os.close(writing)


async def test_a_terminal_hangup_is_end_of_file() -> None:
    ours, theirs = os.openpty()
    os.write(theirs, b"x")
    os.close(theirs)
    assert await _read_all(ours) == b"x"
