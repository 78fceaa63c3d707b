"""Interactive sessions, what was revoked, and the hubs that hold terminals."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from controller.store.tables.base import metadata

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
