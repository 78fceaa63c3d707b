"""An index of tombstones by age, so that the oldest can be deleted."""

from __future__ import annotations

from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Add an index; what there was is kept."""
    op.create_index("ix_tombstones_at", "tombstones", ["at"])
