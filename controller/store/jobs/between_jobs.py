"""Queries on relations between jobs, and on folders that only one owner may use.

A job names other jobs as its peers, or waits for their end. How a predecessor ended is stored with
the jobs that wait for it, so that it outlives the predecessor's record.

A place is a folder of a storage claim that an owner's name leads to. Two names may lead to the same
place. The place stays with the first owner for good, since the files stay too.

Removing a directory that is a mount point unmounts it, in every pod that has it and on every node
(Linux, ``vfs_rmdir`` and ``d_invalidate``). So a job holds its output folder from before its
submission until its end, and no job can take a folder that is being cleaned.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Store, Transaction, insert_if_absent
from controller.store.instance import raise_revision
from controller.store.jobs.job_rows import ASKED, FINAL_STATES, IS_LIVE, lock_jobs
from controller.volcano.names import peer_service_name

_table = tables.connections
_jobs = tables.jobs
_CALLERS: Final = (
    sa.select(_table.c.job_id, _jobs.c.namespace, _table.c.ports)
    .join_from(_table, _jobs, _jobs.c.id == _table.c.job_id)
    .where(
        _table.c.peer_id == sa.bindparam("peer_id"),
        _jobs.c.outcome.is_(None),
        _jobs.c.state.not_in(FINAL_STATES),
    )
)
NOBODY: Final = "-"


@dataclass(frozen=True, slots=True, order=True)
class Caller:
    """A job that names another as its peer and has not ended; ``ports`` are those it requests."""

    job_id: str
    namespace: str
    ports: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Peer:
    """A job that another one names; ``address`` is that of its Service, once there is one."""

    job_id: str
    namespace: str
    ended: bool
    address: str | None


async def record_connections(
    transaction: Transaction, job_id: str, peers: Mapping[str, Collection[int]]
) -> None:
    """Store the job's peers, and have them reconciled. A repeated call changes nothing."""
    if not peers:
        return
    rows = [
        {"job_id": job_id, "peer_id": peer, "ports": sorted(ports)} for peer, ports in peers.items()
    ]
    await insert_if_absent(transaction, _table, rows)
    await touch_jobs(transaction, peers)


async def callers_of(transaction: Transaction, job_id: str) -> list[Caller]:
    """Return the jobs that name this one and have not ended, in order."""
    rows = await transaction.execute(_CALLERS, {"peer_id": job_id})
    return sorted(Caller(row.job_id, row.namespace, tuple(row.ports)) for row in rows)


def basis_of(callers: Iterable[Caller]) -> str:
    """Return a digest of *callers*, which differs for any other set."""
    rows = [[one.job_id, one.namespace, list(one.ports)] for one in sorted(callers)]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:32] if rows else NOBODY


async def find_peers(transaction: Transaction, job_ids: Collection[str]) -> dict[str, Peer]:
    """Return the jobs that exist, by id."""
    jobs, companions = tables.jobs, tables.companions
    service = sa.literal(peer_service_name("")) + jobs.c.id
    rows = await transaction.execute(
        sa.select(jobs.c.id, jobs.c.namespace, jobs.c.state, jobs.c.outcome, companions.c.address)
        .select_from(
            jobs.outerjoin(
                companions, (companions.c.job_id == jobs.c.id) & (companions.c.name == service)
            )
        )
        .where(jobs.c.id.in_(job_ids))
    )
    return {
        row.id: Peer(
            job_id=row.id,
            namespace=row.namespace,
            ended=row.outcome is not None or row.state in FINAL_STATES,
            address=row.address,
        )
        for row in rows
    }


async def touch_peers_of(transaction: Transaction, job_id: str) -> None:
    """Have the peers of this job reconciled."""
    peers = await transaction.scalars(sa.select(_table.c.peer_id).where(_table.c.job_id == job_id))
    await touch_jobs(transaction, peers.all())


async def touch_jobs(transaction: Transaction, job_ids: Iterable[str]) -> None:
    """Have the jobs reconciled, whichever process is the leader."""
    ids = sorted(set(job_ids))
    if ids:
        await lock_jobs(transaction, ids)
        revision = await raise_revision(transaction)
        touched = sa.update(tables.jobs).where(tables.jobs.c.id.in_(ids))
        await transaction.execute(touched.values(revision=revision))


