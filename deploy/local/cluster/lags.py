"""The lags of the parts of a real cluster.

Each lag is off unless a test asks for it: `EmbeddedCluster(lags=LAGS)`, or `set_lags` while it
runs. A program reads the file with the lags when it starts and at SIGHUP.
"""

import asyncio
import json
import random
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

FILE: Final = "lags.json"

LAGS: Final[Mapping[str, float]] = {
    "collector": 20.0,
    "volcano-client": 50.0,
    "volcano-sync": 0.3,
    "volcano-timeout": 0.2,
}
"""All lags, with the values of a real cluster (the last two: enough to be noticed).

``collector`` and ``volcano-client`` are requests a second of these clients. ``volcano-sync`` is how
many seconds at most a job waits for its worker after somebody changed the VolcanoJob. If a pod
fails meanwhile, the waiting SyncJob sees that before the policies are applied. ``volcano-timeout``
is how many seconds at most pass between the deletions of a policy with ``timeout`` and its write of
the status, beside the worker.
"""


def chosen_lags(seed: int) -> dict[str, float]:
    """Return all lags as *seed* chooses them: from half of the value in `LAGS` to twice that."""
    chance = random.Random(f"lags {seed}")  # noqa: S311 - chooses behaviour, no secret
    return {name: value * 2 ** chance.uniform(-1, 1) for name, value in LAGS.items()}


class Lags:
    """The lags that a file turns on. Without a file there are none."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._values: dict[str, float] = {}
        self.read()

    def follow(self) -> None:
        """Read the file anew whenever this process gets SIGHUP."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.read)

    def read(self) -> None:
        """Read the file now."""
        there = self._path is not None and self._path.exists()
        self._values = json.loads(self._path.read_text()) if self._path and there else {}

    def value(self, name: str) -> float:
        """Return the value of the lag *name*; 0.0 means that it is off."""
        return self._values.get(name, 0.0)


def write_lags(path: Path, values: Mapping[str, float]) -> None:
    """Write *values* into the file that `Lags` reads.

    Raises:
        KeyError: For a lag that is not in `LAGS`.
    """
    if unknown := values.keys() - LAGS.keys():
        raise KeyError(f"no lags {sorted(unknown)}; there are {', '.join(LAGS)}")
    path.with_suffix(".new").write_text(json.dumps(dict(values)))
    path.with_suffix(".new").replace(path)


class RateLimit:
    """Limits requests to as many a second as the lag *name* allows, in the order of their arrival.

    It works as client-go's limiter: a bucket of tokens, full at the start. Without the lag it does
    not limit.
    """

    def __init__(self, lags: Lags, name: str, *, burst_seconds: float) -> None:
        self._lags = lags
        self._name = name
        self._burst_seconds = burst_seconds
        self._free_at = 0.0

    async def wait(self, requests: int = 1) -> None:
        """Return when *requests* more may be made."""
        rate = self._lags.value(self._name)
        if not rate:
            self._free_at = 0.0
            return
        now = time.monotonic()
        earliest = max(self._free_at, now - self._burst_seconds)
        self._free_at = earliest + requests / rate
        await asyncio.sleep(max(0.0, self._free_at - now))
