"""The audit record: who did what to which session or job, from where, and what came of it.

Controller and gateway write one record for each event to the logger :data:`LOGGER`, in the form
of all other logs. A record holds names and numbers only: never a token, cookie, key, URL or body.
docs/audit.md lists the events and their fields.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, Final, Generic, Literal, TypeVar

LOGGER: Final = "fumarole.audit"

Event = Literal[
    "opened",
    "attached",
    "detached",
    "signed_out",
    "refused",
    "created",
    "changed",
    "revoked",
    "ended",
]
Outcome = Literal["success", "refused"]
_TIMES: Final = frozenset({"time", "since", "until"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """One event. A field that does not apply is None and is left out of the log line.

    ``subject`` is always one that a signature has proved; what a client merely claims is nowhere
    in a record. Times are unix seconds here, and RFC 3339 in UTC in the line.
    """

    event: Event
    time: float
    issuer: str | None = None
    subject: str | None = None
    address: str | None = None
    reason: str | None = None
    """A code of a closed set: of a refusal, or of the end of a connection."""
    operation: str | None = None
    """What was asked for: ``open``, ``connect``, ``request``, or a call of the API."""
    sid: str | None = None
    jti: str | None = None
    kid: str | None = None
    job: str | None = None
    rank: int | None = None
    kind: str | None = None
    mode: str | None = None
    connection: str | None = None
    """What an attachment carries: ``http`` (a web app), ``vnc`` or ``terminal``."""
    attachment: str | None = None
    """The same in ``attached`` and ``detached``, and unique."""
    revoked_subject: str | None = None
    """Whose grants were revoked; with neither this, nor ``jti``, nor ``kid``: everybody's."""
    since: float | None = None
    until: float | None = None
    count: int | None = None
    """How many events this record stands for, where it is more than one."""
    reasons: Mapping[str, int] | None = None
    """How many of each reason, in a record that stands for several refusals."""

    @property
    def outcome(self) -> Outcome:
        """Whether what was asked for was done."""
        return "refused" if self.event == "refused" else "success"

    def line(self) -> dict[str, Any]:
        """Return the fields of the log line."""
        line: dict[str, Any] = {"event": self.event, "outcome": self.outcome}
        for one in fields(self):
            value = getattr(self, one.name)
            if value is None:
                continue
            line[one.name] = _moment(value) if one.name in _TIMES else value
        return line


def write_audit(record: AuditRecord) -> None:
    """Write *record* to the audit log."""
    logging.getLogger(LOGGER).info(record.event, extra=record.line())


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


WINDOW_SECONDS: Final = 60.0
MOST_SINGLY: Final = 20
"""Records of one key in a window."""
MOST_KEYS: Final = 2048
MOST_SINGLY_OF_ALL: Final = 6000
"""Records of all keys in a minute: half as many as all other logs of a process may have."""

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True)
class Counted(Generic[K]):
    """Events of one key that were not recorded singly; ``key`` is None for those of many keys."""

    key: K | None
    since: float
    until: float
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def count(self) -> int:
        """How many events."""
        return self.reasons.total()


@dataclass(slots=True)
class _Window(Generic[K]):
    ends_at: float
    singly: int
    rest: Counted[K] | None = None


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class RecordQuota(Generic[K]):
    """Bounds records that anybody can cause: the first of each key singly, the rest as one count.

    Nobody who sends requests without end fills a disk, and yet each address leaves its traces. What
    is remembered is bounded as well: keys beyond the most that are tracked share one count.

    A key's window begins with its first event. All times are on the caller's clock, which must not
    go back by much: a window is then over too late, and nothing else happens.
    """

    singly: int = MOST_SINGLY
    most_keys: int = MOST_KEYS
    of_all: int = MOST_SINGLY_OF_ALL
    _windows: dict[K, _Window[K]] = field(init=False, default_factory=dict)
    _others: _Window[K] | None = None
    _all_ends_at: float = 0.0
    _all_taken: int = 0

    def __len__(self) -> int:
        """Return how many keys are tracked."""
        return len(self._windows)

    def take(self, key: K, reason: str, now: float) -> bool:
        """Say whether this event of *key* is to be recorded singly; it is counted otherwise."""
        window = self._windows.get(key)
        if window is None or now >= window.ends_at:
            window = self._begin(key, window, now)
        if window.singly < self.singly and self._take_of_all(now):
            window.singly += 1
            return True
        if window.rest is None:
            window.rest = Counted(None if window is self._others else key, now, now)
        window.rest.until = now
        window.rest.reasons[reason] += 1
        return False

    def due(self, now: float) -> list[Counted[K]]:
        """Return the counts whose window is over, each once."""
        found: list[Counted[K]] = []
        for key, window in tuple(self._windows.items()):
            if now < window.ends_at:
                break  # the others began later
            del self._windows[key]
            if window.rest is not None:
                found.append(window.rest)
        others = self._others
        if others is not None and now >= others.ends_at:
            self._others = None
            if others.rest is not None:
                found.append(others.rest)
        return found

    def flush(self) -> list[Counted[K]]:
        """Return all counts, at the end of the process."""
        return self.due(float("inf"))

    def _begin(self, key: K, window: _Window[K] | None, now: float) -> _Window[K]:
        if window is not None and window.rest is not None:
            # Over, and not told yet: it goes on until it is.
            return window
        if window is not None:
            del self._windows[key]
        if len(self._windows) < self.most_keys:
            window = self._windows[key] = _Window(now + WINDOW_SECONDS, 0)
            return window
        if self._others is None:
            self._others = _Window(now + WINDOW_SECONDS, self.singly)
        return self._others

    def _take_of_all(self, now: float) -> bool:
        if now >= self._all_ends_at:
            self._all_ends_at, self._all_taken = now + WINDOW_SECONDS, 0
        if self._all_taken >= self.of_all:
            return False
        self._all_taken += 1
        return True
