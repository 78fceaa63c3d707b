"""Tests the wiring of the leader's parts: their settings, and the calls from one to another."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, TypeVar

import pytest
from redis.asyncio import Redis

from controller.jobs.cluster.companion_sweep import CompanionSweep
from controller.jobs.cluster.pending_reasons import PendingReasons
from controller.jobs.history.retention import Retention, RetentionPeriods
from controller.jobs.pipeline.pipeline import Pipeline
from controller.jobs.pipeline.plugin_models import CompanionKind
from controller.kube.kinds import Kind
from controller.leader.discovery import CompanionRights
from controller.sessions.publisher import RoutePublisher
from shared.bus import Keys, ReportWriter
from shared.reports import Activity, encode_report
from tests.controller.leader.leading import Lead, World
from tests.shared.samples import make_sid
from tests.waiting import until

T = TypeVar("T")

BUDGETS = CompanionKind(
    api_version="policy/v1", plural="poddisruptionbudgets", kind="PodDisruptionBudget"
)


class Runs:
    """Counts the starts of a part, which then runs without an end."""

    started: ClassVar[int] = 0

    @classmethod
    async def run(cls, _part: object) -> None:
        cls.started += 1
        await asyncio.Event().wait()


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> type[Runs]:
    monkeypatch.setattr(Runs, "started", 0)
    return Runs


def part(w: World, kind: type[T]) -> T:
    """Return the part of *kind* among those that run beside the reconciler."""
    assert w.leader._term is not None
    works = [getattr(work, "__self__", None) for work in w.leader._term.reconciler.background]
    (found,) = [one for one in works if isinstance(one, kind)]
    return found


async def test_retention_periods_are_those_of_the_settings(leading: Lead) -> None:
    async with leading(
        FUMAROLE_CONTROLLER_HISTORY_SECONDS="1",
        FUMAROLE_CONTROLLER_TOMBSTONE_SECONDS="2",
        FUMAROLE_CONTROLLER_UPDATES_SECONDS="3",
    ) as w:
        await w.lead()
        expected = RetentionPeriods(history=1.0, tombstone=2.0, updates=3.0)
        assert part(w, Retention).keep == expected


async def test_a_job_is_enqueued_with_the_reason_of_the_part(leading: Lead) -> None:
    async with leading() as w:
        await w.lead()
        queue = w.leader._term.queue
        w.leader._term.reconciler.actions.calls._ended("j1")
        assert (w.metric("enqueued_total", reason="plugin"), [*queue._ready]) == (1, ["j1"])
        part(w, PendingReasons).changed("j2")
        part(w, CompanionSweep)._enqueue("j3")
        assert w.metric("enqueued_total", reason="cluster") == 2
        assert [*queue._ready] == ["j1", "j2", "j3"]


async def test_orphans_of_kinds_that_plugins_declare_are_swept(
    leading: Lead, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = property(lambda _pipeline: {BUDGETS: "any"})
    monkeypatch.setattr(Pipeline, "companion_kinds", declared)
    async with leading() as w:
        await w.lead()
        budgets = Kind("policy/v1", "poddisruptionbudgets", "PodDisruptionBudget")
        assert part(w, CompanionSweep)._kinds[-1] == budgets


async def test_the_leader_checks_the_permissions_for_companions(
    leading: Lead, monkeypatch: pytest.MonkeyPatch, runs: type[Runs]
) -> None:
    monkeypatch.setattr(CompanionRights, "run", lambda one, _: runs.run(one))
    async with leading() as w:
        await w.lead()
        await until(lambda: runs.started == 1)


async def test_no_route_is_published_before_store_and_cluster_were_compared(
    leading: Lead, monkeypatch: pytest.MonkeyPatch, runs: type[Runs]
) -> None:
    monkeypatch.setattr(RoutePublisher, "run", lambda one: runs.run(one))
    async with leading() as w:
        await w.lead()
        # The tasks of the leader have started by then.
        await until(lambda: any("cannot be followed" in why for why in w.leader.problems()))
        assert runs.started == 0
        w.leader._term.adoption.settled.set()
        await until(lambda: runs.started == 1)


async def test_queue_positions_follow_the_reports_of_gateways(leading: Lead, redis: Redis) -> None:
    sid, seen = make_sid(1), Activity(at=5.0, subs=(), waiting_at=5.0)
    await ReportWriter(redis, Keys("test"), "g1").write_activities({sid: encode_report(seen)})
    async with leading() as w:
        await w.lead()
        found: Any = await w.leader._term.positions.activities_of([sid])
        assert found[sid].waiting_at == 5.0
