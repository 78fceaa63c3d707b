"""Mount points that jobs leave in their output folders."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a table; what there was is kept."""
    op.create_table(
        "mount_points",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("place", sa.String(length=32), nullable=False),
        sa.Column("names", sa.JSON(), nullable=False),
        sa.Column("made", sa.JSON(), nullable=False),
        sa.Column("cleaner", sa.JSON(), nullable=False),
        sa.Column("over_at", sa.Double(), nullable=True),
        sa.Column("cleaning_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_mount_points_job_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_mount_points")),
    )
    op.create_index("ix_mount_points_over_at", "mount_points", ["over_at"], unique=False)
    op.create_index("ix_mount_points_place", "mount_points", ["place"], unique=False)
