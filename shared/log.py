"""Logs: one JSON object a line on standard error, with a limit of lines a second.

Callers pass variable parts in ``extra``. Fields are cut to a fixed length. Never pass a token,
cookie, key or password, nor a URL with a query.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, TextIO, cast

from shared.audit import LOGGER as AUDIT_LOGGER
from shared.settings import Environment, count, one_of

MAX_FIELD_CHARACTERS: Final = 1000
MAX_TRACE_CHARACTERS: Final = 20_000
DEFAULT_LINES_A_SECOND: Final = 200
_LEAST_LINES_A_SECOND: Final = 10
Format = Literal["json", "text"]

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON: ``at``, ``level``, ``logger``, ``message``, fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _cut(record.getMessage()),
            **_fields(record),
        }
        if record.exc_info:
            line["error"] = _cut(self.formatException(record.exc_info), MAX_TRACE_CHARACTERS)
        return json.dumps(line, default=lambda value: _cut(str(value)))


class TextFormatter(logging.Formatter):
    """Formats a record for people; escapes control characters, so that no field adds a line.

    The lines of a traceback are indented: an error's message may hold text of others.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, followed by a traceback if there is one."""
        moment = datetime.fromtimestamp(record.created).strftime("%H:%M:%S.%f")[:-3]
        fields = "".join(f" {name}={value!r}" for name, value in _fields(record).items())
        message = _escaped(_cut(record.getMessage()))
        line = f"{moment} {record.levelname.lower():7} {record.name}: {message}{fields}"
        if not record.exc_info:
            return line
        trace = _cut(self.formatException(record.exc_info), MAX_TRACE_CHARACTERS)
        return "\n    ".join((line, *map(_escaped, trace.split("\n"))))


class WithoutRequests(logging.Filter):
    """Removes the traceback from aiohttp's records of malformed requests, and lowers their level.

    The traceback quotes the malformed line, which may be an ``Authorization`` field. A malformed
    request is the client's error and not one of this process.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write *record*, after removing its traceback."""
        error = record.exc_info[1] if record.exc_info else None
        if error is None or type(error).__module__ != "aiohttp.http_exceptions":
            return True
        record.exc_info = record.exc_text = None
        record.levelno, record.levelname = logging.INFO, "INFO"
        record.problem = type(error).__name__
        return logging.getLogger().isEnabledFor(logging.INFO)


class RateLimit(logging.Filter):
    """Passes at most *lines* records a second; the next one has the number of dropped lines.

    One statement of one logger passes no more records than remain of *lines*, so half of them at
    most: a flood of one kind cannot hide the others.
    """

    def __init__(self, lines: int, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._lines = lines
        self._clock = clock
        self._second = -1
        self._passed: Counter[tuple[str, int]] = Counter()
        self._dropped = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write *record*."""
        second = int(self._clock())
        if second != self._second:
            self._second = second
            self._passed.clear()
            if self._dropped:
                record.dropped_lines = self._dropped
                self._dropped = 0
        kind = (record.name, record.lineno)
        if self._passed[kind] >= self._lines - self._passed.total():
            self._dropped += 1
            return False
        self._passed[kind] += 1
        return True


class LineHandler(logging.StreamHandler[TextIO]):
    """Writes whole lines, also after a write has failed, as on a full disk.

    A failed write may leave half a line. The next one begins on a line of its own, and has the
    number of lost lines.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write *record*."""
        lost = self._lost
        super().emit(record)
        if self._lost == lost:
            self._lost = 0

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of *record*."""
        if not self._lost:
            return super().format(record)
        record.lost_lines = self._lost
        return "\n" + super().format(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # of the base class
        """Count a line that could not be written. It can be reported nowhere else."""
        self._lost += 1


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The log settings of a process."""

    level: str
    style: Format
    lines_a_second: int = DEFAULT_LINES_A_SECOND

    def apply(self, *, processes: int = 1) -> None:
        """Configure all logs of this process.

        Args:
            processes: The number of processes that share standard error and the limit of lines.
        """
        lines = max(_LEAST_LINES_A_SECOND, self.lines_a_second // processes)
        configure(level=self.level, style=self.style, lines_a_second=lines)


def read_log_settings(environment: Environment) -> LogSettings:
    """Return the settings ``FUMAROLE_LOG_…``."""
    levels, styles = ("DEBUG", "INFO", "WARNING", "ERROR"), ("json", "text")
    return LogSettings(
        level=environment.value("FUMAROLE_LOG_LEVEL", one_of(*levels), "INFO"),
        style=cast(Format, environment.value("FUMAROLE_LOG_FORMAT", one_of(*styles), "json")),
        lines_a_second=environment.value(
            "FUMAROLE_LOG_LINES_PER_SECOND", count(1, 1_000_000), DEFAULT_LINES_A_SECOND
        ),
    )


def configure(
    *,
    level: str = "INFO",
    style: Format = "json",
    lines_a_second: int = DEFAULT_LINES_A_SECOND,
    stream: TextIO | None = None,
) -> None:
    """Send all logs of this process to *stream* (standard error), replacing earlier handlers.

    The audit log goes there as well, at every *level*. Its lines are never dropped, since
    :mod:`shared.audit` limits the records that unauthenticated clients cause.
    """
    handler = LineHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    handler.addFilter(WithoutRequests())
    handler.addFilter(RateLimit(lines_a_second))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    audits = LineHandler(stream or sys.stderr)
    audits.setFormatter(handler.formatter)
    audit = logging.getLogger(AUDIT_LOGGER)
    audit.handlers[:] = [audits]
    audit.setLevel(logging.INFO)
    audit.propagate = False


def handlers() -> list[logging.Handler]:
    """Return the handlers of all logs of this process, including the audit log."""
    return [*logging.getLogger().handlers, *logging.getLogger(AUDIT_LOGGER).handlers]


def _fields(record: logging.LogRecord) -> Mapping[str, Any]:
    return {
        name: _cut(value) if isinstance(value, str) else value
        for name, value in vars(record).items()
        if name not in _OWN
    }


def _escaped(text: str) -> str:
    return text.encode("unicode_escape").decode()


def _cut(value: str, most: int = MAX_FIELD_CHARACTERS) -> str:
    return value if len(value) <= most else f"{value[:most]}… ({len(value)} characters)"


AGAIN_SECONDS: Final = 60.0
"""The interval at which a continuing failure is logged again."""


@dataclass(slots=True, eq=False, repr=False)
class Outage:
    """Logs a failure when it begins, then once a minute, and once when it has ended.

    A loop that retries four times a second would otherwise write a line each time, and hide other
    lines.
    """

    log: logging.Logger
    """The caller's logger."""
    begins: str
    """The message for a failure, with the reason in the field ``why``."""
    ends: str
    """The message for the first success, with the duration in the field ``seconds``."""
    monotonic: Callable[[], float] = time.monotonic
    _since: float | None = None
    _told_at: float = 0.0

    def failed(self, why: object) -> None:
        """Note a failure."""
        now = self.monotonic()
        if self._since is None:
            self._since = now
        elif now - self._told_at < AGAIN_SECONDS:
            return
        self._told_at = now
        fields: dict[str, object] = {"why": str(why)}
        if now > self._since:
            fields["seconds"] = round(now - self._since, 1)
        self.log.warning(self.begins, extra=fields)

    def passed(self) -> None:
        """Note a success."""
        if self._since is not None:
            seconds = round(self.monotonic() - self._since, 1)
            self._since = None
            self.log.info(self.ends, extra={"seconds": seconds})
