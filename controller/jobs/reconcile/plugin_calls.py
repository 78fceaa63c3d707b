"""Runs plugin hooks in tasks of their own, and caches the plans that they made.

A hook may take as long as its deadline, and a job calls several. A worker of the reconciler waits
for a call only briefly. Then the call continues in its own task, the worker takes another job, and
the job is enqueued when the call has ended.

A submission may be tried many times: a namespace is being prepared, a quota is exhausted or the API
server is unavailable. The plan stays the same, unless it waits for a prerequisite or the
capabilities of the cluster's Volcano have changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar, cast

from controller.jobs.pipeline.pipeline import Plan
from controller.jobs.reconcile.workqueue import RequeueAfter

WAIT_SECONDS: Final = 0.25
"""How long a worker waits for a call."""
LOOK_AGAIN_SECONDS: Final = 60.0
"""The pause before the job is reconciled again if the end of the call is not reported."""
KEPT_SECONDS: Final = 60.0
"""The time for which the result of a call is kept for its caller."""
MOST_CALLS: Final = 2000
"""The maximum number of concurrent calls. Beyond it, jobs wait for their turn, and their removal
skips hooks.
"""
PLAN_SECONDS: Final = 60.0
"""The time for which a plan is cached: third-party plugins may depend on unobserved state."""
MOST_PLANS: Final = 1000

Kind = Literal["plan", "hooks"]
T = TypeVar("T")

log = logging.getLogger(__name__)


class StillRunning(RequeueAfter):
    """The call goes on; the job is enqueued when the call has ended."""


@dataclass(slots=True, eq=False)
class _Call:
    """A call of plugins for a job, identified by its kind and input."""

    kind: Kind
    what: Hashable
    task: asyncio.Task[Any]
    detached: bool = False


class PluginCalls:
    """Owns the calls of plugins, one at a time for each job.

    Args:
        ended: Called with a job's id when a call has ended that no worker waits for.
    """

    def __init__(self, ended: Callable[[str], None] = lambda _: None) -> None:
        self._ended = ended
        self._calls: dict[str, _Call] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    def is_busy(self, job_id: str) -> bool:
        """Return whether hooks of the job run, or cannot be called now."""
        call = self._calls.get(job_id)
        if call is None or call.kind == "plan":
            return len(self._calls) >= MOST_CALLS
        return not call.task.done()

    async def result(
        self,
        job_id: str,
        kind: Kind,
        what: Hashable,
        work: Callable[[], Coroutine[Any, Any, T]],
    ) -> T:
        """Return, or raise, the result of *work*.

        A repetition with the same input waits for the call that runs already. A plan that is
        superseded is cancelled: planning changes nothing.

        Raises:
            StillRunning: If the call takes longer than a moment.
        """
        call = self._calls.get(job_id)
        if call is not None and (call.kind, call.what) != (kind, what):
            if call.kind == "hooks" and not call.task.done():
                raise StillRunning(LOOK_AGAIN_SECONDS)
            self._drop(job_id, call)
            call = None
        if call is None:
            if len(self._calls) >= MOST_CALLS:
                raise StillRunning(WAIT_SECONDS)
            call = self._begin(job_id, _Call(kind, what, asyncio.create_task(work())))
        await asyncio.wait({call.task}, timeout=WAIT_SECONDS)
        if not call.task.done():
            call.detached = True
            raise StillRunning(LOOK_AGAIN_SECONDS)
        self._drop(job_id, call)
        return cast(T, call.task.result())

    async def run(self) -> None:
        """Wait until cancelled, and then cancel all calls."""
        try:
            await asyncio.Event().wait()
        finally:
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=2.0)

    def _begin(self, job_id: str, call: _Call) -> _Call:
        self._calls[job_id] = call
        self._tasks.add(call.task)
        call.task.add_done_callback(lambda task: self._done(job_id, call))
        return call

    def _done(self, job_id: str, call: _Call) -> None:
        self._tasks.discard(call.task)
        if call.task.cancelled():
            return
        error = call.task.exception()
        if not call.detached:
            return
        if call.kind == "hooks":
            self._drop(job_id, call)  # their results are in the store
        else:
            asyncio.get_running_loop().call_later(KEPT_SECONDS, self._drop, job_id, call)
        if error is not None:
            log.info("a plugin call failed", extra={"job": job_id, "why": str(error)[:500]})
        self._ended(job_id)

    def _drop(self, job_id: str, call: _Call) -> None:
        if self._calls.get(job_id) is call:
            del self._calls[job_id]
        call.task.cancel()


@dataclass(frozen=True, slots=True)
class _Kept:
    made_of: tuple[object, ...]
    plan: Plan
    until: float


class PlanCache:
    """Caches plans of jobs that wait to be submitted; bounded in time and number.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kept: dict[str, _Kept] = {}

    def find(self, job_id: str, *made_of: object) -> Plan | None:
        """Return the job's plan, if it was made recently and of the same input."""
        kept = self._kept.get(job_id)
        if kept is None or kept.made_of != made_of or self._clock() >= kept.until:
            return None
        return kept.plan

    def keep(self, job_id: str, plan: Plan, *made_of: object) -> None:
        """Cache a plan without a missing prerequisite, in place of the job's last plan."""
        self.forget(job_id)
        if plan.waiting:
            return
        now = self._clock()
        # The oldest come first. A plan holds the secrets of the job, so none is cached for longer
        # than needed.
        for other, kept in list(self._kept.items()):
            if kept.until > now and len(self._kept) < MOST_PLANS:
                break
            del self._kept[other]
        self._kept[job_id] = _Kept(made_of, plan, now + PLAN_SECONDS)

    def forget(self, job_id: str) -> None:
        """Drop the plan of the job: the job is submitted, or never will be."""
        self._kept.pop(job_id, None)
