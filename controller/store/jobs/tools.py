"""Queries on tools that are attached to jobs, and on the last run of each."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Transaction, insert_if_absent
from controller.store.jobs.job_rows import JobRecord, batched, find_jobs

_table: Final = tables.tools
ToolKey = tuple[str, str, int]
"""A job, the name of a tool, and the rank that the tool is attached to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachedTool:
    """A tool that is attached to a rank of a job.

    - ``spec``: what runs, in the form of a job without an id.
    - ``shape``: the other inputs of its pod. ``charged``: what a run is charged by.
    - ``unshared``: folders that only the job's pod has.
    - ``run``: the id of the last run. No other run may continue.
    """

    job_id: str
    name: str
    rank: int
    spec: Mapping[str, Any]
    shape: Mapping[str, Any]
    charged: Mapping[str, Any]
    unshared: Sequence[str]
    asked_at: float
    run: str | None = None

    @property
    def place(self) -> ToolKey:
        """The key of the tool."""
        return self.job_id, self.name, self.rank


def _tool(row: sa.Row[Any]) -> AttachedTool:
    return AttachedTool(**row._mapping)


async def attach_tools(transaction: Transaction, tools: Collection[AttachedTool]) -> None:
    """Attach *tools*, at least one, to jobs that this transaction holds or has added.

    Tools that are attached already stay as they are.
    """
    rows = [{name: getattr(one, name) for name in AttachedTool.__slots__} for one in tools]
    await insert_if_absent(transaction, _table, rows)


async def tools_of(transaction: Transaction, job_id: str) -> list[AttachedTool]:
    """Return the tools of the job in the order of their attachment."""
    query = sa.select(_table).where(_table.c.job_id == job_id)
    rows = await transaction.execute(
        query.order_by(_table.c.asked_at, _table.c.name, _table.c.rank)
    )
    return [_tool(row) for row in rows]


async def find_tool(transaction: Transaction, place: ToolKey) -> AttachedTool | None:
    """Return the tool if it is attached."""
    row = (await transaction.execute(sa.select(_table).where(_is_at(place)))).first()
    return None if row is None else _tool(row)


async def runs_of(
    transaction: Transaction, tools: Collection[AttachedTool]
) -> dict[str, JobRecord]:
    """Return the last runs of *tools*, by their ids."""
    runs = {one.run for one in tools if one.run is not None}
    return await find_jobs(transaction, runs) if runs else {}


async def tools_at(
    transaction: Transaction, places: Collection[ToolKey]
) -> dict[ToolKey, AttachedTool]:
    """Return the tools that are attached, by their keys."""
    found = dict[ToolKey, AttachedTool]()
    for some in batched({job_id for job_id, _, _ in places}):
        rows = await transaction.execute(sa.select(_table).where(_table.c.job_id.in_(some)))
        found |= {one.place: one for one in map(_tool, rows)}
    return {place: found[place] for place in places if place in found}


async def set_run(transaction: Transaction, tool: AttachedTool, run: str) -> None:
    """Store the last run of the tool."""
    values = sa.update(_table).where(_is_at(tool.place)).values(run=run)
    await transaction.execute(values)


async def ask_again(transaction: Transaction, tool: AttachedTool) -> None:
    """Replace the tool's definition by that of its new attachment."""
    values = {
        name: getattr(tool, name) for name in ("spec", "shape", "charged", "unshared", "asked_at")
    }
    await transaction.execute(sa.update(_table).where(_is_at(tool.place)).values(**values))


async def detach_tool(transaction: Transaction, tool: AttachedTool) -> None:
    """Detach the tool; the caller ends its run."""
    await transaction.execute(sa.delete(_table).where(_is_at(tool.place)))


def _is_at(place: ToolKey) -> sa.ColumnElement[bool]:
    job_id, name, rank = place
    return sa.and_(_table.c.job_id == job_id, _table.c.name == name, _table.c.rank == rank)
