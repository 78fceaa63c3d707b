"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from controller.store.migrations import of_job

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make all tables."""
    op.create_table(
        "hubs",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("port", sa.Integer, nullable=False),
        sa.Column("started_at", sa.Double, nullable=False),
        sa.Column("seen_at", sa.Double, nullable=False),
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("owner_user", sa.String(255), nullable=False),
        sa.Column("owner_project", sa.String(255)),
        sa.Column("namespace", sa.String(63), nullable=False),
        sa.Column("spec", sa.JSON, nullable=False),
        sa.Column("sealed", sa.LargeBinary),
        sa.Column("fingerprint", sa.LargeBinary),
        sa.Column("desired", sa.String(16), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.String(64)),
        sa.Column("message", sa.Text),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("uid", sa.String(64)),
        sa.Column("outcome", sa.String(16)),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("started_at", sa.Double),
        sa.Column("finished_at", sa.Double),
        sa.Column("revision", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_jobs_owner", "jobs", ["owner_user", "id"])
    op.create_index("ix_jobs_project", "jobs", ["owner_project", "id"])
    op.create_index("ix_jobs_revision", "jobs", ["revision"])
    op.create_index("ix_jobs_state", "jobs", ["state", "id"])
    op.create_table(
        "position",
        sa.Column("id", sa.Integer, autoincrement=False, primary_key=True),
        sa.Column("identity", sa.String(64), nullable=False),
        sa.Column("term", sa.BigInteger, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("epoch", sa.String(64)),
        sa.Column("seq", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "revocations",
        sa.Column("member", sa.String(512), primary_key=True),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("sid", sa.String(26)),
        sa.Column("jti", sa.String(128)),
        sa.Column("sub", sa.String(255)),
        sa.Column("kid", sa.String(255)),
        sa.Column("revision", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_revocations_at", "revocations", ["at"])
    op.create_index("ix_revocations_revision", "revocations", ["revision"])
    op.create_table(
        "tombstones",
        sa.Column("job_id", sa.String(40), primary_key=True),
        sa.Column("uid", sa.String(64), primary_key=True),
        sa.Column("at", sa.Double, nullable=False),
    )
    op.create_table(
        "attempts",
        of_job(primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True),
        sa.Column("uid", sa.String(64), nullable=False),
        sa.Column("submitted_at", sa.Double, nullable=False),
        sa.Column("started_at", sa.Double),
        sa.Column("ended_at", sa.Double),
        sa.Column("outcome", sa.String(16)),
        sa.Column("pods", sa.JSON),
    )
    op.create_table(
        "companions",
        of_job(primary_key=True),
        sa.Column("kind", sa.String(63), primary_key=True),
        sa.Column("namespace", sa.String(63), primary_key=True),
        sa.Column("name", sa.String(253), primary_key=True),
        sa.Column("uid", sa.String(64), nullable=False),
        sa.Column("owner_uid", sa.String(64)),
    )
    op.create_table(
        "due",
        of_job(primary_key=True),
        sa.Column("plugin", sa.String(63), primary_key=True),
        sa.Column("at", sa.Double, nullable=False),
    )
    op.create_index("ix_due_at", "due", ["at"])
    op.create_table(
        "hooks",
        of_job(primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True),
        sa.Column("hook", sa.String(16), primary_key=True),
        sa.Column("plugin", sa.String(63), primary_key=True),
        sa.Column("at", sa.Double, nullable=False),
    )
    op.create_table(
        "job_labels",
        of_job(primary_key=True),
        sa.Column("name", sa.String(63), primary_key=True),
        sa.Column("value", sa.String(63), nullable=False),
    )
    op.create_index("ix_job_labels_name", "job_labels", ["name", "value", "job_id"])
    op.create_table(
        "sessions",
        sa.Column("sid", sa.String(26), primary_key=True),
        of_job(nullable=False),
        sa.Column("rank", sa.Integer, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("endpoint", sa.String(63)),
        sa.Column("port", sa.Integer),
        sa.Column("base_path", sa.String(1024), nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("ended_at", sa.Double),
        sa.Column("end_reason", sa.String(64)),
        sa.Column("hub_id", sa.String(64)),
        sa.Column("pod", sa.String(253)),
        sa.Column("pod_uid", sa.String(64)),
        sa.Column("revision", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_sessions_hub_id", "sessions", ["hub_id"])
    op.create_index("ix_sessions_job_id", "sessions", ["job_id"])
    op.create_index("ix_sessions_revision", "sessions", ["revision"])
    op.create_table(
        "transitions",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        of_job(nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.String(64)),
        sa.Column("message", sa.Text),
    )
    op.create_index("ix_transitions_job_id", "transitions", ["job_id", "id"])
