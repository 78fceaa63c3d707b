"""The schema of VolcanoJobs that the cluster accepts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add a table; what there was is kept."""
    op.create_table(
        "volcano",
        sa.Column("id", sa.Integer, autoincrement=False, primary_key=True),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("schema", sa.JSON, nullable=False),
    )
