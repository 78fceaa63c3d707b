"""What removal, retries that we follow up, and delayed policies leave behind."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add columns and a table; what there was is kept."""
    op.add_column("jobs", sa.Column("removed_uid", sa.String(length=64), nullable=True))
    op.add_column("jobs", sa.Column("ordered", sa.String(length=16), nullable=True))
    op.add_column("jobs", sa.Column("ordered_why", sa.Text(), nullable=True))
    op.add_column("jobs", sa.Column("kept", sa.Text(), nullable=True))
    op.add_column("attempts", sa.Column("used", sa.Integer(), nullable=True))
    op.add_column("runs", sa.Column("retry", sa.Integer(), nullable=True))
    # Where another attempt is about to follow, those retries were counted with that decision.
    op.execute(
        "UPDATE attempts SET used = 0 WHERE EXISTS (SELECT 1 FROM jobs WHERE jobs.id ="
        " attempts.job_id AND jobs.attempt = attempts.attempt AND jobs.renewal IS NOT NULL)"
    )
    op.create_table(
        "policy_timers",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("trigger", sa.String(length=160), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("due_at", sa.Double(), nullable=False),
        sa.Column("action", sa.String(length=16), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("retries", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_policy_timers_job_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "trigger", name=op.f("pk_policy_timers")),
    )
