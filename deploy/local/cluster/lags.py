"""How late the parts of a real cluster are, and what that costs.

Each is off unless a test asks for it: `EmbeddedCluster(lags=LAGS)`, or `set_lags` while it runs.
The file that names them is read at the start of a program and at SIGHUP.
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
"""What can be late, with the value of a real cluster (the last two: enough to be met).

``collector`` and ``volcano-client`` are requests a second of these clients. ``volcano-sync`` is
how many seconds at most a job waits for its worker after somebody changed the VolcanoJob: a pod
that fails meanwhile is seen by the SyncJob that waits, before the policies are asked.
``volcano-timeout`` is how many seconds at most pass between what a policy with ``timeout``
deletes and the status that it writes, beside the worker.
"""


def chosen_lags(seed: int) -> dict[str, float]:
    """Return all lags as *seed* chooses them: from half of what `LAGS` says to twice that."""
    chance = random.Random(f"lags {seed}")  # noqa: S311 - chooses behaviour, no secret
    return {name: value * 2 ** chance.uniform(-1, 1) for name, value in LAGS.items()}


class Lags:
    """The lags that are on, as a file says; none without one."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._values: dict[str, float] = {}
        self.read()

    def follow(self) -> None:
        """Read the file anew whenever this process gets SIGHUP."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.read)

    def read(self) -> None:
        """Take what the file says now."""
        there = self._path is not None and self._path.exists()
        self._values = json.loads(self._path.read_text()) if self._path and there else {}

    def value(self, name: str) -> float:
        """Return the value of the lag *name*; 0.0 is none."""
        return self._values.get(name, 0.0)


def write_lags(path: Path, values: Mapping[str, float]) -> None:
    """Write *values* where `Lags` reads them.

    Raises:
        KeyError: For a lag that is not in `LAGS`.
    """
    if unknown := values.keys() - LAGS.keys():
        raise KeyError(f"no lags {sorted(unknown)}; there are {', '.join(LAGS)}")
    path.with_suffix(".new").write_text(json.dumps(dict(values)))
    path.with_suffix(".new").replace(path)


class RateLimit:
    """Lets so many requests a second pass as the lag *name* says, in the order they come.

    As client-go's limiter: a bucket of tokens, full at the start. Without the lag all pass.
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
