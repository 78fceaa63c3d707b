"""Receivers of webhooks, and how far each has read the updates."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """Add a table; what there was is kept."""
    op.create_table(
        "webhooks",
        sa.Column("receiver", sa.String(63), primary_key=True),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("told", sa.BigInteger, nullable=False),
        sa.Column("pending", sa.JSON, nullable=False),
    )
