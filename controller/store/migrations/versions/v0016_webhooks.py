"""Receivers of webhooks, and how far each has been told of updates."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a table; what there was is kept."""
    op.create_table(
        "webhooks",
        sa.Column("receiver", sa.String(length=63), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("told", sa.BigInteger(), nullable=False),
        sa.Column("pending", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("receiver", name=op.f("pk_webhooks")),
    )
