"""Whose each place of owners' files is."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a table; what there was is kept."""
    op.create_table(
        "places",
        sa.Column("namespace", sa.String(length=63), nullable=False),
        sa.Column("claim", sa.String(length=253), nullable=False),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "claim", "folder", name=op.f("pk_places")),
    )
