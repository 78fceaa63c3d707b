"""Tests that a lagging cache and a change of leaders never end a job that has retries left.

Each history lists what the API server has, one change after another. Pods and VolcanoJobs have
separate watches, so a leader's two caches can be at any two points of it. The test tries every pair
of points for the old leader, every pair for the next one, and a next leader that has followed the
cluster as a standby as well as one that has just listed it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, cast

import pytest

from controller.jobs.cluster.informer import InformerCache
from controller.jobs.history.job_record import next_state, read_known
from controller.jobs.history.pod_records import is_of, make_pod_records
from controller.jobs.reconcile.actions import Actions
from controller.jobs.reconcile.lifecycle import steps
from controller.jobs.reconcile.lifecycle.failure import NEWS_SECONDS
from controller.jobs.reconcile.lifecycle.next_step import decide
from controller.jobs.reconcile.lifecycle.observed_state import ObservedState
from controller.kube.client import Kube
from controller.store.jobs.progress import PodRecord
from controller.volcano.observed import Ended, ObservedJob, ObservedPod
from tests.controller.samples import UID, make_observed, make_pod, make_record

ENDED_AT = 20.0
END = Ended(exit_code=7, signal=0, reason="Error", finished_at=ENDED_AT)


@dataclass(frozen=True)
class Change:
    """An object as it is from now on, or as it was when it was deleted."""

    object: ObservedJob | ObservedPod
    deleted: bool = False


def waits(uid: str, index: int = 0, retry: int = 0) -> ObservedPod:
    return make_pod(
        index, uid=uid, phase="Pending", running=False, started_at=None, retry=retry, answers=False
    )


def runs(uid: str, index: int = 0, retry: int = 0) -> ObservedPod:
    return make_pod(index, uid=uid, retry=retry)


def fails(uid: str, index: int = 0, retry: int = 0) -> ObservedPod:
    return replace(runs(uid, index, retry), phase="Failed", running=False, ended=END)


def phase(name: str, retries: int = 0) -> Change:
    return Change(make_observed(name, retries=retries, max_retry=3, ran=True, phase_since=ENDED_AT))


def gone(one: ObservedJob | ObservedPod) -> Change:
    return Change(one, deleted=True)


FIRST = [phase("Pending"), Change(waits("one")), Change(runs("one")), phase("Running")]
LOST_RACE = [*FIRST, Change(fails("one")), phase("Failed")]
AGAIN = [
    *FIRST, Change(fails("one")), gone(fails("one")), phase("Restarting", 1), phase("Pending", 1),
    Change(waits("two", retry=1)), Change(runs("two", retry=1)), phase("Running", 1),
    Change(fails("two", retry=1)), phase("Failed", 1),
]  # fmt: skip
PAIR = [
    phase("Pending"), Change(waits("one")), Change(waits("two", 1)), Change(runs("one")),
    Change(runs("two", 1)), phase("Running"), Change(fails("one")), Change(fails("two", 1)),
    phase("Failed"),
]  # fmt: skip
HISTORIES: Mapping[str, Sequence[Change]] = {
    "stays": LOST_RACE,
    "its pods are deleted": [*LOST_RACE, gone(fails("one"))],
    "all is deleted": [*LOST_RACE, gone(fails("one")), gone(make_observed("Failed", ran=True))],
    "the VolcanoJob is deleted first": [
        *LOST_RACE,
        gone(phase("Failed").object),
        gone(fails("one")),
    ],
    "after a restart": AGAIN,
    "after a restart, and its pods are deleted": [*AGAIN, gone(fails("two", retry=1))],
    "two pods": PAIR,
    "two pods, which are deleted": [*PAIR, gone(fails("one")), gone(fails("two", 1))],
}


@dataclass
class Caches:
    """A leader's caches, each at its own point of the history."""

    history: Sequence[Change]
    informer: InformerCache = field(
        default_factory=lambda: InformerCache(
            cast(Kube, None), instance="test", changed=lambda _job: None
        )
    )
    jobs: int = 0
    pods: int = 0

    def read(self, *, jobs: int, pods: int) -> None:
        """Apply the events up to these points."""
        for one in self.history[self.jobs : jobs]:
            if isinstance(one.object, ObservedJob):
                (self.informer.jobs.drop if one.deleted else self.informer.jobs.put)(one.object)
        for one in self.history[self.pods : pods]:
            if isinstance(one.object, ObservedPod):
                (self.informer.pods.drop if one.deleted else self.informer.pods.put)(one.object)
        self.jobs, self.pods = max(jobs, self.jobs), max(pods, self.pods)

    @classmethod
    def listed(cls, history: Sequence[Change], *, jobs: int, pods: int) -> Caches:
        """Return the caches of a process that has just listed the cluster."""
        seen = cls(history)
        seen.read(jobs=jobs, pods=pods)
        made = cls(history, jobs=jobs, pods=pods)
        for job in seen.informer.jobs:
            made.informer.jobs.put(job)
        for pod in seen.informer.pods:
            made.informer.pods.put(pod)
        return made


