"""Logs that outlive their pods."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Add a table; what there was is kept."""
    op.create_table(
        "pod_logs",
        sa.Column("key", sa.String(32), primary_key=True),
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("pod_uid", sa.String(64), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("segments", sa.JSON, nullable=False),
        sa.Column("lost", sa.JSON, nullable=False),
        sa.Column("changed_at", sa.Double, nullable=False),
    )
    op.create_index("ix_pod_logs_job_id", "pod_logs", ["job_id", "pod_uid"])
    op.create_index("ix_pod_logs_state", "pod_logs", ["state"])
