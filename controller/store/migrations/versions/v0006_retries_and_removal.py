"""Columns for removals, retries that the controller follows up, and delayed policies."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from controller.store.migrations import of_job

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add columns and a table; what there was is kept."""
    op.add_column("jobs", sa.Column("removed_uid", sa.String(64)))
    op.add_column("jobs", sa.Column("ordered", sa.String(16)))
    op.add_column("jobs", sa.Column("ordered_why", sa.Text))
    op.add_column("jobs", sa.Column("kept", sa.Text))
    op.add_column("attempts", sa.Column("used", sa.Integer))
    op.add_column("runs", sa.Column("retry", sa.Integer))
    # If another attempt is about to follow, that decision has counted the retries.
    op.execute(
        "UPDATE attempts SET used = 0 WHERE EXISTS (SELECT 1 FROM jobs WHERE jobs.id ="
        " attempts.job_id AND jobs.attempt = attempts.attempt AND jobs.renewal IS NOT NULL)"
    )
    op.create_table(
        "policy_timers",
        of_job(primary_key=True),
        sa.Column("trigger", sa.String(160), primary_key=True),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("due_at", sa.Double, nullable=False),
        sa.Column("action", sa.String(16), nullable=False),
        sa.Column("why", sa.Text, nullable=False),
        sa.Column("retries", sa.Integer, nullable=False),
    )
