"""The gateway under test, with short deadlines, and the kernel's data about its process."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import ssl
import struct
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from tests.contract.process import ROOT, Process
from tests.contract.rig import Rig, Session, new_source, running_rig
from tests.contract.streams import Stream
from tests.contract.upstream import App, Script
from tests.gateway.relay.authorities import Authority
from tests.pressure.browser import Browser
from tests.pressure.cable import Cable
from tests.pressure.honest import WORKS, HonestResults
from tests.timing import waited_for_processor

# Every deadline of the product that a test would otherwise wait for.
DEADLINE_SECONDS = 3.0
DEADLINES = {
    name: str(DEADLINE_SECONDS)
    for name in (
        "HEAD_SECONDS",
        "APP_HEAD_SECONDS",
        "SLOW_BODY_SECONDS",
        "WRITE_STALL_SECONDS",
        "APP_WRITE_STALL_SECONDS",
    )
}
# A small window, so that unread bytes soon fill the kernel's buffers.
SMALL_WINDOW = 32 << 10
# A gateway that gets no processor time is waited for: its behaviour matters more than the delay.
METRICS_SECONDS = SETUP_SECONDS = 60.0
MEASURE_SECONDS = 0.1
ESTABLISHED, KEEPALIVE_TIMER = "01", "02"
FIRST_PORT, PORTS = 10_000, 22_000
Address = tuple[str, int]
_SAMPLE = re.compile(r"^(\w+)(\{.*\})? (\S+)$", re.MULTILINE)


class LocalHost:
    """This host: the gateway runs here unless a test needs a cable."""

    def enter(self, command: list[str]) -> list[str]:
        return command

    async def listen(self, where: str, window: int | None = None) -> socket.socket:
        assert where == "near"
        made = socket.socket()
        if window is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        made.bind(("127.0.0.1", 0))
        made.listen(256)
        made.setblocking(False)
        return made

    async def connect(
        self, where: str, address: Address, source: Address | None, window: int | None = None
    ) -> socket.socket:
        assert where == "near"
        made = socket.socket()
        made.setblocking(False)
        if window is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        try:
            if source is not None:
                made.bind(source)
            async with asyncio.timeout(SETUP_SECONDS):
                await asyncio.get_running_loop().sock_connect(made, address)
        except BaseException:  # a cancelled caller has no socket to close
            made.close()
            raise
        return made


class SecureStream(Stream):
    """A stream over TLS, which cannot stay half closed."""

    def eof_received(self) -> bool:
        super().eof_received()
        return False


class WiredProcess(Process):
    """A gateway at *place*, with TLS if *context* is given."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str],
        *,
        place: LocalHost | Cable,
        context: ssl.SSLContext | None,
    ) -> None:
        super().__init__(folder, settings)
        self.command = place.enter(self.command)
        self.place = place
        self.context = context

    async def connect_public(self, source: str) -> Stream:
        sock = await self.place.connect("near", self.public, (source, 0))
        return await self._stream(sock, self.context)

    async def connect_ops(self) -> Stream:
        return await self._stream(await self.place.connect("near", self.ops, None), None)

    async def _stream(self, sock: socket.socket, context: ssl.SSLContext | None) -> Stream:
        loop = asyncio.get_running_loop()
        name = "localhost" if context else None
        kind = SecureStream if context else Stream
        _, stream = await loop.create_connection(kind, sock=sock, ssl=context, server_hostname=name)
        return stream


@dataclass(frozen=True)
class Leg:
    """A connection of which the gateway's process holds a descriptor."""

    local: Address
    remote: Address
    state: str
    timer: str


@dataclass
class Watched:
    """The memory of the gateway's process during an operation, in bytes."""

    before: int
    most: int

    @property
    def growth(self) -> int:
        """The largest growth."""
        return self.most - self.before


