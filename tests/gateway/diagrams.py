"""Draws state tables as the docs do."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TypeVar

S = TypeVar("S", bound=IntEnum)
E = TypeVar("E", bound=IntEnum)


def draw(table: Mapping[tuple[S, E], S], *, first: S, last: S) -> str:
    """Return *table* as a Mermaid diagram."""
    lines = [
        f"    {state.name} --> {after.name}: {event.name}"
        for (state, event), after in table.items()
    ]
    return "\n".join(
        ["stateDiagram-v2", f"    [*] --> {first.name}", *lines, f"    {last.name} --> [*]"]
    )
