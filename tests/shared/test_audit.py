"""Tests audit records: the fields of a line, which no other log setting drops."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from shared.audit import LOGGER, AuditRecord, write_audit
from shared.log import configure


@pytest.fixture(autouse=True)
def quiet_logs() -> Iterator[None]:
    loggers = [logging.getLogger(), logging.getLogger(LOGGER)]
    before = [(one, one.handlers[:], one.level, one.propagate) for one in loggers]
    yield
    for one, handlers, level, propagate in before:
        one.handlers[:], one.propagate = handlers, propagate
        one.setLevel(level)


def test_an_audit_line_holds_applicable_fields_and_readable_times() -> None:
    record = AuditRecord(event="detached", time=1.5, subject="ada", since=0.0, reason="closed")
    assert record.line() == {
        "event": "detached",
        "outcome": "success",
        "time": "1970-01-01T00:00:01.500+00:00",
        "subject": "ada",
        "since": "1970-01-01T00:00:00.000+00:00",
        "reason": "closed",
    }


def test_only_a_refusal_has_the_result_refused() -> None:
    assert AuditRecord(event="refused", time=0.0).outcome == "refused"
    assert AuditRecord(event="revoked", time=0.0).outcome == "success"


def test_audit_records_bypass_the_log_rate_limit() -> None:
    stream = io.StringIO()
    configure(level="ERROR", lines_a_second=1, stream=stream)
    for number in range(50):
        logging.getLogger("gateway").error("flood")
        write_audit(AuditRecord(event="opened", time=0.0, sid=str(number)))
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    audit = [line for line in lines if line["logger"] == LOGGER]
    assert [line["sid"] for line in audit] == [str(number) for number in range(50)]
    assert all(line["message"] == "opened" for line in audit)
    assert len(lines) - len(audit) <= 2


def test_a_name_with_line_breaks_stays_on_one_line() -> None:
    stream = io.StringIO()
    configure(style="text", stream=stream)
    write_audit(AuditRecord(event="opened", time=0.0, subject="a\nERROR forged"))
    assert len(stream.getvalue().splitlines()) == 1