class HonestProcess:
    """Honest sessions in a process of their own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    async def line(self) -> bytes:
        """Return the next line of the process' output."""
        assert self._process.stdout is not None
        async with asyncio.timeout(60):
            return await self._process.stdout.readline()

    def tell(self, what: Any) -> None:
        """Send *what* as one line."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what).encode() + b"\n")

    async def seen(self) -> HonestResults:
        """Return the observations since the last call."""
        self.tell("seen")
        return HonestResults(**json.loads(await self.line()))


class PressureRig:
    """A gateway with browsers and apps around it."""

    def __init__(self, rig: Rig, process: WiredProcess) -> None:
        self.rig = rig
        self.process = process
        self.place = process.place
        self.browsers: list[Browser] = []
        self.stack = AsyncExitStack()
        self._others: HonestProcess | None = None
        self._ports = count()
        self._late = 0.0
        self._look: asyncio.Task[set[Address]] | None = None

    # Both sides

    async def browser(
        self, *, window: int | None = None, source: str | None = None, handshake: bool = True
    ) -> Browser:
        """Return a browser's connection, from an address and a port of its own.

        The ports are below those that the kernel assigns (ip_local_port_range), so nothing else
        uses them.
        """
        own = (source or new_source(), FIRST_PORT + next(self._ports) % PORTS)
        sock = await self.place.connect("near", self.process.public, own, window)
        browser = Browser(sock, self.process.context)
        self.browsers.append(browser)
        if handshake:
            await browser.handshake()
        return browser

    @asynccontextmanager
    async def app(
        self, script: Script | None = None, *, where: str = "near", window: int | None = None
    ) -> AsyncIterator[App]:
        """Run an app that plays *script* on each connection."""
        async with App(script, listener=await self.place.listen(where, window)) as app:
            yield app

    async def entered(self, app: App, **fields: Any) -> tuple[Session, list[tuple[str, str]]]:
        """Return a session of *app*, and the request fields of a script on its own page."""
        return await self.rig.entered(app, **fields)

    def close(self) -> None:
        """End every connection that a test made."""
        for browser in self.browsers:
            browser.reset()
        self.browsers.clear()
        self.rig.close_streams()

    # Data of the kernel

    def rss(self) -> int:
        """Return the resident memory of the process."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGESIZE")

    def cpu(self) -> float:
        """Return the processor time that the process has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def late(self) -> float:
        """Return how long the test was late, or the gateway waited for a processor, so far."""
        return self._late + waited_for_processor(self.process.pid)

    def waited(self) -> float:
        """Return how long the gateway and the honest sessions have waited for a processor."""
        others = waited_for_processor(self._others.pid) if self._others else 0.0
        return waited_for_processor(self.process.pid) + others

    @asynccontextmanager
    async def timing_itself(self) -> AsyncIterator[None]:
        """Record the test's own delay: its control is a sleep, and its own work counts too."""

        async def sleep_on_time() -> None:
            while True:
                due = time.monotonic() + MEASURE_SECONDS
                await asyncio.sleep(MEASURE_SECONDS)
                self._late += max(0.0, time.monotonic() - due)

        task = asyncio.create_task(sleep_on_time())
        try:
            yield
        finally:
            task.cancel()

    def legs(self) -> list[Leg]:
        """Return every TCP connection of which the process holds a descriptor."""
        folder = Path(f"/proc/{self.process.pid}")
        held = set(_inodes(folder / "fd"))
        return [leg for inode, leg in _rows(folder / "net") if inode in held]

    def legs_of(self, peer: Address) -> list[Leg]:
        """Return the connections whose other end is at *peer*.

        The port alone is not enough: two hosts may have an app at the same port.
        """
        return [leg for leg in self.legs() if leg.remote == peer]

    async def remotes(self) -> set[Address]:
        """Return the addresses of the peers, as of a look that starts now or later.

        A look takes a while, so all waiters share one look.
        """
        if self._look is None:
            self._look = asyncio.create_task(self._look_soon())
        return await asyncio.shield(self._look)

    async def _look_soon(self) -> set[Address]:
        await asyncio.sleep(MEASURE_SECONDS)
        self._look = None
        return {leg.remote for leg in self.legs()}

    async def freed(self, peer: Address, seconds: float) -> float | None:
        """Return how long the process still held a connection to *peer*; None if it still does.

        The delays of test and gateway meanwhile are added to *seconds*.
        """
        began, late = time.monotonic(), self.late()
        while peer in await self.remotes():
            if time.monotonic() - began > seconds + self.late() - late:
                return None
        return time.monotonic() - began

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[Watched]:
        """Watch the memory of the process."""
        seen = Watched(self.rss(), self.rss())

        async def watch() -> None:
            while True:
                seen.most = max(seen.most, self.rss())
                await asyncio.sleep(0.02)

        task = asyncio.create_task(watch())
        try:
            yield seen
        finally:
            task.cancel()
            seen.most = max(seen.most, self.rss())

    async def metrics(self) -> dict[str, float]:
        """Return every sample of the ops listener, by name and labels."""
        response = await self.process.ops_response("/metrics", METRICS_SECONDS)
        text = response.body.decode()
        return {name + labels: float(value) for name, labels, value in _SAMPLE.findall(text)}

    # Honest sessions

    async def others(self) -> HonestProcess:
        """Return the honest session that runs as long as the gateway."""
        if self._others is None:
            self._others = await self.stack.enter_async_context(self.honest(1))
        return self._others

    @asynccontextmanager
    async def honest(
        self, count: int, *, pause: float = 0.02, works: Sequence[str] = WORKS[:1]
    ) -> AsyncIterator[HonestProcess]:
        """Run *count* honest sessions that do *works* in turn."""
        command = self.place.enter([sys.executable, "-m", "tests.pressure.honest"])
        process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=PIPE, stdout=PIPE)
        others = HonestProcess(process)
        try:
            port = int(await others.line())
            sessions = [
                await self._honest_session(port, works[number % len(works)])
                for number in range(count)
            ]
            shared = {"address": self.process.public, "tls": self.process.context is not None}
            others.tell({"all": shared | {"pause": pause}, "sessions": sessions})
            yield others
        finally:
            process.kill()
            await process.wait()

    async def _honest_session(self, port: int, work: str) -> dict[str, Any]:
        session = self.rig.make_session(target={"host": "127.0.0.1", "port": port})
        await self.rig.bus.upsert(session.sid, session.route)
        await self.rig.settled()
        cookie = await self.rig.opened(session)
        return {"host": session.host, "origin": session.origin, "cookie": cookie, "work": work}


