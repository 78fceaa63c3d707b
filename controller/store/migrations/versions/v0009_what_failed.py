"""Failed hooks, and jobs that this version cannot process."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add a table and a column; what there was is kept."""
    op.create_table(
        "hook_failures",
        sa.Column("job_id", sa.String(40), primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("hook", sa.String(16), primary_key=True),
        sa.Column("plugin", sa.String(63), primary_key=True),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("error", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("next_at", sa.Double),
        sa.Column("blocked", sa.Boolean, server_default=sa.false(), nullable=False),
    )
    op.create_index("ix_hook_failures_at", "hook_failures", ["at"])
    # Not in batch mode: a plain ADD COLUMN locks the table for a moment only.
    op.add_column("jobs", sa.Column("parked", sa.Text))
