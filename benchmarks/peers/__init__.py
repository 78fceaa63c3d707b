"""One file per peer: its configuration for this work, and how it is started.

Each is set up as its own documentation advises: keep-alive towards the app, no buffering to disk,
one worker, because there is one core. Its file shows every setting beyond the defaults.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.install import Programs
from benchmarks.native_programs import Backend
from benchmarks.programs import cores, free_port, running, until_listening
from benchmarks.requests import Visitor

HERE: Final = Path(__file__).parent
PLAIN: Final = (Visitor("app.localhost:4180", "session=" + "c0ffee" * 40),)
"""The visitor of a proxy that checks no credential; its cookie is as long as the gateway's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What a peer needs: a folder of its own, the app, and the installed programs."""

    folder: Path
    backend: Backend
    programs: Programs


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """The certificate of a peer that ends TLS; ``both`` is a file with chain and key."""

    chain: Path
    key: Path
    both: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """A running peer: its port, its process group, and its visitors."""

    name: str
    port: int
    group: int
    visitors: tuple[Visitor, ...] = PLAIN
    desks: tuple[Visitor, ...] = PLAIN
    desk_path: str = "/"


Start = Callable[[Ground], AbstractAsyncContextManager[Proxy]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One peer. ``desktop``: it serves desktops instead of the web."""

    name: str
    label: str
    program: str
    start: Start
    authorises: bool = False
    desktop: bool = False
    notes: str = ""
    grows: bool = field(default=False)
    """Whether its cost is also measured for growing work."""


def template(name: str, ground: Ground, **values: object) -> Path:
    """Write the configuration *name* with *values* into the peer's folder."""
    text = (HERE / name).read_text()
    for key, value in {**values, "backend": ground.backend.port, "folder": ground.folder}.items():
        text = text.replace(f"%{key}%", str(value))
    path = ground.folder / name
    path.write_text(text)
    return path


@asynccontextmanager
async def proxy_of(
    name: str, ground: Ground, command: list[str], port: int, visitors: tuple[Visitor, ...] = PLAIN
) -> AsyncIterator[Proxy]:
    """Run *command* on the proxies' core during the block; wait until it listens at *port*."""
    log = ground.folder / "log"
    async with running(command, core=cores()[0], log=log) as process:
        await until_listening(process, port, log)
        yield Proxy(name=name, port=port, group=process.pid, visitors=visitors)


__all__ = ["PLAIN", "Certificate", "Ground", "Peer", "Proxy", "free_port", "proxy_of", "template"]
