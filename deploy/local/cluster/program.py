"""The common parts of the three programs: arguments, readiness, and their end."""

import argparse
import asyncio
import contextlib
import logging
import os
import random
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop


class Stop(asyncio.Event):
    """Set when a program must end; *orphaned* means that its parent is gone."""

    def __init__(self) -> None:
        super().__init__()
        self.orphaned = False


Run = Callable[[argparse.Namespace, Stop], Awaitable[None]]


def make_parser(description: str) -> argparse.ArgumentParser:
    """Return a parser with the arguments that every program takes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--seed",
        type=int,
        default=int(os.environ.get("FUMAROLE_CLUSTER_SEED") or random.randrange(2**31)),  # noqa: S311 - not a secret
        help="chooses among legal behaviours (default: $FUMAROLE_CLUSTER_SEED, else random)",
    )
    parser.add_argument(
        "--with-parent",
        action="store_true",
        help="end when standard input does: a child that must not outlive its parent",
    )
    return parser


def client_parser(description: str) -> argparse.ArgumentParser:
    """Return a parser for a program that is a client of an API server."""
    parser = make_parser(description)
    parser.add_argument("--kubeconfig", type=Path, default=_default_kubeconfig())
    return parser


def announce_ready() -> None:
    """Report to the launcher that this program is ready: the only line on stdout."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()


async def wait_for_file(path: Path, stop: asyncio.Event, seconds: float = 30.0) -> None:
    """Return when *path* exists: the API server writes kubeconfigs when it can be called.

    Raises:
        TimeoutError: If it does not appear in time.
    """
    async with asyncio.timeout(seconds):
        while not os.path.exists(path) and not stop.is_set():  # noqa: ASYNC110, ASYNC240 - a file
            await asyncio.sleep(0.02)


def run_program(run: Run, arguments: argparse.Namespace) -> None:
    """Run *run* until it returns. SIGTERM, SIGINT and the death of the parent set its event."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(name)s %(message)s"
    )
    logging.getLogger(__name__).info("seed %d", arguments.seed)
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(_until_stopped(run, arguments))


async def _until_stopped(run: Run, arguments: argparse.Namespace) -> None:
    stop = Stop()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if arguments.with_parent:
        await loop.connect_read_pipe(lambda: _ParentGone(stop), sys.stdin)
    await run(arguments, stop)


class _ParentGone(asyncio.Protocol):
    """Sets the event when the pipe that the parent holds is closed, however the parent died."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop.orphaned = True
        self._stop.set()


def _default_kubeconfig() -> Path:
    return Path(os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config")
