"""Details of why a job waits or has ended, and the restarts of an attempt."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Add columns; what there was is kept."""
    # Not in batch mode: a plain ADD COLUMN locks the table for a moment only.
    op.add_column("jobs", sa.Column("details", sa.JSON))
    op.add_column("jobs", sa.Column("end_details", sa.JSON))
    op.add_column("jobs", sa.Column("priority_value", sa.Integer))
    op.add_column("attempts", sa.Column("restarts", sa.Integer))
    op.add_column("attempts", sa.Column("details", sa.JSON))
    op.add_column("transitions", sa.Column("details", sa.JSON))
    op.add_column("runs", sa.Column("memory_limit", sa.String(32)))