def _inodes(folder: Path) -> Iterator[str]:
    for name in os.listdir(folder):
        try:
            target = os.readlink(folder / name)
        except OSError:
            continue
        if target.startswith("socket:["):
            yield target[8:-1]


def _rows(folder: Path) -> Iterator[tuple[str, Leg]]:
    for name in ("tcp", "tcp6"):
        for line in (folder / name).read_text().splitlines()[1:]:
            row = line.split()
            local, remote = map(_address, row[1:3])
            yield row[9], Leg(local, remote, state=row[3], timer=row[5][:2])


_MAPPED = bytes(10) + b"\xff\xff"


def _address(text: str) -> Address:
    """Return the address in proc(5)'s words of machine byte order; IPv4 in IPv6 is IPv4."""
    words, _, port = text.partition(":")
    size, raw = len(words) // 8, bytes.fromhex(words)
    packed = struct.pack(f">{size}I", *struct.unpack(f"={size}I", raw)).removeprefix(_MAPPED)
    family = socket.AF_INET if len(packed) == 4 else socket.AF_INET6
    return socket.inet_ntop(family, packed), int(port, 16)


def make_context() -> ssl.SSLContext:
    """Return a browser's TLS context; it does not verify the gateway."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@asynccontextmanager
async def running_ground(
    folder: Path,
    settings: Mapping[str, str] | None = None,
    *,
    deadlines: Mapping[str, str] = DEADLINES,
    tls: bool = False,
    cable: bool = False,
    core: int | None = None,
    program: str = "gateway",
) -> AsyncIterator[PressureRig]:
    """Run a gateway in *folder* with short *deadlines* and further *settings*, alone on *core*.

    *program* is the module that runs it.
    """
    networks = {"UPSTREAM_NETWORKS": "127.0.0.0/8,10.99.0.0/24"}
    more = networks | dict(deadlines) | dict(settings or {})
    if tls:
        pair = str(Authority(folder, "table").vouch("localhost"))
        more |= {
            "TLS_CERT_FILE": pair,
            "TLS_KEY_FILE": pair,
            "PUBLIC_URL": "https://localhost:4180",
        }
    made: list[WiredProcess] = []
    with Cable() if cable else nullcontext(LocalHost()) as place:

        def make_process(folder: Path, settings: Mapping[str, str]) -> Process:
            context = make_context() if tls else None
            made.append(WiredProcess(folder, settings, place=place, context=context))
            made[0].command[-1] = program
            if core is not None:
                made[0].command = ["taskset", "-c", str(core), *made[0].command]
            return made[0]

        async with running_rig(folder, more, make_process=make_process) as rig:
            ground = PressureRig(rig, made[0])
            async with ground.timing_itself(), ground.stack:
                yield ground
                ground.close()
