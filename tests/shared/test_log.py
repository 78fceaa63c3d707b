"""Tests logs: one line for each record, whatever its content, and a limit of lines."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web

from shared.log import (
    MAX_FIELD_CHARACTERS,
    MAX_TRACE_CHARACTERS,
    Format,
    JsonFormatter,
    RateLimit,
    TextFormatter,
    configure,
    read_log_settings,
)
from shared.runtime.listeners import listening
from shared.settings import Environment


@pytest.fixture
def quiet_root() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


def record(message: str = "hello", **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("gateway.test", logging.INFO, __file__, 1, message, (), None)
    vars(made).update(fields)
    return made


def test_a_line_is_a_json_object_with_its_fields() -> None:
    line = json.loads(JsonFormatter().format(record(sid="abc", port=80)))
    assert (line["message"], line["level"], line["logger"]) == ("hello", "info", "gateway.test")
    assert (line["sid"], line["port"]) == ("abc", 80)


@pytest.mark.parametrize("formatter", [JsonFormatter(), TextFormatter()])
def test_no_field_makes_a_second_line(formatter: logging.Formatter) -> None:
    line = formatter.format(record("one\ntwo\x1b[31m", user="a\r\nERROR forged"))
    assert "\n" not in line
    assert "\x1b" not in line
    assert "\r" not in line


@pytest.mark.parametrize("style", ["json", "text"])
def test_no_line_of_a_traceback_looks_like_a_record(quiet_root: None, style: Format) -> None:
    out = io.StringIO()
    configure(style=style, stream=out)
    try:
        raise ValueError("one\n12:00:00.000 error gateway: forged\r\x1b[31m\u202e")
    except ValueError:
        logging.getLogger("x").exception("it failed")
    _, *more = out.getvalue().removesuffix("\n").split("\n")
    assert all(line.startswith("    ") for line in more)
    assert not set("\r\x1b\u202e") & set(out.getvalue())


@pytest.mark.parametrize("formatter", [JsonFormatter(), TextFormatter()])
def test_a_megabyte_of_a_user_name_is_cut(formatter: logging.Formatter) -> None:
    line = formatter.format(record("x" * 1_000_000, user="u" * 1_000_000))
    assert len(line) < 4 * MAX_FIELD_CHARACTERS


def test_lines_are_rate_limited_and_the_number_dropped_is_logged() -> None:
    now = [10.0]
    limit = RateLimit(5, clock=lambda: now[0])
    assert [limit.filter(record()) for _ in range(5)] == [True, True, True, False, False]
    now[0] = 11.2
    following = record()
    assert limit.filter(following)
    assert vars(following)["dropped_lines"] == 2


def test_a_flood_of_one_kind_hides_no_other_line() -> None:
    limit = RateLimit(16, clock=lambda: 10.0)

    def passed(name: str, line: int) -> int:
        one = logging.LogRecord(name, logging.WARNING, "a.py", line, "it happened", (), None)
        return sum(limit.filter(one) for _ in range(1000))

    assert [passed("a", 1), passed("a", 2), passed("b", 1), passed("b", 2)] == [8, 4, 2, 1]
    assert passed("c", 1) == 1
    assert passed("d", 1) == 0, "the limit is reached"


@pytest.mark.parametrize("style", ["json", "text"])
def test_a_megabyte_in_an_error_is_cut(quiet_root: None, style: Format) -> None:
    out = io.StringIO()
    configure(style=style, stream=out)
    try:
        raise ValueError("x" * 1_000_000)
    except ValueError:
        logging.getLogger("x").exception("it failed")
    assert len(out.getvalue()) < 2 * MAX_TRACE_CHARACTERS


def test_the_log_rate_is_configurable() -> None:
    environment = Environment({"FUMAROLE_LOG_LINES_PER_SECOND": "7"})
    assert read_log_settings(environment).lines_a_second == 7
    environment = Environment({"FUMAROLE_LOG_LINES_PER_SECOND": "0"})
    read_log_settings(environment)
    assert environment.problems


@pytest.mark.parametrize("style", ["json", "text"])
def test_an_error_is_logged_with_its_traceback(quiet_root: None, style: Format) -> None:
    out = io.StringIO()
    configure(style=style, stream=out)
    try:
        raise KeyError("lost")
    except KeyError:
        logging.getLogger("x").exception("it failed")
    assert "KeyError: 'lost'" in out.getvalue()


@pytest.mark.parametrize("style", ["json", "text"])
@pytest.mark.parametrize(
    "line", [b"Authorization: Bearer a-secret\x7f", b"a-secret \xff", b"a-secret"]
)
async def test_a_malformed_request_is_not_logged_as_error_nor_quoted(
    quiet_root: None, style: Format, line: bytes
) -> None:
    out = io.StringIO()
    configure(style=style, stream=out)
    async with listening(web.Application(), ("127.0.0.1", 0)) as (host, port):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n" + line + b"\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.0 400")
        writer.close()
    assert "a-secret" not in out.getvalue()
    assert "error" not in out.getvalue()
    assert out.getvalue().count("\n") == 1
    assert "127.0.0.1" in out.getvalue()


_FILLS_THE_DISK = """
import logging, os, resource, sys
from shared.log import configure

os.dup2(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
configure()
log = logging.getLogger("x")
log.info("one")
room = os.fstat(2).st_size + 40
resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
log.info("two")
log.info("three")
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
log.info("four")
log.info("five")
"""


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_damages_no_later_line(tmp_path: Path, unbuffered: str) -> None:
    path = tmp_path / "log"
    subprocess.run(
        [sys.executable, "-c", _FILLS_THE_DISK, path],
        check=True, timeout=60, env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )  # fmt: skip
    lines = path.read_text().splitlines()
    five, four = json.loads(lines[-1]), json.loads(lines[-2])
    assert (four["message"], five["message"]) == ("four", "five")
    assert four["lost_lines"] >= 1
    assert "lost_lines" not in five
