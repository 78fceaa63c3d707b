"""The informer's cache: the objects of this instance's jobs, kept current by watches."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, Protocol, TypeVar

from controller.kube.client import Kube
from controller.kube.decoding import FieldTransform
from controller.kube.errors import KubeError
from controller.kube.kinds import PODS, SERVICES, VCJOBS, Kind
from controller.kube.watch import Changed, Deleted, Listed, WatchConnection, WatchEvent, watch
from controller.loop_turn import LoopTurn
from controller.volcano import fields
from controller.volcano.names import INSTANCE_LABEL, volcano_job_name
from controller.volcano.observed import (
    ObservedJob,
    ObservedPod,
    ObservedService,
)
from controller.volcano.parsing import (
    read_job,
    read_pod,
    read_service,
)

log = logging.getLogger(__name__)


class _Object(Protocol):
    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def job_id(self) -> str: ...
    @property
    def uid(self) -> str: ...


T = TypeVar("T", bound=_Object)
Key = tuple[str, str]


class Indexer(Generic[T]):
    """The cached objects of one kind, indexed by namespace and name, and by job.

    Args:
        changed: Called with the id of a job whose object has changed.
        remembers: Whether deleted objects are kept in their last state until they are dropped.
        staying: Merges the states of an object before and now.
        leaving: Completes the last state of a deleted object. Its second argument says whether only
            a list reports the deletion.
    """

    def __init__(
        self,
        changed: Callable[[str], None],
        *,
        remembers: bool = False,
        staying: Callable[[T, T], T] = lambda _before, one: one,
        leaving: Callable[[T, bool], T] = lambda one, _listed: one,
    ) -> None:
        self._changed = changed
        self._staying = staying
        self._leaving = leaving
        self._remembers = remembers
        self._objects: dict[Key, T] = {}
        self._by_job: dict[str, dict[Key, T]] = {}
        self._departed: dict[str, dict[str, T]] = {}
        self._unlisted: set[Key] = set()

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._objects.values()))

    def get(self, namespace: str, name: str) -> T | None:
        """Return the object if it exists."""
        return self._objects.get((namespace, name))

    def job_ids(self) -> list[str]:
        """Return the jobs that have an object, or a departed one that is still kept."""
        return list(dict.fromkeys([*self._by_job, *self._departed]))

    def of_job(self, job_id: str) -> tuple[T, ...]:
        """Return the objects of the job."""
        return tuple(self._by_job.get(job_id, {}).values())

    def has_job(self, job_id: str) -> bool:
        """Return whether the job has an object."""
        return job_id in self._by_job

    def departed_of(self, job_id: str) -> tuple[T, ...]:
        """Return the job's objects that were observed to be deleted, as they were last."""
        return tuple(self._departed.get(job_id, {}).values())

    def departed(self) -> list[T]:
        """Return all departed objects that are still kept."""
        return [one for of_job in self._departed.values() for one in of_job.values()]

    def forget(self, one: T) -> None:
        """Drop *one*, which was observed to be deleted."""
        of_job = self._departed.get(one.job_id, {})
        of_job.pop(one.uid, None)
        if not of_job:
            self._departed.pop(one.job_id, None)

    def begin_list(self) -> None:
        """Begin a list of all objects: each is given to :meth:`put`."""
        self._unlisted = set(self._objects)

    def keep(self, namespace: str, name: str) -> None:
        """Treat the object as listed, unchanged."""
        self._unlisted.discard((namespace, name))

    def end_list(self) -> Iterator[None]:
        """Drop the objects that were not listed, one object a step."""
        while self._unlisted:
            self.drop(self._objects[self._unlisted.pop()], listed=True)
            yield

    def put(self, one: T, *, listed: bool = False) -> None:
        """Store the current state of *one*; an earlier object of its name is gone."""
        key = (one.namespace, one.name)
        if listed:
            self._unlisted.discard(key)
        before = self._objects.get(key)
        if before is not None and (before.job_id, before.uid) != (one.job_id, one.uid):
            self.drop(before, listed=listed)
        elif before is not None:
            one = self._staying(before, one)
        if before == one:
            return
        self._objects[key] = one
        self._by_job.setdefault(one.job_id, {})[key] = one
        self._changed(one.job_id)

    def drop(self, one: T, *, listed: bool = False) -> None:
        """Treat *one* as deleted, with the given last state, unless a newer object has its name."""
        key = (one.namespace, one.name)
        before = self._objects.get(key)
        if before is None or before.uid != one.uid:
            return
        del self._objects[key]
        self._unlisted.discard(key)
        of_job = self._by_job[before.job_id]
        del of_job[key]
        if not of_job:
            del self._by_job[before.job_id]
        if self._remembers:
            left = self._leaving(self._staying(before, one), listed)
            self._departed.setdefault(before.job_id, {})[one.uid] = left
        self._changed(before.job_id)


