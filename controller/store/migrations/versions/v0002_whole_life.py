"""The whole life of a job: leadership, pods, extensions, the usage ledger, maintenance."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

from controller.store.migrations import of_job

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add tables and columns; what there was is kept."""
    _make_tables()
    _fill_singletons()
    _add_columns()
    _move_pods()
    # SQLite copies a table that loses a column. No table refers to these two, so nothing cascades;
    # to `jobs`, to which others refer, columns are only added.
    with op.batch_alter_table("attempts") as batch:
        batch.drop_column("pods")
    with op.batch_alter_table("position") as batch:
        batch.drop_column("term")


def _make_tables() -> None:
    op.create_table(
        "leadership",
        sa.Column("id", sa.Integer, autoincrement=False, primary_key=True),
        sa.Column("term", sa.BigInteger, nullable=False),
        sa.Column("holder", sa.String(255), nullable=False),
        sa.Column("seen_at", sa.Double, nullable=False),
    )
    op.create_table(
        "counters",
        sa.Column("name", sa.String(32), primary_key=True),
        sa.Column("value", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "maintenance",
        sa.Column("id", sa.Integer, autoincrement=False, primary_key=True),
        sa.Column("mode", sa.String(16), nullable=False),
        sa.Column("message", sa.Text),
        sa.Column("since", sa.Double, nullable=False),
    )
    op.create_table(
        "usage",
        sa.Column("id", sa.BigInteger, autoincrement=False, primary_key=True),
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("owner_user", sa.String(255), nullable=False),
        sa.Column("owner_project", sa.String(255)),
        sa.Column("uid", sa.String(64), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("rank", sa.Integer, nullable=False),
        sa.Column("period", sa.Integer, nullable=False),
        sa.Column("until", sa.Double, nullable=False),
        sa.Column("seconds", sa.Double, nullable=False),
        sa.Column("final", sa.Boolean, nullable=False),
        sa.Column("product", sa.String(63)),
        sa.Column("price", sa.JSON),
        sa.Column("resources", sa.JSON, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.UniqueConstraint("uid", "rank", "period"),
    )
    op.create_index("ix_usage_at", "usage", ["at"])
    _make_tables_of_jobs()


def _make_tables_of_jobs() -> None:
    op.create_table(
        "extensions",
        of_job(primary_key=True),
        sa.Column("key", sa.String(64), primary_key=True),
        sa.Column("seconds", sa.Double, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
    )
    op.create_table(
        "runs",
        of_job(primary_key=True),
        sa.Column("pod_uid", sa.String(64), primary_key=True),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("rank", sa.Integer, nullable=False),
        sa.Column("task", sa.String(63), nullable=False),
        sa.Column("index", sa.Integer, nullable=False),
        sa.Column("pod", sa.String(253), nullable=False),
        sa.Column("node", sa.String(253), nullable=False),
        sa.Column("phase", sa.String(16), nullable=False),
        sa.Column("reason", sa.String(64), nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("exit_code", sa.Integer),
        sa.Column("signal", sa.Integer),
        sa.Column("seen_at", sa.Double, nullable=False),
        sa.Column("started_at", sa.Double),
        sa.Column("ended_at", sa.Double),
    )


def _fill_singletons() -> None:
    op.execute(
        "INSERT INTO leadership (id, term, holder, seen_at) "
        "SELECT 1, COALESCE(MAX(term), 0), '', 0 FROM position"
    )
    op.execute(
        "INSERT INTO counters (name, value) SELECT 'updates', COALESCE(MAX(id), 0) FROM transitions"
    )
    for name in ("updates_forgotten", "usage", "usage_forgotten", "usage_acknowledged"):
        op.execute(sa.text("INSERT INTO counters VALUES (:name, 0)").bindparams(name=name))
    op.execute("INSERT INTO maintenance (id, mode, since) VALUES (1, 'running', 0)")


def _add_columns() -> None:
    for column in (
        sa.Column("queue", sa.String(63)),
        sa.Column("allocated_seconds", sa.Double),
        sa.Column("end_state", sa.String(16)),
        sa.Column("end_reason", sa.String(64)),
        sa.Column("end_message", sa.Text),
        sa.Column("renewal", sa.String(16)),
        sa.Column("stopping", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("product", sa.String(63)),
        sa.Column("price", sa.JSON),
        sa.Column("cpu", sa.Double, nullable=False, server_default="0"),
        sa.Column("memory", sa.Double, nullable=False, server_default="0"),
        sa.Column("gpu", sa.Double, nullable=False, server_default="0"),
        sa.Column("evictions", sa.Integer, nullable=False, server_default="0"),
        sa.Column("retries_used", sa.Integer, nullable=False, server_default="0"),
    ):
        op.add_column("jobs", column)
    op.create_index("ix_jobs_queue", "jobs", ["queue", "state", "created_at"])
    op.add_column("attempts", sa.Column("reason", sa.String(64)))
    op.add_column("attempts", sa.Column("message", sa.Text))
    op.add_column("attempts", sa.Column("retries", sa.Integer, nullable=False, server_default="0"))
    op.add_column("transitions", sa.Column("exits", sa.JSON))
    # Until then only owners could request the end of a job.
    op.execute(
        "UPDATE jobs SET end_state = 'SUCCESS', end_reason = 'asked', "
        "end_message = 'ended as asked' WHERE desired = 'ended'"
    )


def _move_pods() -> None:
    connection = op.get_bind()
    attempts = sa.table(
        "attempts",
        sa.column("job_id"),
        sa.column("attempt"),
        sa.column("ended_at"),
        sa.column("pods", sa.JSON),
    )
    runs = sa.table("runs", *(sa.column(name) for name in _RUN))
    for row in connection.execute(sa.select(attempts).where(attempts.c.pods.is_not(None))).all():
        pods = row.pods if isinstance(row.pods, list) else json.loads(row.pods or "[]")
        for pod in pods or ():
            connection.execute(sa.insert(runs).values(_run_of(row, pod)))


_RUN = (
    "job_id", "pod_uid", "attempt", "rank", "task", "index", "pod", "node", "phase", "reason",
    "message", "exit_code", "seen_at", "ended_at",
)  # fmt: skip


def _run_of(row: sa.Row[Any], pod: dict[str, Any]) -> dict[str, Any]:
    # Jobs had a single task then, so that the index was the rank.
    values = (
        row.job_id, pod["uid"], row.attempt, pod["index"], pod["task"], pod["index"],
        f"j-{row.job_id}-{pod['task']}-{pod['index']}", pod["node"], pod["phase"], pod["reason"],
        "", pod["exit_code"], row.ended_at or 0.0, pod["finished_at"],
    )  # fmt: skip
    return dict(zip(_RUN, values, strict=True))
