"""The owners of places of files."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add a table; what there was is kept."""
    op.create_table(
        "places",
        sa.Column("namespace", sa.String(63), primary_key=True),
        sa.Column("claim", sa.String(253), primary_key=True),
        sa.Column("folder", sa.Text, primary_key=True),
        sa.Column("holder", sa.Text, nullable=False),
    )