CATCH_UP_SECONDS: Final = 1.0
"""A deletion within this time after a watch resumes happened during its interruption."""
RELIST_SECONDS: Final = 60.0
"""A list within this time after a watch resumes means that it did not (410, backoff)."""


class WatchGap:
    """The start of a gap in the watch of a kind; a deletion that a later list shows happened since.

    Args:
        clock: Unix seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._heard_at: float | None = None
        self._blind_since: float | None = None
        self._again_at: float | None = None

    def unseen_since(self, *, listed: bool) -> float | None:
        """Return the start of the gap; None if the deletion has just happened.

        Args:
            listed: Whether a list reports it, and not the watch.
        """
        if self._again_at is None:
            return self._blind_since
        passed = self._clock() - self._again_at
        return (
            self._blind_since
            if passed <= (RELIST_SECONDS if listed else CATCH_UP_SECONDS)
            else None
        )

    @property
    def looked_until(self) -> float:
        """The time until which the kind was observed: now, while the watch is up."""
        now = self._clock()
        if self._blind_since is None or self._again_at is not None:
            return now
        return min(now, self._blind_since)

    def report(self, trouble: KubeError | None) -> None:
        """Record that the watch is up, or why it is not."""
        now = self._clock()
        if trouble is None:
            self._heard_at = now
            if self._blind_since is not None and self._again_at is None:
                self._again_at = now
            return
        if self.unseen_since(listed=False) is None and self._heard_at is not None:
            # A connection that was cut was alive until then; one that timed out may not have been.
            silent = isinstance(trouble.__cause__, TimeoutError)
            self._blind_since = self._heard_at if silent else now
        self._again_at = None


class KindReader(Generic[T]):
    """Reads objects of one kind, reduced to the fields in *shape*."""

    def __init__(
        self, kind: Kind, shape: fields.Shape, read: Callable[[Mapping[str, Any]], T]
    ) -> None:
        self.kind = kind
        self.transform = FieldTransform(shape)
        self._read = read

    def read(self, given: Mapping[str, Any]) -> T | None:
        """Return what *given* says; None, with a log line, if it is malformed."""
        try:
            return self._read(given)
        except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
            log.error(
                "a malformed object was ignored: the cache keeps its last state",
                extra={"kind": self.kind.kind, "object": "/".join(_key_of(given))},
                exc_info=error,
            )
            return None


JOBS_READ: Final = KindReader(VCJOBS, fields.VOLCANO_JOB, read_job)
PODS_READ: Final = KindReader(PODS, fields.POD, read_pod)
SERVICES_READ: Final = KindReader(SERVICES, fields.SERVICE, read_service)


@dataclass(frozen=True, slots=True)
class ObjectsOfJob:
    """The cached objects of one job, all at one moment.

    ``job`` is its VolcanoJob. ``departed`` and ``left`` are the pods and VolcanoJobs that were
    observed to be deleted. ``pods_stale`` and ``jobs_stale`` say that the watch of pods, or of
    VolcanoJobs, is interrupted.
    """

    job: ObservedJob | None
    pods: tuple[ObservedPod, ...]
    departed: tuple[ObservedPod, ...]
    left: tuple[ObservedJob, ...]
    pods_stale: bool
    jobs_stale: bool


class _Followed:
    """The watch of a kind: whether it was listed once, and its connection."""

    def __init__(self) -> None:
        self.seen = asyncio.Event()
        self.connection = WatchConnection()


class InformerCache:
    """The VolcanoJobs, pods and (optionally) Services with the instance's label.

    Args:
        instance: The instance whose objects are cached; objects of other instances are ignored.
        changed: Called with the id of a job whose objects have changed.
        services: Whether Services are watched, too. Otherwise the cache has none.
        clock: Unix seconds.
    """

    def __init__(
        self,
        kube: Kube,
        *,
        instance: str,
        changed: Callable[[str], None],
        services: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._kube = kube
        self._labels = f"{INSTANCE_LABEL}={instance}"
        # The end of a VolcanoJob may be observed only with its deletion.
        self.jobs: Indexer[ObservedJob] = Indexer(changed, remembers=True)
        self._pods_gap = WatchGap(clock)
        self.pods: Indexer[ObservedPod] = Indexer(
            changed, remembers=True, staying=_with_lost_conditions, leaving=self._as_it_left
        )
        self.services: Indexer[ObservedService] = Indexer(changed)
        self._trouble: dict[str, str] = {}
        kinds = (VCJOBS, PODS, SERVICES) if services else (VCJOBS, PODS)
        self._followed = {kind.plural: _Followed() for kind in kinds}

    @property
    def watches_pods(self) -> bool:
        """Whether the watch of pods is up."""
        return PODS.plural not in self._trouble

    @property
    def watches_services(self) -> bool:
        """Whether the watch of Services is up."""
        return SERVICES.plural not in self._trouble

    @property
    def looked_until(self) -> float:
        """The time until which pods were observed."""
        return self._pods_gap.looked_until

    def problems(self) -> tuple[str, ...]:
        """Return which kinds cannot be watched now, and why."""
        return tuple(f"{kind} cannot be followed: {why}" for kind, why in self._trouble.items())

    @property
    def is_complete(self) -> bool:
        """Whether every kind was listed once."""
        return all(one.seen.is_set() for one in self._followed.values())

    async def complete(self) -> None:
        """Wait until every kind was listed once, and its watch is up."""
        for one in self._followed.values():
            await one.seen.wait()
            await one.connection.opened.wait()

    def renew(self) -> None:
        """Open new connections for all watches: a dead one may have held back events."""
        for one in self._followed.values():
            one.connection.renew()

    def departed(self) -> list[ObservedJob | ObservedPod]:
        """Return all departed objects that are still kept."""
        return [*self.jobs.departed(), *self.pods.departed()]

    def forget(self, left: Iterable[ObservedJob | ObservedPod]) -> None:
        """Drop these departed objects."""
        for one in left:
            if isinstance(one, ObservedPod):
                self.pods.forget(one)
            else:
                self.jobs.forget(one)

    def job_ids(self) -> list[str]:
        """Return the jobs that have any object."""
        indexers = (self.jobs, self.pods, self.services)
        return list(dict.fromkeys(job_id for one in indexers for job_id in one.job_ids()))

    def job(self, namespace: str, job_id: str) -> ObservedJob | None:
        """Return the VolcanoJob of the job; one of another name that claims to be it is not."""
        found = self.jobs.get(namespace, volcano_job_name(job_id))
        return found if found is not None and found.job_id == job_id else None

    def objects_of(self, namespace: str, job_id: str) -> ObjectsOfJob:
        """Return the objects of the job, all at one moment."""
        return ObjectsOfJob(
            job=self.job(namespace, job_id),
            pods=self.pods.of_job(job_id),
            departed=self.pods.departed_of(job_id),
            left=self.jobs.departed_of(job_id),
            pods_stale=not self.watches_pods,
            jobs_stale=VCJOBS.plural in self._trouble,
        )

    def may_have_job(self, job_id: str) -> bool:
        """Return whether there is a VolcanoJob of the job, or may be."""
        return VCJOBS.plural in self._trouble or bool(self.jobs.of_job(job_id))

    async def run(self) -> None:
        """Keep the cache current; never returns."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(JOBS_READ, self.jobs))
            tasks.create_task(self._follow(PODS_READ, self.pods))
            if SERVICES.plural in self._followed:
                tasks.create_task(self._follow(SERVICES_READ, self.services))

    def _as_it_left(self, pod: ObservedPod, listed: bool) -> ObservedPod:
        since = self._pods_gap.unseen_since(listed=listed)
        return pod if since is None else replace(pod, unseen_since=since)

    async def _follow(self, reader: KindReader[T], indexer: Indexer[T]) -> None:
        kind = reader.kind
        followed = self._followed[kind.plural]

        def report(trouble: KubeError | None) -> None:
            if kind is PODS:
                self._pods_gap.report(trouble)
            if trouble is None:
                self._trouble.pop(kind.plural, None)
            else:
                self._trouble[kind.plural] = str(trouble)

        turn = LoopTurn()
        events = watch(
            self._kube,
            kind,
            labels=self._labels,
            transform=reader.transform,
            report=report,
            connection=followed.connection,
        )
        async for event in events:
            for _ in applied(event, indexer, reader):
                await turn.rest()
            if not isinstance(event, Listed) or event.last:
                followed.seen.set()


