"""Tools of jobs, and what they use."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from controller.store.migrations import of_job

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    """Add a table and columns; what there was is kept."""
    op.add_column("jobs", sa.Column("tool", sa.JSON(none_as_null=True)))
    op.add_column("jobs", sa.Column("tools", sa.Integer, server_default="0", nullable=False))
    op.add_column("usage", sa.Column("tool", sa.String(63)))
    op.create_table(
        "tools",
        of_job(primary_key=True),
        sa.Column("name", sa.String(63), primary_key=True),
        sa.Column("rank", sa.Integer, autoincrement=False, primary_key=True),
        sa.Column("spec", sa.JSON, nullable=False),
        sa.Column("shape", sa.JSON, nullable=False),
        sa.Column("charged", sa.JSON, nullable=False),
        sa.Column("unshared", sa.JSON, nullable=False),
        sa.Column("asked_at", sa.Double, nullable=False),
        sa.Column("run", sa.String(40)),
    )
