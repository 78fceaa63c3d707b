"""Indexes that find live jobs without reading ended ones."""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Change indexes; what there was is kept."""
    op.create_index("ix_jobs_finished_at", "jobs", ["finished_at"])
    op.create_index("ix_sessions_ended_at", "sessions", ["ended_at"])
    # The ledger is read and deleted in the order of its numbers.
    op.drop_index("ix_usage_at", table_name="usage")
