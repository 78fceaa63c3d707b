"""Which heads of the bus a gateway believes: docs/proxy-events.md, "Following".

A gateway that has a table knows of each head whether it is older or newer. A fresh one knows
nothing: what an old backup holds would look to it as good as any other table.
"""

from __future__ import annotations

from shared.errors import SnapshotRefused
from shared.events import Head

ANOTHER_SERVER = (
    "the route table was begun on another Redis process, and no controller has rebuilt it since"
)


def check_fresh(head: Head) -> None:
    """Return only if a gateway that has no table yet may take the one of *head*.

    A Redis that was restarted from a file, or failed over, may have forgotten what was withdrawn,
    and marks of used tokens. The leader finds out within a second and rebuilds; while no leader
    can reach it, nobody has said that what it holds is still right.

    Raises:
        SnapshotRefused: If another process answers than the one on which the epoch began.
    """
    if head.moved:
        raise SnapshotRefused(ANOTHER_SERVER)
