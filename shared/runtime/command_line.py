"""The command lines of both processes: all that they are told comes from the environment."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

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
