"""The last known reason why a job waits."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Add a column; what there was is kept."""
    # Not in batch mode: a plain ADD COLUMN locks the table for a moment only.
    op.add_column("jobs", sa.Column("explained", sa.JSON))
