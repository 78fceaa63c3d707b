"""The position of the last sign-out that was processed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Add a column; what there was is kept."""
    op.add_column("position", sa.Column("asks", sa.String(64)))
