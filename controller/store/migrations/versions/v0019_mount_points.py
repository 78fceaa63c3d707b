"""Mount points that jobs leave in their output folders."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from controller.store.migrations import of_job

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    """Add a table; what there was is kept."""
    op.create_table(
        "mount_points",
        of_job(primary_key=True),
        sa.Column("place", sa.String(32), nullable=False),
        sa.Column("names", sa.JSON, nullable=False),
        sa.Column("made", sa.JSON, nullable=False),
        sa.Column("cleaner", sa.JSON, nullable=False),
        sa.Column("over_at", sa.Double),
        sa.Column("cleaning_at", sa.Double),
    )
    op.create_index("ix_mount_points_over_at", "mount_points", ["over_at"])
    op.create_index("ix_mount_points_place", "mount_points", ["place"])
