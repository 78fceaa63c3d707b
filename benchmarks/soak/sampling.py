"""Samples a gateway's processes, from /proc and from its ops listener."""

from __future__ import annotations

import asyncio
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.workers import family_of

_MIB: Final = 1 << 20
_PAGE: Final = os.sysconf("SC_PAGESIZE")
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_OPS_SECONDS: Final = 30.0
OPS_FAILURES: Final = (OSError, EOFError, TimeoutError, ValueError, KeyError)
"""The errors when the gateway does not answer, or not completely."""
_METRICS: Final = {
    "fumarole_gateway_tasks": "tasks",
    'fumarole_gateway_open_connections{kind="websocket"}': "WebSockets",
    "fumarole_gateway_pooled": "pooled connections",
    "fumarole_gateway_revocations": "revocations",
    "fumarole_gateway_bus_lag_seconds": "bus lag",
    'fumarole_gateway_routes{state="ready"}': "routes",
}


@dataclass(frozen=True, slots=True)
class Worker:
    """The gateway's report of one of its workers."""

    number: int
    pid: int | None
    accepting: bool
    open: int


class Gateway:
    """The sampled gateway: its supervisor's pid, and its ops listener."""

    def __init__(self, pid: int, folder: Path) -> None:
        self.pid = pid
        addresses = json.loads((folder / "addresses.json").read_text())
        self._ops = int(addresses["ops"].rpartition(":")[2])

    async def workers(self) -> list[Worker]:
        """Return its workers."""
        told: dict[str, Any] = json.loads(await self._get("/debug/routes"))
        return [
            Worker(one["worker"], one["pid"], one["accepting"], one.get("open", 0))
            for one in told["workers"]
        ]

    async def until_replaced(self, number: int, pid: int, *, within: float) -> bool:
        """Wait until another process than *pid* accepts as worker *number*; say whether one did."""
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            for one in await self.workers():
                if one.number == number and one.accepting and one.pid not in (None, pid):
                    return True
            await asyncio.sleep(0.1)
        return False

    async def metrics(self) -> dict[str, float]:
        """Return those of its metrics that a soak samples."""
        found = {}
        for line in (await self._get("/metrics")).decode().splitlines():
            name, _, value = line.rpartition(" ")
            if name in _METRICS:
                found[_METRICS[name]] = float(value)
        return found

    async def _get(self, path: str) -> bytes:
        async with asyncio.timeout(_OPS_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", self._ops)
            try:
                head = f"GET {path} HTTP/1.1\r\nHost: ops\r\nConnection: close\r\n\r\n"
                writer.write(head.encode())
                answer = await reader.read()
            finally:
                writer.close()
        return answer.partition(b"\r\n\r\n")[2]

    async def sample(self) -> dict[str, float]:
        """Return the values of each process, and of all together."""
        workers = {one.pid: one.number for one in await self.workers()}
        values = await self.metrics()
        totals = {"gateway PSS MiB": 0.0, "gateway descriptors": 0.0, "gateway CPU s": 0.0}
        for pid in family_of(self.pid):
            name = "supervisor" if pid == self.pid else "fork server"
            name = f"worker {workers[pid]}" if pid in workers else name
            try:
                held = _held(pid)
            except OSError:
                continue  # it has ended meanwhile
            values |= {f"{name} {what}": value for what, value in held.items()}
            totals["gateway PSS MiB"] += _pss(pid)
            totals["gateway descriptors"] += held["descriptors"]
            totals["gateway CPU s"] += cpu_seconds(pid)
        return values | totals


def _held(pid: int) -> dict[str, float]:
    folder = Path("/proc", str(pid))
    return {
        "RSS MiB": int((folder / "statm").read_text().split()[1]) * _PAGE / _MIB,
        "descriptors": float(len(os.listdir(folder / "fd"))),
        "threads": float(len(os.listdir(folder / "task"))),
    }


def _pss(pid: int) -> float:
    try:
        lines = Path("/proc", str(pid), "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used; 0 once it has ended."""
    try:
        fields = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS
