"""The audit record: who did what to which session or job, from where, and what came of it.

Controller and gateway write one record for each event to the logger :data:`LOGGER`, in the form
of all other logs. A record holds names and numbers only: never a token, cookie, key, URL or body.
docs/audit.md lists the events and their fields.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, Final, Literal

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
