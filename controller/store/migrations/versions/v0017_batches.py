"""Batches: jobs that were submitted together."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    """Add two tables, two columns and indexes; what there was is kept."""
    op.create_table(
        "batches",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("owner_user", sa.String(255), nullable=False),
        sa.Column("owner_project", sa.String(255)),
        sa.Column("mode", sa.String(16), nullable=False),
        sa.Column("fingerprint", sa.LargeBinary, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("items", sa.Integer, nullable=False),
        sa.Column("jobs", sa.Integer, nullable=False),
    )
    for name, columns in (
        ("ix_batches_newest", ["created_at", "id"]),
        ("ix_batches_owner_newest", ["owner_user", "created_at", "id"]),
        ("ix_batches_project_newest", ["owner_project", "created_at", "id"]),
    ):
        op.create_index(name, "batches", columns)
    op.create_table(
        "batch_items",
        sa.Column(
            "batch_id",
            sa.String(40),
            sa.ForeignKey("batches.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("index", sa.Integer, autoincrement=False, primary_key=True),
        sa.Column("job_id", sa.String(40)),
        sa.Column("result", sa.String(16), nullable=False),
        sa.Column("parameters", sa.JSON, nullable=False),
        sa.Column("problems", sa.JSON(none_as_null=True)),
        sa.Column("ended_as", sa.String(16)),
    )
    _partial_index("ix_batch_items_ended_as", "batch_items", ["batch_id", "ended_as"], "ended_as")
    # Not in batch mode: a plain ADD COLUMN locks the table for a moment only.
    op.add_column("jobs", sa.Column("batch", sa.String(40)))
    op.add_column("jobs", sa.Column("batch_index", sa.Integer))
    _partial_index("ix_jobs_batch", "jobs", ["batch", "id", "state"], "batch")


def _partial_index(name: str, table: str, columns: list[str], where: str) -> None:
    given = sa.text(f"{where} IS NOT NULL")
    op.create_index(name, table, columns, sqlite_where=given, postgresql_where=given)
