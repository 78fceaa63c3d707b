"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make all tables."""
    op.create_table(
        "hubs",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("port", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("seen_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_hubs")),
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("owner_user", sa.String(length=255), nullable=False),
        sa.Column("owner_project", sa.String(length=255), nullable=True),
        sa.Column("namespace", sa.String(length=63), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=True),
        sa.Column("fingerprint", sa.LargeBinary(), nullable=True),
        sa.Column("desired", sa.String(length=16), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.String(length=64), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("uid", sa.String(length=64), nullable=True),
        sa.Column("outcome", sa.String(length=16), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
    )
    op.create_index("ix_jobs_owner", "jobs", ["owner_user", "id"], unique=False)
    op.create_index("ix_jobs_project", "jobs", ["owner_project", "id"], unique=False)
    op.create_index("ix_jobs_revision", "jobs", ["revision"], unique=False)
    op.create_index("ix_jobs_state", "jobs", ["state", "id"], unique=False)
    op.create_table(
        "position",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("identity", sa.String(length=64), nullable=False),
        sa.Column("term", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.String(length=64), nullable=True),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_position")),
    )
    op.create_table(
        "revocations",
        sa.Column("member", sa.String(length=512), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("sid", sa.String(length=26), nullable=True),
        sa.Column("jti", sa.String(length=128), nullable=True),
        sa.Column("sub", sa.String(length=255), nullable=True),
        sa.Column("kid", sa.String(length=255), nullable=True),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("member", name=op.f("pk_revocations")),
    )
    op.create_index("ix_revocations_at", "revocations", ["at"], unique=False)
    op.create_index("ix_revocations_revision", "revocations", ["revision"], unique=False)
    op.create_table(
        "tombstones",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("uid", sa.String(length=64), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "uid", name=op.f("pk_tombstones")),
    )
    op.create_table(
        "attempts",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("uid", sa.String(length=64), nullable=False),
        sa.Column("submitted_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("outcome", sa.String(length=16), nullable=True),
        sa.Column("pods", sa.JSON(), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_attempts_job_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "attempt", name=op.f("pk_attempts")),
    )
    op.create_table(
        "companions",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("kind", sa.String(length=63), nullable=False),
        sa.Column("namespace", sa.String(length=63), nullable=False),
        sa.Column("name", sa.String(length=253), nullable=False),
        sa.Column("uid", sa.String(length=64), nullable=False),
        sa.Column("owner_uid", sa.String(length=64), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_companions_job_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "kind", "namespace", "name", name=op.f("pk_companions")),
    )
    op.create_table(
        "due",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("plugin", sa.String(length=63), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_due_job_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "plugin", name=op.f("pk_due")),
    )
    op.create_index("ix_due_at", "due", ["at"], unique=False)
    op.create_table(
        "hooks",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("hook", sa.String(length=16), nullable=False),
        sa.Column("plugin", sa.String(length=63), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_hooks_job_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "attempt", "hook", "plugin", name=op.f("pk_hooks")),
    )
    op.create_table(
        "job_labels",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("value", sa.String(length=63), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_job_labels_job_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "name", name=op.f("pk_job_labels")),
    )
    op.create_index("ix_job_labels_name", "job_labels", ["name", "value", "job_id"], unique=False)
    op.create_table(
        "sessions",
        sa.Column("sid", sa.String(length=26), nullable=False),
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("endpoint", sa.String(length=63), nullable=True),
        sa.Column("port", sa.Integer(), nullable=True),
        sa.Column("base_path", sa.String(length=1024), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("end_reason", sa.String(length=64), nullable=True),
        sa.Column("hub_id", sa.String(length=64), nullable=True),
        sa.Column("pod", sa.String(length=253), nullable=True),
        sa.Column("pod_uid", sa.String(length=64), nullable=True),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_sessions_job_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("sid", name=op.f("pk_sessions")),
    )
    op.create_index("ix_sessions_hub_id", "sessions", ["hub_id"], unique=False)
    op.create_index("ix_sessions_job_id", "sessions", ["job_id"], unique=False)
    op.create_index("ix_sessions_revision", "sessions", ["revision"], unique=False)
    op.create_table(
        "transitions",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.String(length=64), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_transitions_job_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_transitions")),
    )
    op.create_index("ix_transitions_job_id", "transitions", ["job_id", "id"], unique=False)
    # ### end Alembic commands ###
