"""What this deployment is, what it tells, and its sessions; and how keys and indexes are named."""

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


# One row: who this store is, and what was last told to Redis.
position: Final = sa.Table(
    "position",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("identity", sa.String(64), nullable=False),
    # Raised by every change that another process has to notice.
    sa.Column("revision", sa.BigInteger, nullable=False),
    sa.Column("epoch", sa.String(64)),
    sa.Column("seq", sa.BigInteger, nullable=False),
    # The last entry of the stream of sign-outs that was taken up.
    sa.Column("asks", sa.String(64)),
)

# One row: who leads. Apart from `position`: each of a leader's transactions holds it shared, and
# would wait for the others' end if it then had to write there (on PostgreSQL, for ever).
leadership: Final = sa.Table(
    "leadership",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("term", sa.BigInteger, nullable=False),
    sa.Column("holder", sa.String(255), nullable=False),
    # The leader's last sign of life: what happened later, nobody saw.
    sa.Column("seen_at", sa.Double, nullable=False),
)

# Numbers handed out in the order of commits: whoever takes one holds its row until then, so that
# a reader who has seen a number has seen all before it.
counters: Final = sa.Table(
    "counters",
    metadata,
    sa.Column("name", sa.String(32), primary_key=True),
    sa.Column("value", sa.BigInteger, nullable=False),
)

# One row: whether jobs are taken and submitted.
maintenance: Final = sa.Table(
    "maintenance",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("mode", sa.String(16), nullable=False),
    sa.Column("message", sa.Text),
    sa.Column("since", sa.Double, nullable=False),
)

# One row, once it is known: which VolcanoJobs the cluster takes, as a leader read it there.
volcano: Final = sa.Table(
    "volcano",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("schema", sa.JSON, nullable=False),
)


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


HAS_NOT_ENDED: Final = "NOT (ended_at IS NOT NULL)"
"""Of sessions. By ``IS NULL`` SQLite would prefer the index of those that ended, and then sort."""

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
    # Public names under which everybody reaches it; none for a session of somebody's.
    sa.Column("links", sa.JSON),
    # What its route restricts; none is as little as there was before there were restrictions.
    sa.Column("clipboard", sa.String(8)),
    sa.Column("service_workers", sa.Boolean),
    sa.Column("revision", sa.BigInteger, nullable=False),
    # Its job's, to find it by; null where the version before opened it.
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
