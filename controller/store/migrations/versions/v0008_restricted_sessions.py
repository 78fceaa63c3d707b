"""What the routes of sessions restrict."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add columns; what there was is kept."""
    op.add_column("sessions", sa.Column("clipboard", sa.String(length=8), nullable=True))
    op.add_column("sessions", sa.Column("service_workers", sa.Boolean(), nullable=True))
