from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from controller.hub import shell as shell_module
from controller.hub.claims import Holder
from controller.hub.protocol import ENDED, REPLACED, Size
from controller.hub.scrollback import Scrollbacks
from controller.hub.shell import WINDOW_BYTES, Reader, Shell, ShellEnd
from tests.controller.hub.streams import FakeStream
from tests.waiting import until

CHUNK = b"x" * 32768


@asynccontextmanager
async def running(stream: FakeStream, *, limit: int = 1 << 20) -> AsyncIterator[Shell]:
    shell = Shell(stream, b"$ ", Scrollbacks(limit))
    task = asyncio.create_task(shell.run())
    await asyncio.sleep(0)
    try:
        yield shell
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def enter(shell: Shell) -> Reader:
    return shell.enter(Holder("ada", "t1", "k1", 0.0), may_type=True, resume=None)


def read_all(shell: Shell, reader: Reader) -> bytes:
    result = b""
    while data := shell.read(reader, 1 << 16)[0]:
        result += data
    return result


async def test_output_is_kept_and_read_by_every_client() -> None:
    stream = FakeStream()
    async with running(stream) as shell:
        one, two = enter(shell), enter(shell)
        stream.write(b"hello", b" world")
        await until(lambda: shell.scrollback.end == 13)
        assert read_all(shell, one) == read_all(shell, two) == b"hello world"
        assert shell.scrollback.replay() == b"$ hello world"


async def test_the_terminal_has_a_size_before_the_first_client() -> None:
    stream = FakeStream()
    async with running(stream):
        await until(lambda: stream.sizes == [(80, 24)])


async def test_a_new_size_is_sent_to_shell_and_clients() -> None:
    stream = FakeStream()
    async with running(stream) as shell:
        reader = enter(shell)
        read_all(shell, reader)
        await shell.resize(Size(100, 30))
        assert stream.sizes[-1] == (100, 30)
        assert reader.changed.is_set()
        await shell.resize(Size(100, 30))
        assert stream.sizes.count((100, 30)) == 1


async def test_a_shell_without_clients_keeps_running() -> None:
    stream = FakeStream()
    async with running(stream, limit=65536) as shell:
        stream.write(*[CHUNK] * 100)
        await until(lambda: stream.read == 100 * len(CHUNK))
        assert shell.scrollback.end - shell.scrollback.start <= 2 * 65536


async def test_the_fastest_client_sets_the_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell_module, "PAUSE_SECONDS", 60.0)
    stream = FakeStream()
    async with running(stream) as shell:
        fast, slow = enter(shell), enter(shell)
        stream.write(*[CHUNK] * 100)
        await until(lambda: shell.scrollback.end > WINDOW_BYTES + len(CHUNK))
        await asyncio.sleep(0.02)
        waits_at = stream.read
        assert waits_at < 2 * WINDOW_BYTES, "it does not read on while nobody keeps up"
        read_all(shell, fast)
        await until(lambda: stream.read > waits_at)
        async with asyncio.timeout(5):
            while stream.read < 100 * len(CHUNK):
                read_all(shell, fast)
                await asyncio.sleep(0)
        assert shell.read(slow, 10)[1] > 0, "the slow one missed some, and nobody waited for it"


async def test_stalled_clients_stall_the_shell_for_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shell_module, "PAUSE_SECONDS", 0.05)
    stream = FakeStream()
    async with running(stream, limit=262144) as shell:
        stuck = enter(shell)
        stream.write(*[CHUNK] * 100)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await until(lambda: stream.read == 100 * len(CHUNK))
        assert loop.time() - began < 2, "one pause, not one for each piece"
        data, skipped = shell.read(stuck, 1 << 16)
        assert skipped == shell.scrollback.start - 2
        assert data
        read_all(shell, stuck)
        assert stuck.counts, "who has caught up is waited for again"


async def test_an_exit_is_reported_with_its_code() -> None:
    stream = FakeStream()
    async with running(stream) as shell:
        reader = enter(shell)
        stream.write(b"bye")
        stream.exit(3, "command terminated with exit code 3")
        await until(lambda: shell.ending is not None)
        assert shell.ending == ShellEnd(
            ENDED, "command terminated with exit code 3", exited=True, code=3
        )
        assert read_all(shell, reader) == b"bye", "its last words are kept"
        await until(lambda: stream.closed)


async def test_a_lost_connection_does_not_end_the_session() -> None:
    stream = FakeStream()
    async with running(stream) as shell:
        stream.exit(None, "the connection was lost", lost=True)
        await until(lambda: shell.ending is not None)
        assert shell.ending == ShellEnd(REPLACED, "the connection was lost")


async def test_a_slow_client_applies_backpressure_again_after_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shell_module, "PAUSE_SECONDS", 0.05)
    stream = FakeStream()
    async with running(stream) as shell:
        slow = enter(shell)
        stream.write(*[CHUNK] * 100)
        await until(lambda: stream.read == 100 * len(CHUNK))
        assert not slow.counts
        monkeypatch.setattr(shell_module, "PAUSE_SECONDS", 60.0)
        for _ in range(WINDOW_BYTES // len(CHUNK)):
            shell.read(slow, len(CHUNK))
        assert shell.scrollback.end - slow.position > 2 * WINDOW_BYTES
        # The interrupt takes effect after the output that the shell has already written.
        stream.write(*[CHUNK] * 100)
        await until(lambda: stream.read > 100 * len(CHUNK))
        await asyncio.sleep(0.02)
        assert stream.read < 104 * len(CHUNK)
        async with asyncio.timeout(5):
            while stream.read < 200 * len(CHUNK):
                read_all(shell, slow)
                await asyncio.sleep(0)


async def test_the_first_end_reason_is_kept_and_the_stream_closed() -> None:
    stream = FakeStream()
    async with running(stream) as shell:
        shell.end(ShellEnd(ENDED, "the session has ended"))
        shell.end(ShellEnd(REPLACED, "later"))
        await until(lambda: stream.closed)
        assert shell.ending == ShellEnd(ENDED, "the session has ended")


async def test_a_cancelled_shell_hangs_up_and_notifies_clients() -> None:
    stream = FakeStream()
    async with running(stream) as shell:
        reader = enter(shell)
        read_all(shell, reader)
    assert stream.closed
    assert shell.ending is not None
    assert shell.ending.close == REPLACED
    assert reader.changed.is_set()


async def test_input_to_an_ended_shell_is_discarded() -> None:
    stream = FakeStream()
    async with running(stream) as shell:
        reader = enter(shell)
        await shell.type(b"a", reader)
        shell.end(ShellEnd(ENDED, "over"))
        await shell.type(b"b", reader)
        await shell.resize(Size(1, 1))
        assert stream.typed == b"a"
        assert (1, 1) not in stream.sizes


async def test_a_stream_end_under_backpressure_is_detected() -> None:
    stream = FakeStream()
    async with running(stream) as shell:
        enter(shell)
        stream.write(*[CHUNK] * 10)
        await until(lambda: shell.scrollback.end > WINDOW_BYTES)
        shell.end(ShellEnd(ENDED, "over"))
        await until(lambda: stream.closed)
