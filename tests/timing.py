"""Measures how long code takes, without the time that other programs take from it."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


def waited_for_processor(pid: int) -> float:
    """Return how long a process was runnable but waited for a processor (proc(5), schedstat)."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9


@dataclass
class Elapsed:
    """The measured duration."""

    seconds: float = math.inf


@contextmanager
def timed(*pids: int) -> Iterator[Elapsed]:
    """Time the block, less the time that this process and *pids* waited for a processor."""
    processes = (os.getpid(), *pids)
    took, waited = Elapsed(), sum(map(waited_for_processor, processes))
    began = time.monotonic()
    yield took
    waited = sum(map(waited_for_processor, processes)) - waited
    took.seconds = time.monotonic() - began - waited
