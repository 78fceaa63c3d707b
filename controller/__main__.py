"""``python -m controller``: the controller process, from its environment to its exit code.

Commands: ``route-keys FILE…`` prints the public halves of signing keys, the JSON Web Key set for
``FUMAROLE_GATEWAY_ROUTE_KEYS``; ``explain URL|JOB`` explains why a session or a job cannot be used;
``backup FILE`` and ``restore FILE`` copy the store.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NoReturn

import uvloop

from controller.app import serve
from controller.backup import back_up, restore
from controller.configuration import Configuration, read_configuration
from controller.explain.command import as_text, explain
from controller.kube.errors import KubeError
from controller.kube.kubeconfig import problem_without_kubeconfig
from shared.errors import FumaroleError
from shared.jose.signing_keys import public_key_set, read_signing_keys
from shared.runtime.process import (
    EXIT_FAILED,
    Command,
    raise_descriptor_limit,
    settings_from_command,
    stop_on_signals,
    tune_collector,
)
from shared.settings import EXIT_BAD_SETTINGS, Environment, or_exit

PREFIXES: Final = ("FUMAROLE_CONTROLLER_", "FUMAROLE_PLUGIN_")
"""Prefixes of settings; an unknown setting with one of them is reported."""

MOST_TOKEN: Final = 16384
MOST_THREADS: Final = 64
THREADS_SECONDS: Final = 1.0
_THREADS: Final = "blocking"
_EXPECTED: Final = (FumaroleError, KubeError, OSError)
"""Errors that end the process without a traceback, since they come from its environment."""

log = logging.getLogger(__name__)


def main() -> None:
    """Run the controller until SIGTERM or SIGINT (the second one ends it at once), or a command."""
    run(
        settings_from_command(
            "fumarole-controller",
            _read_for_service,
            summary="Run jobs as VolcanoJobs, and publish the routes of their sessions.",
            reference="docs/settings.md",
            commands=(
                Command("route-keys", "print the public halves of signing keys", _files, _keys),
                Command(
                    "explain", "explain why a session or a job cannot be used", _what, _explain
                ),
                Command("backup", "write the store to a file", _file, _backup),
                Command("restore", "replace the store by a backup", _file, _restore),
            ),
        )
    )


def _read() -> Configuration:
    return or_exit(read_configuration, prefix=PREFIXES)


def _read_for_service() -> Configuration:
    return or_exit(_read_with_cluster, prefix=PREFIXES)


def _read_with_cluster(environment: Environment) -> Configuration:
    """Read the configuration, and check how the API server is reached, unlike some commands."""
    configuration = read_configuration(environment)
    if not environment.is_set("KUBECONFIG") and (problem := problem_without_kubeconfig()):
        environment.problem("KUBECONFIG", problem)
    return configuration


# Commands


def _files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="+", help="PEM files with signing keys")


def _keys(given: argparse.Namespace) -> None:
    write_route_keys(given.file)


def write_route_keys(paths: Sequence[str]) -> None:
    """Print the set of public keys of the PEM files *paths*."""
    try:
        keys = [key for path in paths for key in read_signing_keys(Path(path).read_bytes())]
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(EXIT_BAD_SETTINGS) from None
    print(json.dumps(public_key_set(keys), indent=1))


def _what(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="url|job", help="a session's address or sid, or a job's id")
    parser.add_argument(
        "--token", action="store_true", help="read a token for the session from standard input"
    )
    parser.add_argument("--json", action="store_true", help="print the API's response")


def _explain(given: argparse.Namespace) -> None:
    settings = _read().settings
    logging.basicConfig(level=logging.ERROR)  # the result is printed once
    token = sys.stdin.read(MOST_TOKEN + 1).strip() if given.token else None
    try:
        explained = asyncio.run(explain(settings, given.what, token))
    except (FumaroleError, KubeError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(EXIT_BAD_SETTINGS) from None
    print(json.dumps(explained.model_dump()) if given.json else as_text(explained))
    raise SystemExit(EXIT_FAILED if explained.cause else 0)


def _file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="the file of the backup")


def _backup(given: argparse.Namespace) -> None:
    url = _read().settings.store_url
    with _failures_printed():
        back_up(url, given.file)
    print(f"the store was written to {given.file}")


def _restore(given: argparse.Namespace) -> None:
    settings = _read().settings
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    with _failures_printed():
        settings.make_folders()
        asyncio.run(restore(settings.store_url, given.file, now=time.time()))
    print("the store is restored, and submission is paused: see docs/how-to/backup.md")


@contextmanager
def _failures_printed() -> Iterator[None]:
    try:
        yield
    except (FumaroleError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(EXIT_FAILED) from None


# The process


def run(configuration: Configuration) -> None:
    """Run the controller."""
    configuration.settings.log.apply()
    try:
        configuration.settings.make_folders()
        uvloop.run(_run(configuration))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(EXIT_BAD_SETTINGS) from None
    except _EXPECTED as error:
        _fail(error)
    except ExceptionGroup as errors:
        # Concurrent tasks fail as a group.
        if errors.split(_EXPECTED)[1] is not None:
            raise
        _fail(*_leaves(errors))


def _fail(*errors: BaseException) -> NoReturn:
    for error in errors:
        log.error("the controller cannot continue", extra={"why": str(error)})
    raise SystemExit(EXIT_FAILED)


def _leaves(group: BaseExceptionGroup[Exception]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


async def _run(configuration: Configuration) -> None:
    stopping = asyncio.Event()
    stop_on_signals(stopping)
    raise_descriptor_limit()
    # A collection of all imported objects blocks the loop for 150 ms each time.
    tune_collector()
    # More than Python's default: plugins' hooks may block some of them for ever.
    threads = ThreadPoolExecutor(MOST_THREADS, thread_name_prefix=_THREADS)
    asyncio.get_running_loop().set_default_executor(threads)
    code = EXIT_FAILED
    try:
        await serve(configuration, stopping=stopping)
        code = 0
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
        await _leave_threads(code)


async def _leave_threads(code: int) -> None:
    """Exit here if threads of hooks do not end: otherwise the process waits for them."""
    deadline = time.monotonic() + THREADS_SECONDS
    while left := [one.name for one in threading.enumerate() if one.name.startswith(_THREADS)]:
        if time.monotonic() > deadline:
            log.warning("leaving threads behind that do not end", extra={"threads": len(left)})
            logging.shutdown()
            os._exit(code)
        await asyncio.sleep(0.05)


if __name__ == "__main__":
    main()
