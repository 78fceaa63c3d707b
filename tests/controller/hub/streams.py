"""Provides a shell's stream and its executor in memory, with scripted output."""

from __future__ import annotations

import asyncio

from controller.kube.exec import ExecFailed, ExecTarget, Exited, Received


class FakeStream:
    """A stream whose output a test supplies; records the input."""

    def __init__(self) -> None:
        self.output: asyncio.Queue[Received] = asyncio.Queue()
        self.typed = bytearray()
        self.sizes: list[tuple[int, int]] = []
        self.closed = False
        self.read = 0
        self.may_type = asyncio.Event()
        self.may_type.set()
        self._exited: Exited | None = None

    def write(self, *data: bytes) -> None:
        for piece in data:
            self.output.put_nowait(piece)

    def exit(self, code: int | None = 0, message: str = "", *, lost: bool = False) -> None:
        self.output.put_nowait(Exited(code, message, lost))

    async def receive(self) -> Received:
        if self._exited is not None:
            return self._exited
        received = await self.output.get()
        if isinstance(received, Exited):
            self._exited = received
        else:
            self.read += len(received)
        return received

    async def send(self, data: bytes) -> None:
        # As with a real connection: what has to wait is taken nevertheless.
        self.typed += data
        await self.may_type.wait()

    async def until_typed(self, wanted: bytes) -> None:
        """Wait until the input is *wanted*."""
        async with asyncio.timeout(20):
            while bytes(self.typed) != wanted:
                await asyncio.sleep(0.005)

    async def resize(self, cols: int, rows: int) -> None:
        self.sizes.append((cols, rows))

    async def close(self) -> None:
        self.closed = True
        self.exit(None, "closed", lost=True)


class FakeExecutor:
    """Returns one stream per command; *refuse* makes it raise instead."""

    def __init__(self, prompt: bytes = b"$ ") -> None:
        self.streams: list[FakeStream] = []
        self.containers: list[ExecTarget] = []
        self.commands: list[list[str]] = []
        self.prompt = prompt
        self.refuse: ExecFailed | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def open(self, container: ExecTarget, command: list[str]) -> FakeStream:
        self.containers.append(container)
        self.commands.append(command)
        await self.gate.wait()
        if self.refuse is not None:
            raise self.refuse
        stream = FakeStream()
        self.streams.append(stream)
        if self.prompt:
            stream.write(self.prompt)
        return stream
