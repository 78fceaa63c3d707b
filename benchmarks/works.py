"""The works that every proxy gets, and one measurement of a work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from benchmarks.measure import cpu_seconds
from benchmarks.native_programs import measured
from benchmarks.peers import Proxy
from benchmarks.requests import Visitor, get_head, put_head, socket_head

BODY_BYTES: Final = 1_000_000_000
UPLOAD_BYTES: Final = 250_000_000
"""Smaller than a download, so that several complete: a body is checked when it is complete."""
FRAME_BYTES: Final = 65536
Unit = Literal["µs", "ms/MB"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One kind of work. ``head`` makes the request of one visitor."""

    name: str
    title: str
    short: str
    load: str
    unit: Unit
    connections: int
    size: int
    head: Callable[[Visitor], bytes]
    desktop: bool = False
    warm_seconds: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The result of one run of a work on one proxy; latencies are in microseconds."""

    work: str
    proxy: str
    cost: float
    """CPU of the proxy: microseconds a unit, or milliseconds a megabyte."""
    rate: float
    p50: float
    p99: float
    p999: float
    busy: float
    """How much of its core the proxy used. Only near 1 is the rate limited by the proxy."""
    load_busy: float
    problem: str = ""


GET: Final = Work(
    name="get",
    title="1 KiB GET, 13 fields, the same on each connection",
    short="GET, the same fields",
    load="get",
    unit="µs",
    connections=64,
    size=1024,
    head=lambda v: get_head(v, "/bytes/1024"),
)
VARIED: Final = replace(
    GET,
    name="get-varied",
    title="1 KiB GET, 13 fields, two of them new in every request",
    short="GET, new fields each time",
    head=lambda v: get_head(v, "/bytes/1024", varied=True),
)
ECHO: Final = Work(
    name="echo",
    title="64 B WebSocket echo, 64 sockets",
    short="64 B WebSocket echo",
    load="echo",
    unit="µs",
    connections=64,
    size=64,
    head=lambda v: socket_head(v, "/echo"),
)
FRAMES: Final = Work(
    name="frames",
    title="64 KiB WebSocket frames downstream, 4 sockets",
    short="64 KiB WebSocket frames",
    load="frames",
    unit="ms/MB",
    connections=4,
    size=FRAME_BYTES,
    head=lambda v: socket_head(v, f"/frames/{FRAME_BYTES}"),
)
DOWN: Final = Work(
    name="down",
    title="1 GB GET",
    short="1 GB GET",
    load="get",
    unit="ms/MB",
    connections=1,
    size=BODY_BYTES,
    head=lambda v: get_head(v, f"/bytes/{BODY_BYTES}"),
)
UP: Final = Work(
    name="up",
    title="250 MB uploads",
    short="250 MB uploads",
    load="put",
    unit="ms/MB",
    connections=1,
    size=UPLOAD_BYTES,
    head=lambda v: put_head(v, "/sink", UPLOAD_BYTES),
)
HANDSHAKE: Final = Work(
    name="handshake",
    title="WebSocket opened and closed",
    short="WebSocket opened and closed",
    load="handshake",
    unit="µs",
    connections=16,
    size=0,
    head=lambda v: socket_head(v, "/echo"),
)
DESKTOP: Final = Work(
    name="desktop",
    title="VNC bridge, 64 KiB updates, 4 desktops",
    short="VNC bridge",
    load="rfb",
    unit="ms/MB",
    connections=4,
    size=0,
    head=lambda v: socket_head(v, "/", "binary"),
    desktop=True,
)
POINTER: Final = Work(
    name="pointer",
    title="Pointer to frame: a move, then 16 by 16 pixels, 1 desktop",
    short="Pointer to frame",
    load="pointer",
    unit="µs",
    connections=1,
    size=0,
    head=lambda v: socket_head(v, "/", "binary"),
    desktop=True,
)
WORKS: Final = (GET, VARIED, ECHO, FRAMES, DOWN, UP, HANDSHAKE, DESKTOP, POINTER)


def write_heads(path: Path, heads: Sequence[bytes]) -> Path:
    """Write the heads that the load sends, one after the other."""
    path.write_bytes(b"".join(heads))
    return path


def heads_of(work: Work, proxy: Proxy) -> list[bytes]:
    """Return the requests of all visitors of *proxy*."""
    if not work.desktop:
        return [work.head(visitor) for visitor in proxy.visitors]
    return [socket_head(visitor, proxy.desk_path, "binary") for visitor in proxy.desks]


async def run_work(work: Work, proxy: Proxy, *, load: Path, folder: Path, seconds: float) -> Sample:
    """Return the cost of *work* on *proxy*."""
    heads = write_heads(folder / f"{work.name}-{proxy.name}.heads", heads_of(work, proxy))
    arguments = [work.load, str(proxy.port), str(work.connections), str(work.warm_seconds)]
    arguments += [str(seconds), str(heads), str(work.size)]
    result, cpu = await measured(load, arguments, lambda: cpu_seconds(proxy.group))
    megabytes = result.bytes / 1e6
    amount = result.units if work.unit == "µs" else megabytes
    problem = f"{result.errors} errors, the first: {result.first_error}" if result.errors else ""
    if not amount:
        problem = problem or "nothing was done"
    return Sample(
        work=work.name,
        proxy=proxy.name,
        cost=cpu / amount * (1e6 if work.unit == "µs" else 1e3) if amount else 0.0,
        rate=amount / result.seconds,
        p50=result.p50,
        p99=result.p99,
        p999=result.p999,
        busy=cpu / result.seconds,
        load_busy=result.load_cpu_seconds / result.seconds,
        problem=problem,
    )
