"""Pages of rows, at a cost that does not depend on the number of rows.

A page is read from an index that begins with one of the filters and continues in the page's order.
Candidates are read in batches, and the other filters are checked by their keys. After
:data:`MOST_CANDIDATES` candidates the page ends, full or not, and the next page continues there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, Self

import sqlalchemy as sa

MOST_CANDIDATES: Final = 10_000
"""The most candidates that are read for one page."""
AT_ONCE: Final = 1000

Condition = sa.ColumnElement[bool]
Keys = sa.Select[tuple[float, str]]


@dataclass(frozen=True, slots=True)
class Key:
    """The position of a row in the order ``newest``: after all newer rows."""

    created_at: float
    id: str

    def __str__(self) -> str:
        return f"{self.created_at!r}_{self.id}"

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the key that ``str`` has written.

        Raises:
            ValueError: If *text* is not a key.
        """
        at, mark, row_id = text.partition("_")
        created_at = float(at)
        if not (mark and abs(created_at) < float("inf")):
            raise ValueError("not a position of a list")
        return cls(created_at, row_id)


Candidates = Callable[[Key | None, int], Awaitable[Sequence[Key]]]
"""Returns the first keys after a position, in order, as many as given."""
Fits = Callable[[Collection[str]], Awaitable[Collection[str]]]
"""Returns those of the given ids that match the filters."""


async def scan(
    candidates: Candidates, fits: Fits | None, *, after: Key | None, limit: int
) -> tuple[list[Key], Key | None]:
    """Return the first *limit* matching keys after *after*, and where the next page continues.

    Fewer at the most candidates; None: it was the last page.
    """
    found: list[Key] = []
    looked = 0
    while looked < MOST_CANDIDATES:
        # One more than requested shows whether there is another page.
        size = limit + 1 if fits is None or not looked else AT_ONCE
        some = await candidates(after, size)
        fitting = {key.id for key in some} if fits is None else await fits([k.id for k in some])
        for key in some:
            if key.id not in fitting:
                continue
            if len(found) == limit:
                return found, found[-1]
            found.append(key)
        if len(some) < size:
            return found, None
        looked, after = looked + len(some), some[-1]
    return found, after


def first_keys(
    keys: Keys,
    ranges: Sequence[Sequence[Condition]],
    order: tuple[sa.ColumnElement[float], sa.ColumnElement[str]],
    place: Key | None,
    count: int,
) -> Keys:
    """Return the first *count* keys of these index ranges after *place*, newest first."""
    at, row_id = order
    after: tuple[Condition, ...] = ()
    if place is not None:
        # Redundant, but every database can use it as an index range.
        after = (at <= place.created_at, sa.tuple_(at, row_id) < (place.created_at, place.id))
    parts = [
        keys.where(*one, *after).order_by(at.desc(), row_id.desc()).limit(count) for one in ranges
    ]
    return merged_keys(parts, count, newest=True)


def merged_keys(parts: Sequence[Keys], count: int, *, newest: bool) -> Keys:
    """Return the first *count* keys of *parts*, each of which returns its own first ones."""
    if len(parts) == 1:
        return parts[0]
    each = sa.union_all(*(sa.select(part.subquery()) for part in parts)).subquery()
    order = (each.c.created_at.desc(), each.c.id.desc()) if newest else (each.c.id,)
    return sa.select(each.c.created_at, each.c.id).order_by(*order).limit(count)
