"""Tables of the installation, of updates and usage, and of sessions; naming of keys and indexes."""

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


# One row: the identity of this store, and the last event that was published to Redis.
position: Final = sa.Table(
    "position",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("identity", sa.String(64), nullable=False),
    # Raised by every change that other processes must notice.
    sa.Column("revision", sa.BigInteger, nullable=False),
    sa.Column("epoch", sa.String(64)),
    sa.Column("seq", sa.BigInteger, nullable=False),
    # The last entry of the stream of sign-outs that was processed.
    sa.Column("asks", sa.String(64)),
)

# One row: the leader. Not part of `position`: if each of a leader's transactions held that row
# shared and then had to write it, it would wait for the others' end (on PostgreSQL, for ever).
leadership: Final = sa.Table(
    "leadership",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("term", sa.BigInteger, nullable=False),
    sa.Column("holder", sa.String(255), nullable=False),
    # The leader's last heartbeat: nobody has observed later events.
    sa.Column("seen_at", sa.Double, nullable=False),
)

# Numbers in the order of commits: taking one locks its row until the transaction ends, so that a
# reader of one number has seen all earlier ones.
counters: Final = sa.Table(
    "counters",
    metadata,
    sa.Column("name", sa.String(32), primary_key=True),
    sa.Column("value", sa.BigInteger, nullable=False),
)

# One row: whether jobs are accepted and submitted.
maintenance: Final = sa.Table(
    "maintenance",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("mode", sa.String(16), nullable=False),
    sa.Column("message", sa.Text),
    sa.Column("since", sa.Double, nullable=False),
)

# At most one row: the VolcanoJob schema that the cluster accepts, as a leader read it.
volcano: Final = sa.Table(
    "volcano",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("schema", sa.JSON, nullable=False),
)


# Updates for orchestrators, numbered in the order of commits.
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
    # How each rank ended, in the update that reports the job's end.
    sa.Column("exits", sa.JSON),
    sa.Column("details", sa.JSON(none_as_null=True)),
    sa.Index("ix_transitions_job_id", "job_id", "id"),
)

# How far each webhook receiver has read `transitions`.
webhooks: Final = sa.Table(
    "webhooks",
    metadata,
    sa.Column("receiver", sa.String(63), primary_key=True),
    # Every update up to it was delivered, or its job is pending.
    sa.Column("position", sa.BigInteger, nullable=False),
    # The receiver knows that updates up to this number were deleted.
    sa.Column("told", sa.BigInteger, nullable=False),
    # Jobs with undelivered updates up to the position, each with the first number of them.
    sa.Column("pending", sa.JSON, nullable=False),
)

# The usage ledger: append-only. It outlives the jobs.
usage: Final = sa.Table(
    "usage",
    metadata,
    sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("job_id", sa.String(40), nullable=False),
    sa.Column("owner_user", sa.String(255), nullable=False),
    sa.Column("owner_project", sa.String(255)),
    # A job's id may be reused after its record is deleted; its VolcanoJob's uid never is.
    sa.Column("uid", sa.String(64), nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("rank", sa.Integer, nullable=False),
    sa.Column("period", sa.Integer, nullable=False),
    sa.Column("until", sa.Double, nullable=False),
    sa.Column("seconds", sa.Double, nullable=False),
    sa.Column("final", sa.Boolean, nullable=False),
    # Product and price at the job's acceptance.
    sa.Column("product", sa.String(63)),
    sa.Column("price", sa.JSON),
    sa.Column("resources", sa.JSON, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
    # The tool of the job that used it; null for the job itself.
    sa.Column("tool", sa.String(63)),
    sa.UniqueConstraint("uid", "rank", "period"),
)


HAS_NOT_ENDED: Final = "NOT (ended_at IS NOT NULL)"
"""A condition on sessions. For ``IS NULL``, SQLite would use the index on ended_at, then sort."""

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
    # For a terminal: the hub and the pod of its shell. Written before the route is published.
    sa.Column("hub_id", sa.String(64)),
    sa.Column("pod", sa.String(253)),
    sa.Column("pod_uid", sa.String(64)),
    # When the API server last refused the shell, by the hub's clock.
    sa.Column("shell_refused_at", sa.Double),
    # Public names of a session that is open to everybody; null for a user's session.
    sa.Column("links", sa.JSON),
    # Restrictions of its route; null restricts as little as before there were restrictions.
    sa.Column("clipboard", sa.String(8)),
    sa.Column("service_workers", sa.Boolean),
    sa.Column("revision", sa.BigInteger, nullable=False),
    # The owner of its job, to search by; null if the previous version opened it.
    sa.Column("owner_user", sa.String(255)),
    sa.Index("ix_sessions_job_id", "job_id"),
    sa.Index("ix_sessions_newest", "created_at", "sid"),
    sa.Index("ix_sessions_job_newest", "job_id", "created_at", "sid"),
    sa.Index("ix_sessions_owner_newest", "owner_user", "created_at", "sid"),
    sa.Index(
        "ix_sessions_live_newest",
        "created_at",
        "sid",
        sqlite_where=sa.text(HAS_NOT_ENDED),
        postgresql_where=sa.text(HAS_NOT_ENDED),
    ),
    sa.Index("ix_sessions_hub_id", "hub_id"),
    sa.Index("ix_sessions_revision", "revision"),
    sa.Index("ix_sessions_ended_at", "ended_at"),
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
