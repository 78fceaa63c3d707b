"""Tables of jobs: requests, progress, observations, and relations between jobs."""

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
    # The accepted job without secret values, which stay sealed until the job ends.
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
    # The Volcano queue; known once the job is submitted.
    sa.Column("queue", sa.String(63)),
    # The time allocation from the first start, including extensions.
    sa.Column("allocated_seconds", sa.Double),
    # How a requested end is reported: by its owner, its time, or its funds.
    sa.Column("end_state", sa.String(16)),
    sa.Column("end_reason", sa.String(64)),
    sa.Column("end_message", sa.Text),
    # Why another attempt's VolcanoJob replaces the current one, while that is under way.
    sa.Column("renewal", sa.String(16)),
    # A command of ours to stop the VolcanoJob is or was on its way.
    sa.Column("stopping", sa.Boolean, nullable=False, server_default=sa.false()),
    # What the job is charged by, as of its acceptance.
    sa.Column("product", sa.String(63)),
    sa.Column("price", sa.JSON(none_as_null=True)),
    # The total of all replicas: CPU cores, bytes of memory, GPUs.
    sa.Column("cpu", sa.Double, nullable=False, server_default="0"),
    sa.Column("memory", sa.Double, nullable=False, server_default="0"),
    sa.Column("gpu", sa.Double, nullable=False, server_default="0"),
    sa.Column("evictions", sa.Integer, nullable=False, server_default="0"),
    # Retries that earlier attempts have used, of those that the job's own policies allow.
    sa.Column("retries_used", sa.Integer, nullable=False, server_default="0"),
    # The VolcanoJob whose deletion the API server has accepted: its pods may be deleted too.
    sa.Column("removed_uid", sa.String(64)),
    # The action on the VolcanoJob that a delayed policy had us command, and the reason.
    sa.Column("ordered", sa.String(16)),
    sa.Column("ordered_why", sa.Text),
    # What the cluster's annotations hold for a store that does not know the job.
    sa.Column("kept", sa.Text),
    # The last known reason why the VolcanoJob waits.
    sa.Column("explained", sa.JSON(none_as_null=True)),
    # Why this version of the controller cannot process the job; null if it can.
    sa.Column("parked", sa.Text),
    # The spec's kind, to search by: empty without one, null if the previous version accepted it.
    sa.Column("kind", sa.String(63)),
    # Machine-readable details of the reason, and of the end's reason.
    sa.Column("details", sa.JSON(none_as_null=True)),
    sa.Column("end_details", sa.JSON(none_as_null=True)),
    # The value of its PriorityClass; null if it has none, or if the value is not known.
    sa.Column("priority_value", sa.Integer),
    # Its batch, and its item there.
    sa.Column("batch", sa.String(40)),
    sa.Column("batch_index", sa.Integer),
    # For a tool's run, which is stored like a job: its job, tool and rank.
    sa.Column("tool", sa.JSON(none_as_null=True)),
    # The number of the job's tools.
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
    # For live jobs, and for jobs that ended long ago.
    sa.Index("ix_jobs_finished_at", "finished_at"),
    # Includes the state, so that a batch's jobs are counted from the index alone.
    sa.Index(
        "ix_jobs_batch",
        "batch",
        "id",
        "state",
        sqlite_where=sa.text(IS_IN_A_BATCH),
        postgresql_where=sa.text(IS_IN_A_BATCH),
    ),
)

