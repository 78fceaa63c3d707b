"""Jobs that wait for others to end."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from controller.store.migrations import of_job

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    """Add a table; what there was is kept."""
    op.create_table(
        "predecessors",
        of_job(primary_key=True),
        sa.Column("predecessor_id", sa.String(40), primary_key=True),
        sa.Column("state", sa.String(16)),
        sa.Column("reason", sa.String(64)),
    )
    op.create_index("ix_predecessors_predecessor_id", "predecessors", ["predecessor_id"])
