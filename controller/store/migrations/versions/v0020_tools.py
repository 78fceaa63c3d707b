"""Tools of jobs, and what they use."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a table and columns; what there was is kept."""
    op.add_column("jobs", sa.Column("tool", sa.JSON(none_as_null=True), nullable=True))
    op.add_column("jobs", sa.Column("tools", sa.Integer(), server_default="0", nullable=False))
    op.add_column("usage", sa.Column("tool", sa.String(length=63), nullable=True))
    op.create_table(
        "tools",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("rank", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("shape", sa.JSON(), nullable=False),
        sa.Column("charged", sa.JSON(), nullable=False),
        sa.Column("unshared", sa.JSON(), nullable=False),
        sa.Column("asked_at", sa.Double(), nullable=False),
        sa.Column("run", sa.String(length=40), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_tools_job_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "name", "rank", name=op.f("pk_tools")),
    )
