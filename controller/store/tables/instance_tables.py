"""What this deployment is: who leads, what was told to Redis, whether jobs are taken."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from controller.store.tables.base import metadata

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
