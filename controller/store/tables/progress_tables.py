"""What has been done for jobs, and what was seen of them."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from controller.store.tables.base import metadata

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
    sa.Column("reason", sa.String(64)),
    sa.Column("message", sa.Text),
    # The VolcanoJob's count of the times that it was started over.
    sa.Column("retries", sa.Integer, nullable=False, server_default="0"),
    # Of the job's retries, how many this one has used; set once, when the next one begins.
    sa.Column("used", sa.Integer),
    # How often it was started over: Volcano counts a restart that it then refuses, too.
    sa.Column("restarts", sa.Integer),
    sa.Column("details", sa.JSON(none_as_null=True)),
)

# Every pod that was ever seen: where a replica ran, from when to when, and how that ended.
runs: Final = sa.Table(
    "runs",
    metadata,
    sa.Column("job_id", sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
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
    # Volcano's count of restarts when it was made: at a higher one it was killed for a restart.
    sa.Column("retry", sa.Integer),
    # What its program may take of memory, as Kubernetes writes it.
    sa.Column("memory_limit", sa.String(32)),
)

# Logs of pods, and of which objects each consists. No key into `jobs`: a log whose job is forgotten
# stays until its objects are removed.
pod_logs: Final = sa.Table(
    "pod_logs",
    metadata,
    # What its objects are named by; nothing of the job is part of it.
    sa.Column("key", sa.String(32), primary_key=True),
    sa.Column("job_id", sa.String(40), nullable=False),
    sa.Column("pod_uid", sa.String(64), nullable=False),
    # "open" while it grows, "whole", and "dropped" once its job is forgotten.
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("segments", sa.JSON, nullable=False),
    # Why something of it was lost; empty where nothing was.
    sa.Column("lost", sa.JSON, nullable=False),
    sa.Column("changed_at", sa.Double, nullable=False),
    sa.Index("ix_pod_logs_job_id", "job_id", "pod_uid"),
    sa.Index("ix_pod_logs_state", "state"),
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

# Hooks that failed, until they have run to their end or the job is forgotten. No key into `jobs`:
# a hook can also block while it is asked whether a job can be accepted.
hook_failures: Final = sa.Table(
    "hook_failures",
    metadata,
    sa.Column("job_id", sa.String(40), primary_key=True),
    sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("hook", sa.String(16), primary_key=True),
    sa.Column("plugin", sa.String(63), primary_key=True),
    sa.Column("tries", sa.Integer, nullable=False),
    sa.Column("error", sa.Text, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
    # When it is tried again; null: it is given up.
    sa.Column("next_at", sa.Double),
    # It blocked a whole process: the plugin is not called for the job any more.
    sa.Column("blocked", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Index("ix_hook_failures_at", "at"),
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

# Policies with a timeout that something has triggered, and when each is carried out.
policy_timers: Final = sa.Table(
    "policy_timers",
    metadata,
    sa.Column("job_id", sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    # The event, and the pod or task that it was about.
    sa.Column("trigger", sa.String(160), primary_key=True),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("due_at", sa.Double, nullable=False),
    sa.Column("action", sa.String(16), nullable=False),
    sa.Column("why", sa.Text, nullable=False),
    # Volcano's count of restarts at that moment: with another one the trigger is out of date.
    sa.Column("retries", sa.Integer, nullable=False),
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
    # Where it is reached, if it is a Service.
    sa.Column("address", sa.String(64)),
    # Of which connections to other jobs it was made; another value now means that it is stale.
    sa.Column("basis", sa.String(64)),
    # It goes with the job and not with a VolcanoJob, of which a job may have several.
    sa.Column("lasting", sa.Boolean, nullable=False, server_default=sa.false()),
)
