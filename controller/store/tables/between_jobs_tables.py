"""What jobs have of each other, and what only one of them can have."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from controller.store.tables.base import metadata

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
