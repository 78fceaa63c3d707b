"""Tests the count of files on one request's path through the source."""

from __future__ import annotations

import asyncio

from benchmarks.job_walk import job_walks
from benchmarks.walk import Walk, walks
from shared.text import whole_number

# A reader has to open all of these files, so an additional one needs a good reason.
MOST_FILES = {"GET": 36, "WebSocket upgrade": 41}
# One file more where a connection to the API server is opened anew.
MOST_FILES_OF_A_JOB = {"a job accepted": 32, "a job reconciled to its end": 58 + 1}


async def test_a_walk_passes_core_and_relay_within_the_file_budget() -> None:
    for name, walk in (await walks()).items():
        assert "gateway/core/downstream/exchange.py" in walk.files
        assert "gateway/relay/http/downstream.py" in walk.files
        assert len(walk.files) <= MOST_FILES[name], sorted(walk.files)
        assert len(walk.files) <= walk.changes


async def test_a_job_passes_the_controller_within_the_file_budget() -> None:
    for name, walk in (await job_walks()).items():
        assert "controller/jobs/pipeline/pipeline.py" in walk.files
        assert len(walk.files) <= MOST_FILES_OF_A_JOB[name], sorted(walk.files)


def test_only_product_files_are_counted() -> None:
    walk = Walk()
    walk.note(None, "return", None)
    walk.note(None, "c_call", None)
    assert not walk.files
    assert not walk.changes


async def test_a_concurrent_task_is_not_counted() -> None:
    async def read_numbers() -> None:
        for _ in range(10):
            whole_number("7")
            await asyncio.sleep(0)

    for own_tasks, files in ((False, ["shared/text.py"]), (True, [])):
        walk = Walk(own_tasks=own_tasks)
        beside = asyncio.create_task(read_numbers())
        with walk.walking():
            await asyncio.sleep(0.01)
        await beside
        assert [*walk.files] == files
    walk = Walk(own_tasks=True)
    with walk.walking():
        await asyncio.create_task(read_numbers())
    assert [*walk.files] == ["shared/text.py"]
