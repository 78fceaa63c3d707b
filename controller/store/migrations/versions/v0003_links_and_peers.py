"""Public links, and jobs that name each other."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add tables and columns; what there was is kept."""
    op.create_table(
        "connections",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("peer_id", sa.String(length=40), nullable=False),
        sa.Column("ports", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_connections_job_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "peer_id", name=op.f("pk_connections")),
    )
    op.create_index("ix_connections_peer_id", "connections", ["peer_id"], unique=False)
    op.create_table(
        "links",
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("job_id", sa.String(length=40), nullable=True),
        sa.Column("released_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_links")),
    )
    op.create_index("ix_links_job_id", "links", ["job_id"], unique=False)
    op.add_column("sessions", sa.Column("links", sa.JSON(), nullable=True))
    op.add_column("companions", sa.Column("address", sa.String(length=64), nullable=True))
    op.add_column("companions", sa.Column("basis", sa.String(length=64), nullable=True))
    op.add_column(
        "companions",
        sa.Column("lasting", sa.Boolean(), nullable=False, server_default=sa.false()),
    )
