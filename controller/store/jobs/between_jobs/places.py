"""Queries on places of owners' files: whose each is.

A place is a folder of a storage claim that an owner's name leads to. Two names may lead to one
place; the place stays with the first one for good, since the files stay too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Transaction, insert_if_absent
from controller.store.instance import raise_revision

_table = tables.places

Holder = tuple[tuple[str, str], ...]
"""The names that lead to a place: pairs of ``user`` or ``project`` and the name, in order."""


@dataclass(frozen=True, slots=True)
class HeldPlace:
    """A folder (``""`` for all) of a claim in a namespace, and whose it is."""

    namespace: str
    claim: str
    folder: str
    holder: Holder

    def excludes(self, other: HeldPlace) -> bool:
        """Say whether this and *other* cannot both be held.

        A folder within another one is somebody else's too, unless one holder's names are among
        the other's: a user's projects may lie within the user's own files.
        """
        if (self.namespace, self.claim) != (other.namespace, other.claim):
            return False
        mine, theirs = set(self.holder), set(other.holder)
        return not (mine <= theirs or theirs <= mine) and (
            other.folder in _around(self.folder) or self.folder in _around(other.folder)
        )


async def others_places(
    transaction: Transaction, places: Sequence[HeldPlace]
) -> dict[HeldPlace, list[HeldPlace]]:
    """Return what others hold that stands against each of *places*.

    Where one of them is new, nobody else takes a place from here to the end of the transaction.
    """
    if not await _are_known(transaction, places):
        # Two places that lie within each other are two rows, which no key keeps apart.
        await raise_revision(transaction)
    return {one: await _against(transaction, one) for one in places}


async def hold_places(transaction: Transaction, places: Sequence[HeldPlace]) -> None:
    """Give *places*, against which nothing stands, to their holders; again changes nothing."""
    if places:
        await insert_if_absent(transaction, _table, [_row(one) for one in dict.fromkeys(places)])


async def any_places(transaction: Transaction) -> bool:
    """Say whether any place is held."""
    return (await transaction.execute(sa.select(_table.c.claim).limit(1))).first() is not None


async def _are_known(transaction: Transaction, places: Sequence[HeldPlace]) -> bool:
    for one in places:
        query = sa.select(_table.c.holder).where(*_at(one), _table.c.folder == one.folder)
        if (await transaction.execute(query)).first() is None:
            return False
    return True


async def _against(transaction: Transaction, place: HeldPlace) -> list[HeldPlace]:
    query = sa.select(_table.c.folder, _table.c.holder).where(
        *_at(place),
        sa.or_(_table.c.folder.in_(list(_around(place.folder))), _is_below(place.folder)),
        _table.c.holder != _encode(place.holder),
    )
    found = [
        HeldPlace(place.namespace, place.claim, folder, _decode(holder))
        for folder, holder in await transaction.execute(query)
    ]
    return [one for one in found if one.excludes(place)]


def _is_below(folder: str) -> sa.ColumnElement[bool]:
    if not folder:
        return _table.c.folder != ""
    # Not LIKE: SQLite's takes no notice of case, and a folder's does matter.
    prefix = f"{folder}/"
    return sa.func.substr(_table.c.folder, 1, len(prefix)) == prefix


def _around(folder: str) -> Iterator[str]:
    """Give *folder* and those that it lies in."""
    yield ""
    parts = folder.split("/") if folder else []
    for count in range(1, len(parts) + 1):
        yield "/".join(parts[:count])


def _at(place: HeldPlace) -> tuple[sa.ColumnElement[bool], ...]:
    return _table.c.namespace == place.namespace, _table.c.claim == place.claim


def _row(place: HeldPlace) -> dict[str, str]:
    return {
        "namespace": place.namespace,
        "claim": place.claim,
        "folder": place.folder,
        "holder": _encode(place.holder),
    }


def _encode(holder: Holder) -> str:
    return json.dumps(sorted(holder), separators=(",", ":"))


def _decode(text: str) -> Holder:
    return tuple((str(kind), str(name)) for kind, name in json.loads(text))
