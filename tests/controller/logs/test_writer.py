"""Tests the log writer's report of a storage that refuses a log, and then accepts it."""

from __future__ import annotations

from pathlib import Path

from controller.logs.storage import FolderStorage
from controller.logs.writer import LogWriter, Waiting
from controller.store.jobs.stored_logs import StoredLog

RECORD = b"2026-11-24T00:00:00.000000001Z said\n"


async def commit(_log: StoredLog) -> None:
    """Do nothing: no test reads the log."""


async def test_the_reason_of_an_unstored_log_is_reported_until_stored(tmp_path: Path) -> None:
    root, aside, waiting, now = tmp_path / "logs", tmp_path / "aside", Waiting(), [0.0]
    root.mkdir()
    writer = LogWriter(
        StoredLog(key="0" * 32, job_id="j1", pod_uid="uid", state="open"),
        storage=FolderStorage(root),
        commit=commit,
        prefix="1",
        waiting=waiting,
        clock=lambda: now[0],
    )
    root.rename(aside)
    await writer.add(RECORD)
    await writer.flush()
    assert waiting.why == "the log folder: No such file or directory"
    aside.rename(root)
    now[0] += 60.0
    await writer.flush()
    assert waiting.why == ""
    assert [path for path in root.rglob("*") if path.is_file()]
