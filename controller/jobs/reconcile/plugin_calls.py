"""Waits for plugins without holding up whoever asks, and keeps the plans that they made.

A hook may take as long as its deadline, and a job several of them. The reconciler's workers wait a
moment only: then the call goes on by itself, the worker goes on to other jobs, and the job is
looked at again when the call has ended.

A submission may be tried many times, since a namespace is being prepared, a quota is full or the
API server is away. What plugins made of the job is the same each time, unless they said that it
waits for something else, or the cluster's Volcano has become another one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar, cast

from controller.jobs.pipeline.pipeline import Plan
from controller.jobs.reconcile.workqueue import RequeueAfter

PATIENCE_SECONDS: Final = 0.25
"""How long whoever asks waits."""
LOOK_AGAIN_SECONDS: Final = 60.0
"""Should nobody have told that a call has ended."""
KEPT_SECONDS: Final = 60.0
"""How long a result waits for whoever asked for it."""
MOST_CALLS: Final = 2000
"""At a time; with more, jobs wait for their turn, and their removal does not wait for hooks."""
PLAN_SECONDS: Final = 60.0
"""How long a plan is kept: plugins of others may look at what nobody tells us of."""
MOST_PLANS: Final = 1000

Kind = Literal["plan", "hooks"]
T = TypeVar("T")

log = logging.getLogger(__name__)


class StillRunning(RequeueAfter):
    """The call goes on; the job is looked at again when it has ended."""


@dataclass(slots=True, eq=False)
class _Call:
    """What is called for a job: the same again is the same call."""

    kind: Kind
    what: Hashable
    task: asyncio.Task[Any]
    left_alone: bool = False


class PluginCalls:
    """Owns the calls of plugins, for each job one at a time.

    Args:
        ended: Is told the job whose call, for which nobody waited, has ended.
    """

    def __init__(self, ended: Callable[[str], None] = lambda _: None) -> None:
        self._ended = ended
        self._calls: dict[str, _Call] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    def is_busy(self, job_id: str) -> bool:
        """Say whether hooks of the job run, or cannot now: then none is to be called."""
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
        """Return, or raise, what *work* does.

        Asked again for the same, the call that runs already is waited for. A plan that nobody
        wants any more is cancelled: making one changes nothing.

        Raises:
            StillRunning: If it takes longer than a moment.
        """
        call = self._calls.get(job_id)
        if call is not None and (call.kind, call.what) != (kind, what):
            if call.kind == "hooks" and not call.task.done():
                raise StillRunning(LOOK_AGAIN_SECONDS)
            self._drop(job_id, call)
            call = None
        if call is None:
            if len(self._calls) >= MOST_CALLS:
                raise StillRunning(PATIENCE_SECONDS)
            call = self._begin(job_id, _Call(kind, what, asyncio.create_task(work())))
        await asyncio.wait({call.task}, timeout=PATIENCE_SECONDS)
        if not call.task.done():
            call.left_alone = True
            raise StillRunning(LOOK_AGAIN_SECONDS)
        self._drop(job_id, call)
        return cast(T, call.task.result())

    async def run(self) -> None:
        """Wait until this is cancelled, and see to it that no call goes on then."""
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
        if not call.left_alone:
            return
        if call.kind == "hooks":
            self._drop(job_id, call)  # what they did is in the store
        else:
            asyncio.get_running_loop().call_later(KEPT_SECONDS, self._drop, job_id, call)
        if error is not None:
            log.info("a call of plugins failed", extra={"job": job_id, "why": str(error)[:500]})
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
    """Keeps plans of jobs that wait to be submitted for a while, and never more than so many.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kept: dict[str, _Kept] = {}

    def find(self, job_id: str, *made_of: object) -> Plan | None:
        """Return the job's plan, if it was made of the same, and lately."""
        kept = self._kept.get(job_id)
        if kept is None or kept.made_of != made_of or self._clock() >= kept.until:
            return None
        return kept.plan

    def keep(self, job_id: str, plan: Plan, *made_of: object) -> None:
        """Keep a plan that does not wait for anything, in the place of the job's last one."""
        self.forget(job_id)
        if plan.waiting:
            return
        now = self._clock()
        # The oldest come first; with a plan go the job's secrets, which are not kept for nothing.
        for other, kept in list(self._kept.items()):
            if kept.until > now and len(self._kept) < MOST_PLANS:
                break
            del self._kept[other]
        self._kept[job_id] = _Kept(made_of, plan, now + PLAN_SECONDS)

    def forget(self, job_id: str) -> None:
        """Keep the job's plan no longer: it is submitted, or never will be."""
        self._kept.pop(job_id, None)
