"""Public links, and jobs that name each other."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from controller.store.migrations import of_job

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add tables and columns; what there was is kept."""
    op.create_table(
        "connections",
        of_job(primary_key=True),
        sa.Column("peer_id", sa.String(40), primary_key=True),
        sa.Column("ports", sa.JSON, nullable=False),
    )
    op.create_index("ix_connections_peer_id", "connections", ["peer_id"])
    op.create_table(
        "links",
        sa.Column("name", sa.String(63), primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("job_id", sa.String(40)),
        sa.Column("released_at", sa.Double),
    )
    op.create_index("ix_links_job_id", "links", ["job_id"])
    op.add_column("sessions", sa.Column("links", sa.JSON))
    op.add_column("companions", sa.Column("address", sa.String(64)))
    op.add_column("companions", sa.Column("basis", sa.String(64)))
    op.add_column(
        "companions",
        sa.Column("lasting", sa.Boolean, nullable=False, server_default=sa.false()),
    )
