"""What the orchestrator is told, in the order of commits, and the ledger."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from controller.store.tables.base import metadata

# What orchestrators are told, in the order of its numbers, which are those of commits.
transitions: Final = sa.Table(
    "transitions",
    metadata,
    sa.Column(
        "id",
        sa.BigInteger().with_variant(sa.Integer, "sqlite"),
        primary_key=True,
        autoincrement=False,
    ),
    sa.Column("job_id", sa.ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("reason", sa.String(64)),
    sa.Column("message", sa.Text),
    # How each rank ended, once the job has.
    sa.Column("exits", sa.JSON),
    sa.Column("details", sa.JSON(none_as_null=True)),
    sa.Index("ix_transitions_job_id", "job_id", "id"),
)

# How far each receiver of webhooks has been told of `transitions`.
webhooks: Final = sa.Table(
    "webhooks",
    metadata,
    sa.Column("receiver", sa.String(63), primary_key=True),
    # Every update up to it has been taken up: it was accepted, or its job is pending.
    sa.Column("position", sa.BigInteger, nullable=False),
    # Up to which number it need not be told any more that updates are forgotten.
    sa.Column("told", sa.BigInteger, nullable=False),
    # Of jobs whose updates up to the position were not all accepted: from which number on.
    sa.Column("pending", sa.JSON, nullable=False),
)

# The ledger: appended to, never changed. It outlives the jobs.
usage: Final = sa.Table(
    "usage",
    metadata,
    sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("job_id", sa.String(40), nullable=False),
    sa.Column("owner_user", sa.String(255), nullable=False),
    sa.Column("owner_project", sa.String(255)),
    # A job's id may come back after its record is forgotten; its VolcanoJob's never does.
    sa.Column("uid", sa.String(64), nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("rank", sa.Integer, nullable=False),
    sa.Column("period", sa.Integer, nullable=False),
    sa.Column("until", sa.Double, nullable=False),
    sa.Column("seconds", sa.Double, nullable=False),
    sa.Column("final", sa.Boolean, nullable=False),
    # What was used and what it costs, as at the job's acceptance.
    sa.Column("product", sa.String(63)),
    sa.Column("price", sa.JSON),
    sa.Column("resources", sa.JSON, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
    # Which tool of the job has used it; none where the job itself has.
    sa.Column("tool", sa.String(63)),
    sa.UniqueConstraint("uid", "rank", "period"),
)
