"""The command lines of both processes: all that they are told comes from the environment."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

from shared.version import VERSION

T = TypeVar("T")


def settings_from_command(
    program: str,
    read: Callable[[], T],
    *,
    summary: str,
    reference: str,
    arguments: Sequence[str] | None = None,
) -> T:
    """Return the settings that a process is to run with.

    The process ends here with exit code 0 after ``--help``, ``--version`` and a successful
    ``--check``, and with exit code 2 for an unknown argument.

    Args:
        program: The command's name.
        read: Reads the settings, or ends the process with every problem listed.
        summary: What the program does, in one sentence.
        reference: The page of the documentation that lists the settings.
        arguments: The command line's; by default this process' own.
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
    check: bool = parser.parse_args(arguments).check
    settings = read()
    if check:
        print("the settings are good")
        sys.exit(0)
    return settings
