"""Queries on folders that only one owner may use, and on folders that jobs hold.

A place is a folder of a storage claim that an owner's name leads to. Two names may lead to the same
place. The place stays with the first owner for good, since the files stay too.

Removing a directory that is a mount point unmounts it, in every pod that has it and on every node
(Linux, ``vfs_rmdir`` and ``d_invalidate``). So a job holds its output folder from before its
submission until its end, and no job can take a folder that is being cleaned.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Transaction, insert_if_absent
from controller.store.instance import raise_revision

_places = tables.places

Holder = tuple[tuple[str, str], ...]
"""The names that lead to a place: sorted pairs of ``user`` or ``project`` and the name."""


@dataclass(frozen=True, slots=True)
class HeldPlace:
    """A folder (``""`` for the whole claim) of a claim in a namespace, and its holder."""

    namespace: str
    claim: str
    folder: str
    holder: Holder

    def excludes(self, other: HeldPlace) -> bool:
        """Return whether this place and *other* cannot both be held.

        A folder within another holder's folder conflicts, unless the names of one holder are
        among the other's: a user's projects may lie within the user's own files.
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
    """Return the places of others that conflict with each of *places*.

    If one of *places* is new, nobody else can take a place until the transaction ends.
    """
    if not await _are_known(transaction, places):
        # Nested places are two rows, so that no key can exclude them.
        await raise_revision(transaction)
    return {one: await _against(transaction, one) for one in places}


async def hold_places(transaction: Transaction, places: Sequence[HeldPlace]) -> None:
    """Give *places*, which have no conflicts, to their holders. A repeated call changes nothing."""
    if places:
        await insert_if_absent(transaction, _places, [_row(one) for one in dict.fromkeys(places)])


async def any_places(transaction: Transaction) -> bool:
    """Return whether any place is held."""
    return (await transaction.execute(sa.select(_places.c.claim).limit(1))).first() is not None


async def _are_known(transaction: Transaction, places: Sequence[HeldPlace]) -> bool:
    for one in places:
        query = sa.select(_places.c.holder).where(*_at(one), _places.c.folder == one.folder)
        if (await transaction.execute(query)).first() is None:
            return False
    return True


async def _against(transaction: Transaction, place: HeldPlace) -> list[HeldPlace]:
    query = sa.select(_places.c.folder, _places.c.holder).where(
        *_at(place),
        sa.or_(_places.c.folder.in_(list(_around(place.folder))), _is_below(place.folder)),
        _places.c.holder != _encode(place.holder),
    )
    found = [
        HeldPlace(place.namespace, place.claim, folder, _decode(holder))
        for folder, holder in await transaction.execute(query)
    ]
    return [one for one in found if one.excludes(place)]


def _is_below(folder: str) -> sa.ColumnElement[bool]:
    if not folder:
        return _places.c.folder != ""
    # Not LIKE: SQLite's ignores case, and folder names are case-sensitive.
    prefix = f"{folder}/"
    return sa.func.substr(_places.c.folder, 1, len(prefix)) == prefix


def _around(folder: str) -> Iterator[str]:
    """Yield *folder* and the folders that contain it."""
    yield ""
    parts = folder.split("/") if folder else []
    for count in range(1, len(parts) + 1):
        yield "/".join(parts[:count])


def _at(place: HeldPlace) -> tuple[sa.ColumnElement[bool], ...]:
    return _places.c.namespace == place.namespace, _places.c.claim == place.claim


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


