"""Audit records: the user, address, operation, session or job, and result of each event.

Controller and gateway write one record for each event to the logger :data:`LOGGER`, in the format
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

AuditEvent = Literal[
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
AuditOutcome = Literal["success", "refused"]
_TIMES: Final = frozenset({"time", "since", "until"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """One event. A field that does not apply is None and is left out of the log line.

    A signature has proved ``subject``; a record holds no unproved claims of a client. Times are
    unix seconds here, and RFC 3339 in UTC in the log line.
    """

    event: AuditEvent
    time: float
    issuer: str | None = None
    subject: str | None = None
    address: str | None = None
    reason: str | None = None
    """The code of a refusal or of the end of a connection, from a closed set."""
    operation: str | None = None
    """The requested operation: ``open``, ``connect``, ``request``, or an API operation."""
    sid: str | None = None
    jti: str | None = None
    kid: str | None = None
    job: str | None = None
    rank: int | None = None
    kind: str | None = None
    mode: str | None = None
    connection: str | None = None
    """The protocol of an attachment: ``http`` (a web app), ``vnc`` or ``terminal``."""
    attachment: str | None = None
    """A unique identifier, the same in ``attached`` and ``detached``."""
    revoked_subject: str | None = None
    """The user whose grants were revoked; without this, ``jti`` and ``kid``: all users'."""
    since: float | None = None
    until: float | None = None
    count: int | None = None
    """The number of events in a record that stands for several."""
    reasons: Mapping[str, int] | None = None
    """The number of events by reason, in a record that stands for several refusals."""

    @property
    def outcome(self) -> AuditOutcome:
        """Whether the operation was done or refused."""
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
"""Records of one key in a window; further events are counted."""
MOST_KEYS: Final = 2048
"""Tracked keys; the events of further keys are counted together."""
MOST_SINGLY_OF_ALL: Final = 6000
"""Records of all keys in a minute: half the default limit of a process' other log lines."""

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True)
class Counted(Generic[K]):
    """The count of one key's events that were not recorded singly; key None: of many keys."""

    key: K | None
    since: float
    until: float
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def count(self) -> int:
        """The number of events."""
        return self.reasons.total()


@dataclass(slots=True)
class _Window(Generic[K]):
    ends_at: float
    singly: int
    rest: Counted[K] | None = None


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class RecordQuota(Generic[K]):
    """Limits records that unauthenticated clients cause: the first of each key, then one count.

    An endless flood of requests thus fills no disk, and each address still appears in the log.
    Memory is bounded as well: keys beyond :data:`MOST_KEYS` share one count.

    The window of a key begins with its first event. All times are on the caller's clock. If it goes
    back, windows end late; nothing else happens.
    """

    singly: int = MOST_SINGLY
    most_keys: int = MOST_KEYS
    of_all: int = MOST_SINGLY_OF_ALL
    _windows: dict[K, _Window[K]] = field(init=False, default_factory=dict)
    _others: _Window[K] | None = None
    _all_ends_at: float = 0.0
    _all_taken: int = 0

    def __len__(self) -> int:
        """Return the number of tracked keys."""
        return len(self._windows)

    def take(self, key: K, reason: str, now: float) -> bool:
        """Return whether to record this event of *key* singly; otherwise it is counted."""
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
        """Return the counts whose window has ended, each once."""
        found: list[Counted[K]] = []
        for key, window in tuple(self._windows.items()):
            if now < window.ends_at:
                break  # later windows began later
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
            # The window has ended but its count is not recorded: it continues until due().
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
