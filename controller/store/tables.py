"""The tables. Times are unix seconds; a change here needs a migration."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

metadata: Final = sa.MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
    }
)

# One row: who this store is, who leads, and what was last told to Redis.
position: Final = sa.Table(
    "position",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("identity", sa.String(64), nullable=False),
    sa.Column("term", sa.BigInteger, nullable=False),
    # Raised by every change that another process has to notice.
    sa.Column("revision", sa.BigInteger, nullable=False),
    sa.Column("epoch", sa.String(64)),
    sa.Column("seq", sa.BigInteger, nullable=False),
)

jobs: Final = sa.Table(
    "jobs",
    metadata,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("owner_user", sa.String(255), nullable=False),
    sa.Column("owner_project", sa.String(255)),
    sa.Column("namespace", sa.String(63), nullable=False),
    # The accepted job without secret values; those are sealed until the job is over.
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
    sa.Index("ix_jobs_state", "state", "id"),
    sa.Index("ix_jobs_owner", "owner_user", "id"),
    sa.Index("ix_jobs_project", "owner_project", "id"),
    sa.Index("ix_jobs_revision", "revision"),
)

job_labels: Final = sa.Table(
    "job_labels",
    metadata,
    sa.Column("job_id", sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("name", sa.String(63), primary_key=True),
    sa.Column("value", sa.String(63), nullable=False),
    sa.Index("ix_job_labels_name", "name", "value", "job_id"),
)

# One row per VolcanoJob that was made for a job.
attempts: Final = sa.Table(
    "attempts",
    metadata,
    sa.Column("job_id", sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("attempt", sa.Integer, primary_key=True),
    sa.Column("uid", sa.String(64), nullable=False),
    sa.Column("submitted_at", sa.Double, nullable=False),
    sa.Column("started_at", sa.Double),
    sa.Column("ended_at", sa.Double),
    sa.Column("outcome", sa.String(16)),
    sa.Column("pods", sa.JSON),
)

transitions: Final = sa.Table(
    "transitions",
    metadata,
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
    sa.Column("job_id", sa.ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("reason", sa.String(64)),
    sa.Column("message", sa.Text),
    sa.Index("ix_transitions_job_id", "job_id", "id"),
)

# Which hooks have run to their end.
hooks: Final = sa.Table(
    "hooks",
    metadata,
    sa.Column("job_id", sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("attempt", sa.Integer, primary_key=True),
    sa.Column("hook", sa.String(16), primary_key=True),
    sa.Column("plugin", sa.String(63), primary_key=True),
    sa.Column("at", sa.Double, nullable=False),
)

# When a plugin wants to look at a job again.
due: Final = sa.Table(
    "due",
    metadata,
    sa.Column("job_id", sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("plugin", sa.String(63), primary_key=True),
    sa.Column("at", sa.Double, nullable=False),
    sa.Index("ix_due_at", "at"),
)

# What was made beside a VolcanoJob: the evidence by which it may be removed.
companions: Final = sa.Table(
    "companions",
    metadata,
    sa.Column("job_id", sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("kind", sa.String(63), primary_key=True),
    sa.Column("namespace", sa.String(63), primary_key=True),
    sa.Column("name", sa.String(253), primary_key=True),
    sa.Column("uid", sa.String(64), nullable=False),
    sa.Column("owner_uid", sa.String(64)),
)

# Jobs whose record is gone and whose VolcanoJob may be removed.
tombstones: Final = sa.Table(
    "tombstones",
    metadata,
    sa.Column("job_id", sa.String(40), primary_key=True),
    sa.Column("uid", sa.String(64), primary_key=True),
    sa.Column("at", sa.Double, nullable=False),
)

sessions: Final = sa.Table(
    "sessions",
    metadata,
    sa.Column("sid", sa.String(26), primary_key=True),
    sa.Column("job_id", sa.ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    sa.Column("rank", sa.Integer, nullable=False),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("endpoint", sa.String(63)),
    sa.Column("port", sa.Integer),
    sa.Column("base_path", sa.String(1024), nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("ended_at", sa.Double),
    sa.Column("end_reason", sa.String(64)),
    # Of a terminal: which hub holds it, and into which pod. Written before it is published.
    sa.Column("hub_id", sa.String(64)),
    sa.Column("pod", sa.String(253)),
    sa.Column("pod_uid", sa.String(64)),
    sa.Column("revision", sa.BigInteger, nullable=False),
    sa.Index("ix_sessions_job_id", "job_id"),
    sa.Index("ix_sessions_hub_id", "hub_id"),
    sa.Index("ix_sessions_revision", "revision"),
)

revocations: Final = sa.Table(
    "revocations",
    metadata,
    # As in Redis: jti:…, sub:<sid>:…, all:<sid>, kid:….
    sa.Column("member", sa.String(512), primary_key=True),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("sid", sa.String(26)),
    sa.Column("jti", sa.String(128)),
    sa.Column("sub", sa.String(255)),
    sa.Column("kid", sa.String(255)),
    sa.Column("revision", sa.BigInteger, nullable=False),
    sa.Index("ix_revocations_revision", "revision"),
    sa.Index("ix_revocations_at", "at"),
)

hubs: Final = sa.Table(
    "hubs",
    metadata,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("host", sa.String(255), nullable=False),
    sa.Column("port", sa.Integer, nullable=False),
    sa.Column("started_at", sa.Double, nullable=False),
    sa.Column("seen_at", sa.Double, nullable=False),
)
