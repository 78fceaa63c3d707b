"""Tests that docs/limits.md states the code's limits, and that docs/security.md cites tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway.core.access import opening
from gateway.core.http import fields, framing, heads
from gateway.core.limits import addresses
from gateway.core.limits.values import ADJUSTABLE, Limits
from gateway.relay.ending import closer
from shared.log import DEFAULT_LINES_A_SECOND

TEXT = (Path(__file__).parents[2] / "docs" / "limits.md").read_text()
SECURITY = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
ROWS = dict(re.findall(r"^\| `([A-Z_]+)` \| ([0-9]+)", TEXT, re.MULTILINE))


@pytest.mark.parametrize("name", sorted(ADJUSTABLE))
def test_each_limit_is_documented_with_its_default(name: str) -> None:
    assert float(ROWS[name.upper()]) == getattr(Limits(), name)


def test_only_existing_settings_are_documented() -> None:
    known = {name.upper() for name in ADJUSTABLE}
    others = {"DRAIN_SECONDS", "DRAIN_DELAY_SECONDS", "FUMAROLE_LOG_LINES_PER_SECOND"}
    assert ROWS.keys() - known == others
    assert int(ROWS["FUMAROLE_LOG_LINES_PER_SECOND"]) == DEFAULT_LINES_A_SECOND


def test_fixed_sizes_match_the_documentation() -> None:
    limits = Limits()
    assert (heads.MAX_HEAD_BYTES, heads.MAX_FIELDS) == (64 << 10, 256)
    assert (heads.MAX_MEMBERS, fields.MAX_OFFERS) == (256, 32)
    assert heads.MAX_TARGET_BYTES == opening.MAX_BODY_BYTES == 16 << 10
    assert (framing.MAX_SIZE_DIGITS, framing.MAX_EXTENSION_BYTES) == (16, 256)
    assert framing.MAX_TRAILER_BYTES == 8 << 10
    assert addresses.MAX_PROXY_BYTES == 4 << 10
    assert (limits.early_bytes, limits.write_high_bytes) == (64 << 10, 128 << 10)
    assert (limits.frame_seconds, limits.frame_bytes) == (0.1, 1 << 20)
    assert limits.app_abort_seconds == 0.25
    assert (closer.ABORTED_AT_ONCE, closer.ABORT_STEP_SECONDS) == (50, 0.005)
    assert (limits.upstream_idle_per_user, limits.upstream_idle_seconds) == (16, 50)
    assert limits.upstream_spare_seconds == 1
    assert (limits.interim_responses, limits.checks_queued) == (64, 512)


NAMED = re.compile(r"`([a-z_/.]+\.py)::(test_\w+)`")
ACTORS = {
    "a client on the network", "holder of a token", "user of a session, with control",
    "user of a session, view only", "another user of the same session", "a page of another site",
    "the app in the job", "the job's code in the cluster", "an owner", "holder of a public link",
    "Redis", "the orchestrator", "a gateway", "the hub", "the controller", "any other pod",
    "a reader", "the operator", "a client without a token",
}  # fmt: skip


def rows_of(heading: str) -> list[str]:
    """Return the rows of the table under *heading*, without the table's head."""
    _, _, section = SECURITY.partition(f"\n## {heading}\n")
    section = section.partition("\n## ")[0]
    found = [line for line in section.splitlines() if line.startswith("|")]
    return found[2:]


def test_every_row_of_the_threat_model_names_its_tests() -> None:
    rows = rows_of("Who can do what")
    actors = [re.findall(r"^\| \*\*([^*]+)\*\*", row) for row in rows]
    assert {name for (name,) in actors} == ACTORS
    lessons = rows_of("Lessons from similar gateways")
    found = rows_of("Findings in this gateway")
    assert (len(lessons), len(found) >= 10) == (18, True)
    for row in (*rows, *lessons, *found):
        cells = row.strip("|").split(" | ")
        assert len(cells) == (4 if row in rows else 3), row
        assert all(cell.strip() for cell in cells), row
        assert NAMED.findall(cells[-1]), row
    # The page has no other table.
    every = [line for line in SECURITY.splitlines() if line.startswith("|")]
    assert len(every) == len(rows) + len(lessons) + len(found) + 6


def test_remaining_risks_are_documented() -> None:
    _, _, open_ = SECURITY.partition("\n## What remains open\n")
    assert len(re.findall(r"^- \*\*", open_, re.M)) >= 8
