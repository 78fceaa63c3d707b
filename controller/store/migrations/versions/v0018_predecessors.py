"""Jobs that wait for others to end."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a table; what there was is kept."""
    op.create_table(
        "predecessors",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("predecessor_id", sa.String(length=40), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=True),
        sa.Column("reason", sa.String(length=64), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_predecessors_job_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "predecessor_id", name=op.f("pk_predecessors")),
    )
    op.create_index(
        "ix_predecessors_predecessor_id", "predecessors", ["predecessor_id"], unique=False
    )