def _with_lost_conditions(before: ObservedPod, pod: ObservedPod) -> ObservedPod:
    """Return *pod* with what it said before and no longer says though it is still so."""
    if before.had_time and not pod.had_time:
        # The kubelet deletes an ended pod with no grace period.
        pod = replace(pod, had_time=True)
    if before.disrupted and pod.deleting and not pod.disrupted:
        # Volcano's scheduler writes it into the condition Ready, which the kubelet overwrites.
        pod = replace(pod, disrupted=before.disrupted, disruption=before.disruption)
    return pod


def applied(event: WatchEvent, indexer: Indexer[T], reader: KindReader[T]) -> Iterator[None]:
    """Apply *event* to *indexer*, one object a step."""
    match event:
        case Listed(objects):
            if event.first:
                indexer.begin_list()
            for given in objects:
                if (one := reader.read(given)) is not None:
                    indexer.put(one, listed=True)
                else:
                    indexer.keep(*_key_of(given))
                yield
            if event.last:
                yield from indexer.end_list()
        case Changed(given):
            if (one := reader.read(given)) is not None:
                indexer.put(one)
        case Deleted(given):
            if (one := reader.read(given) or indexer.get(*_key_of(given))) is not None:
                indexer.drop(one)


def _key_of(given: Mapping[str, Any]) -> Key:
    metadata = given["metadata"]
    return str(metadata.get("namespace", "")), str(metadata.get("name", ""))
