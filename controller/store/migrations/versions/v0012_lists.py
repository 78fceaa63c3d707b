"""Indexes for lists of jobs and sessions in each order."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

INDEXES = (
    ("ix_jobs_kind", "jobs", ["kind", "id"]),
    ("ix_jobs_newest", "jobs", ["created_at", "id"]),
    ("ix_jobs_state_newest", "jobs", ["state", "created_at", "id"]),
    ("ix_jobs_owner_newest", "jobs", ["owner_user", "created_at", "id"]),
    ("ix_jobs_owner_state_newest", "jobs", ["owner_user", "state", "created_at", "id"]),
    ("ix_jobs_project_newest", "jobs", ["owner_project", "created_at", "id"]),
    ("ix_jobs_project_state_newest", "jobs", ["owner_project", "state", "created_at", "id"]),
    ("ix_jobs_kind_newest", "jobs", ["kind", "created_at", "id"]),
    ("ix_sessions_newest", "sessions", ["created_at", "sid"]),
    ("ix_sessions_job_newest", "sessions", ["job_id", "created_at", "sid"]),
    ("ix_sessions_owner_newest", "sessions", ["owner_user", "created_at", "sid"]),
)


def upgrade() -> None:
    """Add two columns and indexes; what there was is kept."""
    # Not in batch mode: a plain ADD COLUMN locks the table for a moment only. Housekeeping fills
    # them in, also in rows that the previous version writes beside this one.
    op.add_column("jobs", sa.Column("kind", sa.String(63)))
    op.add_column("sessions", sa.Column("owner_user", sa.String(255)))
    for name, table, columns in INDEXES:
        op.create_index(name, table, columns)
    live = sa.text("NOT (ended_at IS NOT NULL)")
    op.create_index(
        "ix_sessions_live_newest",
        "sessions",
        ["created_at", "sid"],
        unique=False,
        sqlite_where=live,
        postgresql_where=live,
    )
