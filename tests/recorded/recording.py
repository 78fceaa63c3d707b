"""Provides recordings: the content of a store, Redis and a cluster at one moment, as text.

Values that differ between openings are replaced in the text:

- Times move by whole seconds, so that no more time has passed than at the recording.
- UIDs and addresses change, because a cluster assigns new ones to created objects.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parent
COMMIT: Final = "b9911c7"
STORES: Final = ("sqlite", "postgresql")
INSTANCE: Final = "recorded"

_SECONDS: Final = re.compile(r"(?<![\w.])1[78]\d{8}(?:\.\d+)?(?![\w.])")
_STAMP: Final = re.compile(r"\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(?=(?:\.\d+)?Z)")
_WINDOW_SECONDS: Final = 40 * 86400

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Recording:
    """The texts: ``store`` is SQL, ``redis`` commands, ``cluster`` one object a line."""

    store: str
    redis: str
    cluster: str
    facts: str

    @classmethod
    def read(cls, kind: str, commit: str = COMMIT) -> Recording:
        """Return the recording with that kind of store."""
        folder = FOLDER / commit / kind
        names = ("store.sql", "redis.jsonl", "cluster.jsonl", "facts.json")
        return cls(*((folder / name).read_text() for name in names))

    def write(self, kind: str, commit: str = COMMIT) -> None:
        """Write the recording to its folder."""
        folder = FOLDER / commit / kind
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "store.sql").write_text(self.store)
        (folder / "redis.jsonl").write_text(self.redis)
        (folder / "cluster.jsonl").write_text(self.cluster)
        (folder / "facts.json").write_text(self.facts)

    def at(self, now: float) -> Recording:
        """Return the recording as if it had been made at *now*."""
        recorded_at = float(self.known["recorded_at"])
        shift = int(now - recorded_at)
        return self._each(lambda text: moved(text, around=recorded_at, by=shift))

    def with_replaced(self, replacements: Mapping[str, str]) -> Recording:
        """Return the recording with each key of *replacements* replaced by its value."""
        if not replacements:
            return self
        longest_first = sorted(replacements, key=len, reverse=True)
        any_word = "|".join(map(re.escape, longest_first))
        words = re.compile(rf"(?<![\w])(?:{any_word})(?![\w])")
        return self._each(lambda text: words.sub(lambda found: replacements[found[0]], text))

    def _each(self, change: Any) -> Recording:
        return Recording(
            change(self.store), change(self.redis), change(self.cluster), change(self.facts)
        )

    @property
    def known(self) -> dict[str, Any]:
        """The recorder's facts: its settings and keys, and the API's responses."""
        found: dict[str, Any] = json.loads(self.facts)
        return found

    @property
    def objects(self) -> list[Object]:
        """The cluster's objects; each comes after its owners."""
        return [json.loads(line) for line in self.cluster.splitlines()]

    @property
    def commands(self) -> list[list[str]]:
        """The commands that fill Redis."""
        return [json.loads(line) for line in self.redis.splitlines()]


def moved(text: str, *, around: float, by: int) -> str:
    """Return *text* with every time near *around* moved by *by* seconds."""

    def seconds(found: re.Match[str]) -> str:
        raw = found[0]
        if abs(float(raw) - around) > _WINDOW_SECONDS:
            return raw
        return repr(float(raw) + by) if "." in raw else str(int(raw) + by)

    def stamp(found: re.Match[str]) -> str:
        then = datetime.fromisoformat(found[0]).replace(tzinfo=UTC)
        return (then + timedelta(seconds=by)).strftime("%Y-%m-%dT%H:%M:%S")

    return _STAMP.sub(stamp, _SECONDS.sub(seconds, text))
