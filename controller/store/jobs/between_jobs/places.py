"""Queries on places of owners' files, whose each is, and on mount points within output folders.

A place is a folder of a storage claim that an owner's name leads to. Two names may lead to one
place; the place stays with the first one for good, since the files stay too.

To remove the folder that something is mounted on unmounts it, in every pod that has it and on every
node (Linux, ``vfs_rmdir`` and ``d_invalidate``). So each job holds its output folder from before it
is submitted until it is over, and while a folder is being cleaned no job takes hold of it.
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
        await insert_if_absent(transaction, _places, [_row(one) for one in dict.fromkeys(places)])


async def any_places(transaction: Transaction) -> bool:
    """Say whether any place is held."""
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
    # Not LIKE: SQLite's takes no notice of case, and a folder's does matter.
    prefix = f"{folder}/"
    return sa.func.substr(_places.c.folder, 1, len(prefix)) == prefix


def _around(folder: str) -> Iterator[str]:
    """Give *folder* and those that it lies in."""
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
"""That are removed at once: they stand in an object, and in a command line. The rest stays."""
_INPUTS: Final = ("file", "directory", "artefacts")
"""Types of the parameters that are mounted."""
_IS_HELD: Final = (
    sa.select(_others.c.job_id)
    .where(_others.c.place == _mount_points.c.place, _others.c.over_at.is_(None))
    .exists()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MountPoints:
    """Where a job's inputs are mounted within its output folder.

    ``place`` names that folder, the same for all jobs of an instance. ``names`` are in the order in
    which the job's pods number them; ``cleaner`` is the VolcanoJob that removes them.
    """

    place: str
    names: tuple[str, ...]
    cleaner: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaning:
    """A folder that is being cleaned since ``began_at``, and what is to be removed."""

    place: str
    names: tuple[str, ...]
    cleaner: dict[str, Any]
    began_at: float


async def hold_mount_points(transaction: Transaction, job_id: str, wanted: MountPoints) -> bool:
    """Take hold of the job's output folder; return False while that is being cleaned."""
    await raise_revision(transaction)  # one at a time, or both could find the folder free
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


async def note_missing(transaction: Transaction, job_id: str, numbers: Collection[int]) -> None:
    """Note which of the job's mount points were not there before its pods."""
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


async def let_mount_points_go(transaction: Transaction, job_id: str, *, at: float) -> None:
    """Let go of the output folder of a job that is over; made none, there is nothing to clean."""
    of_it = _mount_points.c.job_id == job_id
    made = (await transaction.execute(sa.select(_mount_points.c.made).where(of_it))).first()
    if made is None:
        return
    change = sa.update(_mount_points).values(over_at=at) if made.made else sa.delete(_mount_points)
    await transaction.execute(change.where(of_it))


async def places_to_clean(transaction: Transaction, *, limit: int) -> Sequence[str]:
    """Return the folders that no job has any more, those that were left first."""
    query = (
        sa.select(_mount_points.c.place)
        .where(_mount_points.c.over_at.is_not(None), ~_IS_HELD)
        .group_by(_mount_points.c.place)
        .order_by(sa.func.min(_mount_points.c.over_at))
        .limit(limit)
    )
    return (await transaction.scalars(query)).all()


async def last_jobs_of(transaction: Transaction, place: str) -> Sequence[str]:
    """Return the jobs that had the folder and made something there."""
    query = sa.select(_mount_points.c.job_id).where(_mount_points.c.place == place)
    return (await transaction.scalars(query)).all()


async def outputs_not_held(transaction: Transaction, *, namespace: str, user: str) -> set[str]:
    """Return the outputs of the user's jobs in the cluster that have inputs, and hold no folder.

    They were submitted before folders were held, or while nothing was to be removed; or a store
    that knew nothing of them has found them in the cluster.
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
    # What a newer version has accepted may be kept as anything.
    outputs = [spec.get("output") for spec in specs if isinstance(spec, dict) and _has_inputs(spec)]
    return {output for output in outputs if isinstance(output, str)}


def _has_inputs(spec: dict[str, Any]) -> bool:
    parameters = spec.get("parameters")
    given = parameters.values() if isinstance(parameters, dict) else ()
    return any(isinstance(one, dict) and one.get("type") in _INPUTS for one in given)


async def begin_cleaning(transaction: Transaction, place: str, *, now: float) -> Cleaning | None:
    """Keep jobs from the folder until :func:`end_cleaning`; None where one has it again.

    Whoever begins anew goes on with what was begun before.
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
    """Forget what was to be removed from the folder, which jobs may have again."""
    await transaction.execute(sa.delete(_mount_points).where(_mount_points.c.place == place))