_predecessors: Final = tables.predecessors
_PREDECESSORS_OF: Final = (
    sa.select(
        _predecessors.c.predecessor_id,
        sa.func.coalesce(_predecessors.c.state, _jobs.c.state).label("state"),
        sa.func.coalesce(_predecessors.c.reason, _jobs.c.reason).label("reason"),
    )
    .select_from(_predecessors.outerjoin(_jobs, _jobs.c.id == _predecessors.c.predecessor_id))
    .where(_predecessors.c.job_id == sa.bindparam("job"))
    .order_by(_predecessors.c.predecessor_id)
)


@dataclass(frozen=True, slots=True)
class Predecessor:
    """A job that another one waits for; ``state`` is None if nothing is known of it any more."""

    job_id: str
    state: str | None
    reason: str | None

    @property
    def goes_on(self) -> bool:
        """Whether the job has not ended."""
        return self.state is not None and self.state not in FINAL_STATES

    @property
    def ended_well(self) -> bool:
        """Whether the job succeeded by itself, without a request to end it."""
        return self.state == "SUCCESS" and self.reason != ASKED.reason


async def record_predecessors(
    transaction: Transaction, job_id: str, predecessors: Collection[str]
) -> None:
    """Store the jobs that the job waits for; this transaction holds or has added them."""
    rows = [{"job_id": job_id, "predecessor_id": one} for one in predecessors]
    if not rows:
        return
    await insert_if_absent(transaction, _predecessors, rows)
    ended = sa.select(_jobs.c.id, _jobs.c.state, _jobs.c.reason).where(
        _jobs.c.id.in_(predecessors), _jobs.c.state.in_(FINAL_STATES)
    )
    for row in (await transaction.execute(ended)).all():
        await _settle(transaction, row.id, state=row.state, reason=row.reason)


async def predecessors_of(transaction: Transaction, job_id: str) -> tuple[Predecessor, ...]:
    """Return the jobs that the job waits or has waited for, in order."""
    rows = await transaction.execute(_PREDECESSORS_OF, {"job": job_id})
    return tuple(Predecessor(row.predecessor_id, row.state, row.reason) for row in rows)


async def settle_followers(
    transaction: Transaction, job_id: str, *, state: str, reason: str | None
) -> Sequence[str]:
    """Store how the job, which this transaction holds, ended; return the jobs that wait for it."""
    await _settle(transaction, job_id, state=state, reason=reason)
    query = sa.select(_predecessors.c.job_id).join_from(
        _predecessors, _jobs, _jobs.c.id == _predecessors.c.job_id
    )
    return (
        await transaction.scalars(query.where(_predecessors.c.predecessor_id == job_id, IS_LIVE))
    ).all()


async def _settle(transaction: Transaction, job_id: str, *, state: str, reason: str | None) -> None:
    # An earlier job with this id may have ended before.
    waits = (_predecessors.c.predecessor_id == job_id, _predecessors.c.state.is_(None))
    await transaction.execute(
        sa.update(_predecessors).where(*waits).values(state=state, reason=reason)
    )


class Peers:
    """The relations between jobs, as plugins see them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def find(self, job_ids: Collection[str]) -> Mapping[str, Peer]:
        """Return the jobs that exist, by id.

        Raises:
            StoreUnavailable: If the store cannot be read.
        """
        async with self._store.read() as transaction:
            return await find_peers(transaction, job_ids)

    async def callers_of(self, job_id: str) -> Sequence[Caller]:
        """Return the jobs that name this one and have not ended, in order.

        Raises:
            StoreUnavailable: If the store cannot be read.
        """
        async with self._store.read() as transaction:
            return await callers_of(transaction, job_id)

    async def has_ended(self, job_id: str) -> None:
        """Have the peers of an ended job reconciled, since they must no longer admit it.

        Raises:
            StoreUnavailable: If the store cannot be written.
        """
        async with self._store.write() as transaction:
            await touch_peers_of(transaction, job_id)


# Places


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
