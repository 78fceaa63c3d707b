"""The command line, signals, file descriptors and address file of a process.

All settings come from the environment, none from the command line.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from shared.version import VERSION

T = TypeVar("T")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand, which a program runs instead of its service."""

    name: str
    summary: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], None]


def settings_from_command(
    program: str,
    read: Callable[[], T],
    *,
    summary: str,
    reference: str,
    arguments: Sequence[str] | None = None,
    commands: Sequence[Command] = (),
) -> T:
    """Parse the command line and return the settings.

    Exits with code 0 after ``--help``, ``--version``, a successful ``--check`` and a subcommand,
    and with code 2 for an unknown argument.

    Args:
        program: The program's name.
        read: Reads the settings, or exits with every problem listed.
        summary: What the program does, in one sentence.
        reference: The documentation page that lists the settings.
        arguments: The arguments; by default those of this process.
        commands: The subcommands.
    """
    parser = argparse.ArgumentParser(
        prog=program,
        description=summary,
        epilog=f"Settings are read from the environment: {reference} lists them.",
    )
    parser.add_argument("--version", action="version", version=f"{program} {VERSION}")
    parser.add_argument(
        "--check",
        action="store_true",
        help="read the settings and the files that they name, list every problem, and end",
    )
    if commands:
        named = parser.add_subparsers(title="commands, instead", metavar="[command]")
        for command in commands:
            its = named.add_parser(command.name, help=command.summary, description=command.summary)
            command.add_arguments(its)
            its.set_defaults(command=command.run)
    given = parser.parse_args(arguments)
    if commands and "command" in given:
        given.command(given)
        sys.exit(0)
    check: bool = given.check
    settings = read()
    if check:
        print("the settings are good")
        sys.exit(0)
    return settings


EXIT_FAILED: Final = 1
MOST_DESCRIPTORS: Final = 1 << 20
COLLECTOR_THRESHOLDS: Final = (10_000, 10, 20)
_HANGUP: Final = "SIGHUP is ignored: settings are read only at start; SIGTERM ends the process"


def stop_on_signals(stop: asyncio.Event) -> None:
    """Set *stop* at the first SIGTERM or SIGINT; exit at once at a second one.

    A second signal loses nothing: the kernel closes connections, and accepted jobs are in the
    store. SIGHUP is logged and ignored, as in Envoy and Caddy: it is sent to make a proxy reload,
    and by default it would end the process and reset its connections. Call it inside the running
    loop.
    """
    loop = asyncio.get_running_loop()

    def asked() -> None:
        if stop.is_set():
            logging.shutdown()
            os._exit(EXIT_FAILED)
        stop.set()

    for one in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(one, asked)
    loop.add_signal_handler(signal.SIGHUP, log.warning, _HANGUP)


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files to the hard limit, 2^20 at most; return the limit.

    The soft limit is often 1024 for programs that use ``select``, which Fumarole does not.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def tune_collector() -> None:
    """Make Python's cycle collector run less often, and ignore the objects that exist now.

    By default it runs whenever 700 more objects are alive than at its last run. A thousand requests
    at a time exceed that again and again, which doubled the cost of each request. Reference
    counting frees nearly all objects without the collector.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)


def join_address(host: str, port: int) -> str:
    """Return ``host:port``, ``[host]:port`` for IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def write_address_file(path: Path | None, addresses: Mapping[str, str]) -> None:
    """Write *addresses* as JSON to *path*, if it is set.

    The file is renamed into place, so that readers never see a part of it.
    """
    if path is None:
        return
    part = path.with_name(f"{path.name}.{os.getpid()}")
    part.write_text(json.dumps(dict(addresses)))
    part.replace(path)
