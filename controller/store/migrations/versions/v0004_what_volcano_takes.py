"""What the cluster's Volcano takes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a table; what there was is kept."""
    op.create_table(
        "volcano",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("schema", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_volcano")),
    )