class Store:
    """What outlives a leader: the record of the job and those of its pods."""

    def __init__(self, replicas: int) -> None:
        spec = {
            "id": "j1", "owner": {"user": "ada"}, "image": "busybox", "max_retry": 2,
            "replicas": replicas, "policies": [{"event": "PodFailed", "action": "RestartJob"}],
        }  # fmt: skip
        self.record = make_record(uid=UID, spec=spec)
        self.runs: dict[str, PodRecord] = {}

    def observe(self, caches: Caches, now: float) -> ObservedState:
        shown = caches.informer.objects_of("jobs", "j1")
        departed = [
            pod
            for pod in shown.departed
            if is_of(pod, UID, self.runs)
            and (pod.uid not in self.runs or self.runs[pod.uid].ended_at is None)
        ]
        return ObservedState(
            record=self.record, job=shown.job, pods=shown.pods, departed=tuple(departed),
            last=next(iter(shown.left), None), runs=dict(self.runs), companions_applied=True,
            started=True, completed=False, cleaned=False, now=now, phase_seen_at=ENDED_AT,
        )  # fmt: skip

    async def reconcile(self, caches: Caches, now: float) -> steps.Step | None:
        """Do the steps that follow; return the decision about the attempt, if there is one."""
        for _ in range(20):
            seen = self.observe(caches, now)
            step = decide(seen)
            match step:
                case steps.RecordPods():
                    made = make_pod_records(
                        read_known(self.record), 1, runs=self.runs, present=seen.own(seen.pods),
                        departed=seen.own(seen.departed), now=now, looked_until=now,
                    )  # fmt: skip
                    self.runs |= {run.pod_uid: run for run in made}
                case steps.UpdateStatus(event, reason, message):
                    state = next_state(self.record.state, event)
                    values: dict[str, Any] = {"state": state, "reason": reason, "message": message}
                    self.record = replace(self.record, **values)
                case steps.SaveRecoveryData(what):
                    self.record = replace(self.record, kept=what)
                case steps.ConfirmPods(then):
                    return then if await self._are_confirmed(caches, seen) else None
                case steps.ConfirmGone(then):
                    last = [one for one in caches.history if isinstance(one.object, ObservedJob)]
                    return then if last[-1].deleted else None
                case steps.Wait():
                    return None
                case _:
                    return step
        raise AssertionError("the steps do not end")

    async def _are_confirmed(self, caches: Caches, seen: ObservedState) -> bool:
        """Ask the product itself, with the pods that the API server has."""
        now = Caches.listed(caches.history, jobs=0, pods=len(caches.history))

        class Cluster:
            async def find_pods(self, *_: object, known: object) -> list[ObservedPod]:
                return list(now.informer.pods)

        actions = Actions.__new__(Actions)
        actions.cluster = cast(Any, Cluster())
        actions.records = cast(Any, type("Records", (), {"clock": staticmethod(lambda: 99.0)}))
        return await actions._are_as_recorded(seen)


def points(history: Sequence[Change]) -> list[tuple[int, int]]:
    """Return all pairs of points at which the caches of VolcanoJobs and of pods can be."""
    kinds = (ObservedJob, ObservedPod)
    jobs, pods = (
        [0, *(at for at, one in enumerate(history, 1) if isinstance(one.object, kind))]
        for kind in kinds
    )
    # A leader has seen the VolcanoJob, which it created.
    return list(product(jobs[1:], pods))


@pytest.mark.parametrize("name", HISTORIES)
async def test_a_lost_retry_is_made_good_wherever_the_leader_dies(name: str) -> None:
    history = HISTORIES[name]
    length = len(history)
    replicas = 2 if name.startswith("two") else 1
    tried = list[tuple[object, object]]()
    for jobs, pods in points(history):
        before = Store(replicas)
        caches = Caches(history)
        caches.read(jobs=jobs, pods=pods)
        made = await before.reconcile(caches, now=ENDED_AT)
        assert may_follow(made), (jobs, pods, made)
        if (before.record, before.runs) in tried:
            continue
        tried.append((before.record, before.runs))
        for later in (*points(history), None):
            after = Store(replicas)
            after.record, after.runs = before.record, dict(before.runs)
            where = (jobs, pods, later)
            if later is None:
                caches.read(jobs=length, pods=length)
                await check_end(after, caches, where)
                continue
            standby = Caches(history)
            standby.read(jobs=later[0], pods=later[1])
            await check_end(after, standby, (*where, "standby"))
            after.record, after.runs = before.record, dict(before.runs)
            new = Caches.listed(history, jobs=later[0], pods=later[1])
            if new.informer.job("jobs", "j1") is not None:
                await check_end(after, new, (*where, "listed"))


async def check_end(store: Store, caches: Caches, where: object) -> None:
    """Check that the attempt is followed by another one, now or once the caches are current."""
    made = await store.reconcile(caches, now=ENDED_AT + 1)
    assert may_follow(made), (where, made)
    if made is None:
        caches.read(jobs=len(caches.history), pods=len(caches.history))
        made = await store.reconcile(caches, now=ENDED_AT + 1)
        made = made or await store.reconcile(caches, now=ENDED_AT + 1 + NEWS_SECONDS)
        assert isinstance(made, steps.StartNextAttempt), (where, made)


def may_follow(made: steps.Step | None) -> bool:
    # A new process that finds no VolcanoJob any more knows nothing of its end.
    return made is None or isinstance(made, steps.StartNextAttempt)
