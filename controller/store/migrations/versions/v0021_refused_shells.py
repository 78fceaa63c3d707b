"""When the API server refused the shell of a terminal."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    """Add a column; what there was is kept."""
    op.add_column("sessions", sa.Column("shell_refused_at", sa.Double))
