"""What every process of ours does with signals, its addresses and its descriptors."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import resource
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Final

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


def calm_collector() -> None:
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
