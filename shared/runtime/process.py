"""What every process of ours does with its command line, signals, addresses and descriptors.

All that a process is told comes from the environment.
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


@dataclass(frozen=True, slots=True)
class Command:
    """Something that a program does instead of its work."""

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
    """Return the settings that a process is to run with.

    The process ends here with exit code 0 after ``--help``, ``--version``, a successful
    ``--check`` and a command, and with exit code 2 for an unknown argument.

    Args:
        program: The command's name.
        read: Reads the settings, or ends the process with every problem listed.
        summary: What the program does, in one sentence.
        reference: The page of the documentation that lists the settings.
        arguments: The command line's; by default this process' own.
        commands: What the program does instead of its work, if it is named.
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


def stop_on_signals(stop: asyncio.Event) -> None:
    """Set *stop* at the first SIGTERM or SIGINT; end the process at once at a second one.

    Nothing is worth waiting for by then: the kernel closes what is open, and what was accepted
    is in a store. Call it inside the running loop.
    """
    loop = asyncio.get_running_loop()

    def asked() -> None:
        if stop.is_set():
            logging.shutdown()
            os._exit(EXIT_FAILED)
        stop.set()

    for one in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(one, asked)


def raise_descriptor_limit() -> int:
    """Allow this process as many open files as it may have, a million at most; return how many.

    The soft limit is often 1024, for the sake of programs that use ``select``; ours do not.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def tune_collector() -> None:
    """Have Python's cycle collector look less often, and not at what is there by now.

    It looks whenever 700 objects more are alive than at its last look. A thousand requests that
    begin and end together are more than that each time, and looking at them again and again
    doubled what each of them cost. Nearly all of our objects go without it.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)


def join_address(host: str, port: int) -> str:
    """Return ``host:port``, ``[host]:port`` for IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def write_address_file(path: Path | None, addresses: Mapping[str, str]) -> None:
    """Write *addresses* as JSON to *path*, if there is one.

    It is renamed into place: whoever waits for the file finds it whole.
    """
    if path is None:
        return
    part = path.with_name(f"{path.name}.{os.getpid()}")
    part.write_text(json.dumps(dict(addresses)))
    part.replace(path)
