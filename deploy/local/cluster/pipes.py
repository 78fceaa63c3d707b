"""Reads the output of processes from pipes and terminals, each closed exactly once."""

import asyncio
import os
from collections.abc import AsyncGenerator


async def read_chunks(fd: int, size: int) -> AsyncGenerator[bytes]:
    """Yield the content of *fd*, at most *size* bytes at once, until its end; then close it.

    No read transport is used. uvloop closes the descriptor, and then the file object closes it as
    well. A thread may have opened another file with the same number in between, and would lose it.
    """
    os.set_blocking(fd, False)
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(fd, ready.set)
    try:
        while True:
            await ready.wait()
            ready.clear()
            try:
                chunk = os.read(fd, size)
            except BlockingIOError:
                continue
            except OSError:
                return  # a terminal without a process raises EIO
            if not chunk:
                return
            yield chunk
    finally:
        loop.remove_reader(fd)
        os.close(fd)
