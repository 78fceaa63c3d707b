"""Restrictions of sessions' routes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add columns; what there was is kept."""
    op.add_column("sessions", sa.Column("clipboard", sa.String(8)))
    op.add_column("sessions", sa.Column("service_workers", sa.Boolean))
