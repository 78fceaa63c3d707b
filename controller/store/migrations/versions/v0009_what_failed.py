"""Hooks that failed, and jobs that this version cannot read."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a table and a column; what there was is kept."""
    op.create_table(
        "hook_failures",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("hook", sa.String(length=16), nullable=False),
        sa.Column("plugin", sa.String(length=63), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("next_at", sa.Double(), nullable=True),
        sa.Column("blocked", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.PrimaryKeyConstraint(
            "job_id", "attempt", "hook", "plugin", name=op.f("pk_hook_failures")
        ),
    )
    op.create_index("ix_hook_failures_at", "hook_failures", ["at"], unique=False)
    # Not in batch mode: a plain ADD COLUMN locks the table for a moment only.
    op.add_column("jobs", sa.Column("parked", sa.Text(), nullable=True))
