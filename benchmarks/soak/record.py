"""The results of a soak so far; written as JSON with each sample, so that nothing is lost."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.measure import percentile

FILE: Final = "results.json"
_DETAIL: Final = 300


@dataclass(slots=True, kw_only=True)
class Killed:
    """A worker that the soak killed."""

    at_seconds: float
    worker: int
    sockets: int
    lost: int = 0
    back_seconds: float | None = None


@dataclass(slots=True, kw_only=True)
class Record:
    """All results of a soak; ``columns`` has one list for each series of samples."""

    machine: dict[str, Any]
    hours: float
    sockets: int
    workers: int
    sessions: int
    sample_seconds: float
    elapsed_seconds: float = 0.0
    ended: str = "running"
    counts: dict[str, int] = field(default_factory=dict)
    wrong: dict[str, int] = field(default_factory=dict)
    first_wrong: dict[str, str] = field(default_factory=dict)
    killed: list[Killed] = field(default_factory=list)
    closing_ms: dict[str, list[float]] = field(default_factory=dict)
    columns: dict[str, list[float]] = field(default_factory=dict)

    def count(self, what: str, by: int = 1) -> None:
        """Count a correct observation."""
        self.counts[what] = self.counts.get(what, 0) + by

    def fail(self, what: str, detail: str) -> None:
        """Count a wrong observation by its name; keep the first detail of each name."""
        self.wrong[what] = self.wrong.get(what, 0) + 1
        self.first_wrong.setdefault(what, f"at {self.elapsed_seconds:.0f} s: {detail[:_DETAIL]}")

    def closed_after(self, kind: str, milliseconds: float) -> None:
        """Note how long after a change of *kind* one of its sockets was closed."""
        self.closing_ms.setdefault(kind, []).append(milliseconds)

    def sample(self, values: dict[str, float]) -> None:
        """Add one sample to each column.

        A column that is new, or that this sample lacks, has NaN (null in JSON) there.
        """
        rows = max((len(column) for column in self.columns.values()), default=0)
        for name in self.columns.keys() | values.keys():
            column = self.columns.setdefault(name, [float("nan")] * rows)
            column.append(round(values.get(name, float("nan")), 3))

    def to_json(self) -> bytes:
        """Return all results; closing times as percentiles."""
        found = asdict(self)
        found["closing_ms"] = {
            kind: {
                "count": len(times),
                "p50": round(percentile(times, 0.5), 2),
                "p99": round(percentile(times, 0.99), 2),
                "most": round(max(times), 2),
            }
            for kind, times in self.closing_ms.items()
        }
        return msgspec.json.encode(found, order="deterministic") + b"\n"

    def write(self, folder: Path) -> Path:
        """Write the results into *folder* atomically: a reader finds a complete file."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / FILE
        part = path.with_suffix(".part")
        part.write_bytes(self.to_json())
        part.replace(path)
        return path