# Jobs that were submitted together, from one template.
batches: Final = sa.Table(
    "batches",
    metadata,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("owner_user", sa.String(255), nullable=False),
    sa.Column("owner_project", sa.String(255)),
    sa.Column("mode", sa.String(16), nullable=False),
    # Identifies the request's body without revealing it: it may contain secrets.
    sa.Column("fingerprint", sa.LargeBinary, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    # The number of items, and the number of those that are jobs.
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
    # Not a foreign key: the item outlives its job's record. Null if it names no job.
    sa.Column("job_id", sa.String(40)),
    sa.Column("result", sa.String(16), nullable=False),
    sa.Column("parameters", sa.JSON, nullable=False),
    sa.Column("problems", sa.JSON(none_as_null=True)),
    # The job's last state, once its record is deleted.
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

# Extensions of a job's time allocation; `key` is the idempotency key.
extensions: Final = sa.Table(
    "extensions",
    metadata,
    sa.Column("job_id", sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("key", sa.String(64), primary_key=True),
    sa.Column("seconds", sa.Double, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
)

# Tools that are attached to jobs. Each run of a tool is a row of `jobs`; `run` names the last one.
# Not a foreign key, since that row may be deleted before the job.
tools: Final = sa.Table(
    "tools",
    metadata,
    sa.Column("job_id", sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("name", sa.String(63), primary_key=True),
    sa.Column("rank", sa.Integer, primary_key=True, autoincrement=False),
    # What runs, as a job without an id, as declared when the tool was attached.
    sa.Column("spec", sa.JSON, nullable=False),
    # The other inputs of its pod.
    sa.Column("shape", sa.JSON, nullable=False),
    # What it is charged by and its resources, as of its attachment.
    sa.Column("charged", sa.JSON, nullable=False),
    # Folders that only the job's pod has, which the tool does not see.
    sa.Column("unshared", sa.JSON, nullable=False),
    sa.Column("asked_at", sa.Double, nullable=False),
    sa.Column("run", sa.String(40)),
)

# Deleted jobs whose VolcanoJob may be removed.
tombstones: Final = sa.Table(
    "tombstones",
    metadata,
    sa.Column("job_id", sa.String(40), primary_key=True),
    sa.Column("uid", sa.String(64), primary_key=True),
    sa.Column("at", sa.Double, nullable=False),
    sa.Index("ix_tombstones_at", "at"),
)


# One row per VolcanoJob of a job.
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
    # Volcano's own count of restarts.
    sa.Column("retries", sa.Integer, nullable=False, server_default="0"),
    # How many of the job's retries it has used; set when the next attempt begins.
    sa.Column("used", sa.Integer),
    # The restarts that took place: Volcano also counts a restart that it then refuses.
    sa.Column("restarts", sa.Integer),
    sa.Column("details", sa.JSON(none_as_null=True)),
)

# Every pod that was observed: where and when a replica ran, and how it ended.
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
    # Volcano's count of restarts at its start: at a higher one, the pod was killed for a restart.
    sa.Column("retry", sa.Integer),
    # The program's memory limit, as a Kubernetes quantity.
    sa.Column("memory_limit", sa.String(32)),
)

# Logs of pods, and the objects of each. Not a foreign key into `jobs`: a log whose job is deleted
# stays until its objects are removed.
pod_logs: Final = sa.Table(
    "pod_logs",
    metadata,
    # Prefix of its objects' names; nothing of the job is part of it.
    sa.Column("key", sa.String(32), primary_key=True),
    sa.Column("job_id", sa.String(40), nullable=False),
    sa.Column("pod_uid", sa.String(64), nullable=False),
    # "open" while it grows, "whole" at its end, "dropped" once its job is deleted.
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("segments", sa.JSON, nullable=False),
    # Why parts of it are missing; empty if it is complete.
    sa.Column("lost", sa.JSON, nullable=False),
    sa.Column("changed_at", sa.Double, nullable=False),
    sa.Index("ix_pod_logs_job_id", "job_id", "pod_uid"),
    sa.Index("ix_pod_logs_state", "state"),
)

# Hooks that have succeeded.
hooks: Final = sa.Table(
    "hooks",
    metadata,
    sa.Column("job_id", sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("attempt", sa.Integer, primary_key=True),
    sa.Column("hook", sa.String(16), primary_key=True),
    sa.Column("plugin", sa.String(63), primary_key=True),
    sa.Column("at", sa.Double, nullable=False),
)

# Hooks that failed, until they succeed or the job is deleted. Not a foreign key into `jobs`: a hook
# can also block while it decides whether a job can be accepted.
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
    # When it is tried again; null if it is not.
    sa.Column("next_at", sa.Double),
    # It blocked a whole process: the plugin is not called for the job any more.
    sa.Column("blocked", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Index("ix_hook_failures_at", "at"),
)

# When a plugin monitors a job next.
due: Final = sa.Table(
    "due",
    metadata,
    sa.Column("job_id", sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("plugin", sa.String(63), primary_key=True),
    sa.Column("at", sa.Double, nullable=False),
    sa.Index("ix_due_at", "at"),
)

# Policies with a timeout whose trigger has occurred, and when each takes effect.
policy_timers: Final = sa.Table(
    "policy_timers",
    metadata,
    sa.Column("job_id", sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    # The event, and the pod or task that it concerns.
    sa.Column("trigger", sa.String(160), primary_key=True),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("due_at", sa.Double, nullable=False),
    sa.Column("action", sa.String(16), nullable=False),
    sa.Column("why", sa.Text, nullable=False),
    # Volcano's count of restarts at that moment: a different count makes the trigger obsolete.
    sa.Column("retries", sa.Integer, nullable=False),
)

# Objects that were created beside a VolcanoJob: the evidence by which they may be removed.
companions: Final = sa.Table(
    "companions",
    metadata,
    sa.Column("job_id", sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("kind", sa.String(63), primary_key=True),
    sa.Column("namespace", sa.String(63), primary_key=True),
    sa.Column("name", sa.String(253), primary_key=True),
    sa.Column("uid", sa.String(64), nullable=False),
    sa.Column("owner_uid", sa.String(64)),
    # The address of a Service.
    sa.Column("address", sa.String(64)),
    # Digest of the connections to other jobs that it was made from; stale if it differs.
    sa.Column("basis", sa.String(64)),
    # It is removed with the job rather than with a VolcanoJob, of which a job may have several.
    sa.Column("lasting", sa.Boolean, nullable=False, server_default=sa.false()),
)


# Peers of jobs. The rows follow from the jobs' specs.
connections: Final = sa.Table(
    "connections",
    metadata,
    sa.Column("job_id", sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("peer_id", sa.String(40), primary_key=True),
    # The requested ports; empty for those that the peer declares.
    sa.Column("ports", sa.JSON, nullable=False),
    sa.Index("ix_connections_peer_id", "peer_id"),
)

# Jobs that a job waits for, and how each ended. Not a foreign key to the predecessor: how it ended
# outlives its record.
predecessors: Final = sa.Table(
    "predecessors",
    metadata,
    sa.Column("job_id", sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("predecessor_id", sa.String(40), primary_key=True),
    sa.Column("state", sa.String(16)),
    sa.Column("reason", sa.String(64)),
    sa.Index("ix_predecessors_predecessor_id", "predecessor_id"),
)

# Mount points of jobs' inputs within their output folders (`place`), those of them that did not
# exist before (`made`), and the VolcanoJob that removes these once no job holds the folder.
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

# Public names: the owner of each, the job that has it, and when it was released.
links: Final = sa.Table(
    "links",
    metadata,
    sa.Column("name", sa.String(63), primary_key=True),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("job_id", sa.String(40)),
    sa.Column("released_at", sa.Double),
    sa.Index("ix_links_job_id", "job_id"),
)

# Folders of storage claims that owners' names lead to, with the holder as JSON. Kept for good, as
# the files are.
places: Final = sa.Table(
    "places",
    metadata,
    sa.Column("namespace", sa.String(63), primary_key=True),
    sa.Column("claim", sa.String(253), primary_key=True),
    sa.Column("folder", sa.Text, primary_key=True),
    sa.Column("holder", sa.Text, nullable=False),
)