_mount_points: Final = tables.mount_points
_others: Final = _mount_points.alias("others")
MOST_NAMES: Final = 1000
"""The most that are removed at once, since they are part of an object and of a command line."""
_INPUTS: Final = ("file", "directory", "artefacts")
"""The types of parameters that are mounted."""
_IS_HELD: Final = (
    sa.select(_others.c.job_id)
    .where(_others.c.place == _mount_points.c.place, _others.c.over_at.is_(None))
    .exists()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MountPoints:
    """The mount points of a job's inputs within its output folder.

    ``place`` identifies that folder across all jobs of an instance. ``names`` are in the order of
    the numbers that the job's pods report. ``cleaner`` is the VolcanoJob that removes them.
    """

    place: str
    names: tuple[str, ...]
    cleaner: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaning:
    """A folder that is being cleaned since ``began_at``, and the mount points to remove."""

    place: str
    names: tuple[str, ...]
    cleaner: dict[str, Any]
    began_at: float


async def hold_mount_points(transaction: Transaction, job_id: str, wanted: MountPoints) -> bool:
    """Hold the job's output folder; return False while the folder is being cleaned."""
    await raise_revision(transaction)  # serialises callers: two could find the folder free
    cleaned = sa.select(_mount_points.c.job_id).where(
        _mount_points.c.place == wanted.place, _mount_points.c.cleaning_at.is_not(None)
    )
    if (await transaction.execute(cleaned.limit(1))).first() is not None:
        return False
    row = {
        "job_id": job_id,
        "place": wanted.place,
        "names": list(wanted.names),
        "cleaner": wanted.cleaner,
        "made": [],
    }
    await insert_if_absent(transaction, _mount_points, [row])
    return True


async def record_missing_mount_points(
    transaction: Transaction, job_id: str, numbers: Collection[int]
) -> None:
    """Store which of the job's mount points did not exist before its pods."""
    of_it = _mount_points.c.job_id == job_id
    row = (
        await transaction.execute(
            sa.select(_mount_points.c.names, _mount_points.c.made).where(of_it)
        )
    ).first()
    if row is None:
        return
    missing = {row.names[number] for number in numbers if number < len(row.names)}
    if made := sorted(missing - set(row.made)):
        values = {"made": [*row.made, *made]}
        await transaction.execute(sa.update(_mount_points).where(of_it).values(values))


async def release_mount_points(transaction: Transaction, job_id: str, *, at: float) -> None:
    """Release the output folder of an ended job. Without new mount points nothing is cleaned."""
    of_it = _mount_points.c.job_id == job_id
    made = (await transaction.execute(sa.select(_mount_points.c.made).where(of_it))).first()
    if made is None:
        return
    change = sa.update(_mount_points).values(over_at=at) if made.made else sa.delete(_mount_points)
    await transaction.execute(change.where(of_it))


async def places_to_clean(transaction: Transaction, *, limit: int) -> Sequence[str]:
    """Return the folders that no job holds any more, those released first."""
    query = (
        sa.select(_mount_points.c.place)
        .where(_mount_points.c.over_at.is_not(None), ~_IS_HELD)
        .group_by(_mount_points.c.place)
        .order_by(sa.func.min(_mount_points.c.over_at))
        .limit(limit)
    )
    return (await transaction.scalars(query)).all()


async def last_jobs_of(transaction: Transaction, place: str) -> Sequence[str]:
    """Return the jobs that used the folder and created mount points in it."""
    query = sa.select(_mount_points.c.job_id).where(_mount_points.c.place == place)
    return (await transaction.scalars(query)).all()


async def outputs_not_held(transaction: Transaction, *, namespace: str, user: str) -> set[str]:
    """Return the outputs of the user's jobs in the cluster that have inputs but hold no folder.

    Such jobs were submitted by a version or setting that held none, or were adopted from the
    cluster by a store that did not know them.
    """
    jobs = tables.jobs
    query = sa.select(jobs.c.spec).where(
        jobs.c.owner_user == user,
        jobs.c.namespace == namespace,
        jobs.c.finished_at.is_(None),
        jobs.c.uid.is_not(None),
        jobs.c.id.not_in(sa.select(_mount_points.c.job_id)),
    )
    specs = (await transaction.scalars(query)).all()
    # A newer version may store any JSON.
    outputs = [spec.get("output") for spec in specs if isinstance(spec, dict) and _has_inputs(spec)]
    return {output for output in outputs if isinstance(output, str)}


def _has_inputs(spec: dict[str, Any]) -> bool:
    parameters = spec.get("parameters")
    given = parameters.values() if isinstance(parameters, dict) else ()
    return any(isinstance(one, dict) and one.get("type") in _INPUTS for one in given)


async def begin_cleaning(transaction: Transaction, place: str, *, now: float) -> Cleaning | None:
    """Keep jobs from the folder until :func:`end_cleaning`; None if a job holds it again.

    A repeated call continues the cleaning that was begun.
    """
    await raise_revision(transaction)
    query = (
        sa.select(_mount_points)
        .where(_mount_points.c.place == place)
        .order_by(_mount_points.c.over_at)
    )
    rows = (await transaction.execute(query)).all()
    if not rows or any(row.over_at is None for row in rows):
        return None
    began_at = min((row.cleaning_at for row in rows if row.cleaning_at is not None), default=now)
    change = (
        sa.update(_mount_points).where(_mount_points.c.place == place).values(cleaning_at=began_at)
    )
    await transaction.execute(change)
    names = dict.fromkeys(name for row in rows for name in row.made)
    return Cleaning(
        place=place, names=tuple(names)[:MOST_NAMES], cleaner=rows[-1].cleaner, began_at=began_at
    )


async def end_cleaning(transaction: Transaction, place: str) -> None:
    """Forget the folder's mount points; jobs may hold it again."""
    await transaction.execute(sa.delete(_mount_points).where(_mount_points.c.place == place))
