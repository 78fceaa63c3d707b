"""Jobs: as asked for, what was done for them and seen of them, and what they have of each other."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from controller.store.tables.instance_tables import metadata

IS_IN_A_BATCH: Final = "batch IS NOT NULL"
IS_FORGOTTEN: Final = "ended_as IS NOT NULL"

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
    # Whom it waits behind; known once it is submitted.
    sa.Column("queue", sa.String(63)),
    # How long it may go on from its first start, extensions included.
    sa.Column("allocated_seconds", sa.Double),
    # How it is to be told when it was ended on purpose: by its owner, the clock, or its funds.
    sa.Column("end_state", sa.String(16)),
    sa.Column("end_reason", sa.String(64)),
    sa.Column("end_message", sa.Text),
    # Why its VolcanoJob is being replaced by another attempt's, while it is.
    sa.Column("renewal", sa.String(16)),
    # A command of ours to stop the VolcanoJob is, or was, on its way.
    sa.Column("stopping", sa.Boolean, nullable=False, server_default=sa.false()),
    # What it is charged by, as when it was accepted.
    sa.Column("product", sa.String(63)),
    sa.Column("price", sa.JSON(none_as_null=True)),
    # What all its replicas take together: processors, bytes, devices.
    sa.Column("cpu", sa.Double, nullable=False, server_default="0"),
    sa.Column("memory", sa.Double, nullable=False, server_default="0"),
    sa.Column("gpu", sa.Double, nullable=False, server_default="0"),
    sa.Column("evictions", sa.Integer, nullable=False, server_default="0"),
    # By earlier attempts, of those that the job's own policies allow.
    sa.Column("retries_used", sa.Integer, nullable=False, server_default="0"),
    # The VolcanoJob whose deletion the API server has accepted: its pods may be deleted too.
    sa.Column("removed_uid", sa.String(64)),
    # What a delayed policy of the job had us tell Volcano to do with its VolcanoJob, and why.
    sa.Column("ordered", sa.String(16)),
    sa.Column("ordered_why", sa.Text),
    # What the cluster keeps of the job for a store that knows nothing.
    sa.Column("kept", sa.Text),
    # What the cluster last said about why the VolcanoJob waits.
    sa.Column("explained", sa.JSON(none_as_null=True)),
    # Why this version of the controller cannot go on with it; null where it can.
    sa.Column("parked", sa.Text),
    # As in its spec, to find it by: empty without one, null where the version before accepted it.
    sa.Column("kind", sa.String(63)),
    # What is known of the reason and of the end's, for programs.
    sa.Column("details", sa.JSON(none_as_null=True)),
    sa.Column("end_details", sa.JSON(none_as_null=True)),
    # The value of its PriorityClass; null where that is not known, or it has none.
    sa.Column("priority_value", sa.Integer),
    # With which batch it came, and which of its items it is.
    sa.Column("batch", sa.String(40)),
    sa.Column("batch_index", sa.Integer),
    # Of a tool's run, which is kept as a job is and is none: whose it is, and what it looks at.
    sa.Column("tool", sa.JSON(none_as_null=True)),
    # How many tools the job has.
    sa.Column("tools", sa.Integer, nullable=False, server_default="0"),
    sa.Index("ix_jobs_queue", "queue", "state", "created_at"),
    # Each filter of a list in each of its two orders: see ``job_lists``.
    sa.Index("ix_jobs_state", "state", "id"),
    sa.Index("ix_jobs_owner", "owner_user", "id"),
    sa.Index("ix_jobs_project", "owner_project", "id"),
    sa.Index("ix_jobs_kind", "kind", "id"),
    sa.Index("ix_jobs_newest", "created_at", "id"),
    sa.Index("ix_jobs_state_newest", "state", "created_at", "id"),
    sa.Index("ix_jobs_owner_newest", "owner_user", "created_at", "id"),
    sa.Index("ix_jobs_owner_state_newest", "owner_user", "state", "created_at", "id"),
    sa.Index("ix_jobs_project_newest", "owner_project", "created_at", "id"),
    sa.Index("ix_jobs_project_state_newest", "owner_project", "state", "created_at", "id"),
    sa.Index("ix_jobs_kind_newest", "kind", "created_at", "id"),
    sa.Index("ix_jobs_revision", "revision"),
    # Those that are not over, and those that have been for long.
    sa.Index("ix_jobs_finished_at", "finished_at"),
    # With the state, so that a batch's jobs are counted from it alone.
    sa.Index(
        "ix_jobs_batch",
        "batch",
        "id",
        "state",
        sqlite_where=sa.text(IS_IN_A_BATCH),
        postgresql_where=sa.text(IS_IN_A_BATCH),
    ),
)

# Jobs that were asked for together, of one template.
batches: Final = sa.Table(
    "batches",
    metadata,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("owner_user", sa.String(255), nullable=False),
    sa.Column("owner_project", sa.String(255)),
    sa.Column("mode", sa.String(16), nullable=False),
    # Tells its body from another one, and nothing about it: there may be secrets in it.
    sa.Column("fingerprint", sa.LargeBinary, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    # How many items there are, and how many of these are jobs.
    sa.Column("items", sa.Integer, nullable=False),
    sa.Column("jobs", sa.Integer, nullable=False),
    sa.Index("ix_batches_newest", "created_at", "id"),
    sa.Index("ix_batches_owner_newest", "owner_user", "created_at", "id"),
    sa.Index("ix_batches_project_newest", "owner_project", "created_at", "id"),
)

batch_items: Final = sa.Table(
    "batch_items",
    metadata,
    sa.Column("batch_id", sa.ForeignKey("batches.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("index", sa.Integer, primary_key=True, autoincrement=False),
    # No key into `jobs`: the item outlives its job's record. None where it names no job.
    sa.Column("job_id", sa.String(40)),
    sa.Column("result", sa.String(16), nullable=False),
    sa.Column("parameters", sa.JSON, nullable=False),
    sa.Column("problems", sa.JSON(none_as_null=True)),
    # The job's last state, once its record is forgotten.
    sa.Column("ended_as", sa.String(16)),
    sa.Index(
        "ix_batch_items_ended_as",
        "batch_id",
        "ended_as",
        sqlite_where=sa.text(IS_FORGOTTEN),
        postgresql_where=sa.text(IS_FORGOTTEN),
    ),
)

job_labels: Final = sa.Table(
    "job_labels",
    metadata,
    sa.Column("job_id", sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("name", sa.String(63), primary_key=True),
    sa.Column("value", sa.String(63), nullable=False),
    sa.Index("ix_job_labels_name", "name", "value", "job_id"),
)

# Time that was added to a job's allocation; `key` is the caller's, so that asking again adds none.
extensions: Final = sa.Table(
    "extensions",
    metadata,
    sa.Column("job_id", sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("key", sa.String(64), primary_key=True),
    sa.Column("seconds", sa.Double, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
)

# What is attached to a job, at which rank. Each run of it is a row of `jobs`, of which the last one
# is named here; no key to it, since it may be forgotten before the job is.
tools: Final = sa.Table(
    "tools",
    metadata,
    sa.Column("job_id", sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("name", sa.String(63), primary_key=True),
    sa.Column("rank", sa.Integer, primary_key=True, autoincrement=False),
    # What is run, as a job without an identifier, as it was declared when it was asked for.
    sa.Column("spec", sa.JSON, nullable=False),
    # What else shapes its pod.
    sa.Column("shape", sa.JSON, nullable=False),
    # What it is charged by and takes, as when it was asked for.
    sa.Column("charged", sa.JSON, nullable=False),
    # Where the job has files of its pod's own, which the tool does not see.
    sa.Column("unshared", sa.JSON, nullable=False),
    sa.Column("asked_at", sa.Double, nullable=False),
    sa.Column("run", sa.String(40)),
)

# Jobs whose record is gone and whose VolcanoJob may be removed.
tombstones: Final = sa.Table(
    "tombstones",
    metadata,
    sa.Column("job_id", sa.String(40), primary_key=True),
    sa.Column("uid", sa.String(64), primary_key=True),
    sa.Column("at", sa.Double, nullable=False),
    sa.Index("ix_tombstones_at", "at"),
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


# Which job names which other as its peer. Its rows follow from the jobs' specs.
connections: Final = sa.Table(
    "connections",
    metadata,
    sa.Column("job_id", sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("peer_id", sa.String(40), primary_key=True),
    # The ports that it asked for; none for those that the peer declares.
    sa.Column("ports", sa.JSON, nullable=False),
    sa.Index("ix_connections_peer_id", "peer_id"),
)

# Which job waits for which other to end, and how that ended, once it has. No key to the other: what
# is known of its end outlives its record.
predecessors: Final = sa.Table(
    "predecessors",
    metadata,
    sa.Column("job_id", sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("predecessor_id", sa.String(40), primary_key=True),
    sa.Column("state", sa.String(16)),
    sa.Column("reason", sa.String(64)),
    sa.Index("ix_predecessors_predecessor_id", "predecessor_id"),
)

# Where jobs' inputs are mounted within their output folders (`place`), which of these mount points
# were not there before (`made`), and the VolcanoJob that removes them once no job has the folder.
mount_points: Final = sa.Table(
    "mount_points",
    metadata,
    sa.Column("job_id", sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("place", sa.String(32), nullable=False),
    sa.Column("names", sa.JSON, nullable=False),
    sa.Column("made", sa.JSON, nullable=False),
    sa.Column("cleaner", sa.JSON, nullable=False),
    sa.Column("over_at", sa.Double),
    sa.Column("cleaning_at", sa.Double),
    sa.Index("ix_mount_points_over_at", "over_at"),
    sa.Index("ix_mount_points_place", "place"),
)

# Public names: whose each is, which job has it now, and since when none has.
links: Final = sa.Table(
    "links",
    metadata,
    sa.Column("name", sa.String(63), primary_key=True),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("job_id", sa.String(40)),
    sa.Column("released_at", sa.Double),
    sa.Index("ix_links_job_id", "job_id"),
)

# Folders of storage claims that owners' names lead to: whose each is, as JSON. Kept for good, as
# the files are.
places: Final = sa.Table(
    "places",
    metadata,
    sa.Column("namespace", sa.String(63), primary_key=True),
    sa.Column("claim", sa.String(253), primary_key=True),
    sa.Column("folder", sa.Text, primary_key=True),
    sa.Column("holder", sa.Text, nullable=False),
)
