"""Detects from a thread that the event loop is blocked, and by which plugin's hook.

A hook that blocks the loop cannot be cancelled: nothing else runs, ``/healthz`` gets no response,
and the process is killed from outside. Before that happens, the watchdog stores the plugin and the
job. The next process does not call that plugin for that job any more. If the loop continues by
itself, the record is removed.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

import sqlalchemy as sa
from prometheus_client import CollectorRegistry, Counter

from controller.jobs.pipeline.border import Call, PluginBorder
from controller.store.database import Store
from controller.store.jobs.hook_failures import (
    HookFailure,
    drop_hook_failure,
    record_hook_failure,
)
from shared.errors import FumaroleError

BEAT_SECONDS: Final = 0.25
SHORTEST_SECONDS: Final = 1.0
"""Shorter stalls are normal on a busy machine."""
BLOCKED_SECONDS: Final = 10.0
"""When the hook is recorded. Liveness allows a process a minute."""
WRITE_SECONDS: Final = 20.0

log = logging.getLogger(__name__)


class LoopStalls:
    """Metrics of a blocked event loop, and of the plugin that blocked it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._stalls = Counter(
            "fumarole_controller_loop_stalls",
            "Times that the event loop was blocked for a second or longer",
            ["plugin"],
            registry=registry,
        )
        self._seconds = Counter(
            "fumarole_controller_loop_stalled_seconds",
            "Total seconds for which the event loop was blocked",
            registry=registry,
        )

    def loop_stalled(self, seconds: float, plugin: str) -> None:
        """Count one stall."""
        self._stalls.labels(plugin).inc()
        self._seconds.inc(seconds)


@dataclass(slots=True, eq=False, repr=False)
class Watchdog:
    """Watches the loop in which :meth:`run` runs."""

    border: PluginBorder
    """Knows which hook runs in which task."""
    _: KW_ONLY
    store_url: str
    """The store; the thread opens its own connection."""
    metrics: LoopStalls
    _beat: float = field(default_factory=time.monotonic, init=False)
    _culprit: Call | None = None
    _written: tuple[Call, HookFailure] | None = None
    _stopped: threading.Event = field(default_factory=threading.Event, init=False)

    async def run(self) -> None:
        """Watch until cancelled."""
        loop = asyncio.get_running_loop()
        thread = threading.Thread(target=self._watch, args=(loop,), name="watchdog", daemon=True)
        self._beat = time.monotonic()
        thread.start()
        try:
            while True:
                await asyncio.sleep(BEAT_SECONDS)
                now, before = time.monotonic(), self._beat
                self._beat = now
                stood = now - before - BEAT_SECONDS
                if stood >= SHORTEST_SECONDS:
                    self._report(stood)
        finally:
            self._stopped.set()

    def _report(self, seconds: float) -> None:
        plugin = self._culprit.plugin if self._culprit is not None else ""
        self._culprit = None
        self.metrics.loop_stalled(seconds, plugin)
        log.warning(
            "the event loop was blocked", extra={"seconds": round(seconds, 1), "plugin": plugin}
        )

    # In the thread

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._stopped.wait(BEAT_SECONDS):
            stood = time.monotonic() - self._beat
            try:
                if stood >= SHORTEST_SECONDS:
                    self._culprit = self.border.call_in(asyncio.current_task(loop))
                if stood >= BLOCKED_SECONDS and self._written is None:
                    self._record(self._culprit, stood)
                elif stood < SHORTEST_SECONDS and self._written is not None:
                    self._remove_record(*self._written)
            except (FumaroleError, sa.exc.SQLAlchemyError, OSError, RuntimeError) as error:
                # The thread must go on watching, whatever the database refuses.
                log.error("cannot record the blocking plugin", extra={"why": str(error)[:500]})

    def _record(self, call: Call | None, stood: float) -> None:
        if call is None or not call.job_id:
            return
        log.error(
            "a plugin blocks the event loop",
            extra={"plugin": call.plugin, "hook": call.hook, "job": call.job_id},
        )
        failure = HookFailure(
            hook=call.hook,
            plugin=call.plugin,
            attempt=0,
            tries=1,
            error=f"blocked the controller for {stood:.0f} s and more",
            at=time.time(),
            next_at=None,
            blocked=True,
        )
        asyncio.run(self._keep(call, failure))
        self._written = (call, failure)
        log.warning(
            "after the next start, the plugin is not called for the job",
            extra={"plugin": call.plugin, "hook": call.hook, "job": call.job_id},
        )

    def _remove_record(self, call: Call, failure: HookFailure) -> None:
        asyncio.run(self._keep(call, failure, gone=True))
        self._written = None

    async def _keep(self, call: Call, failure: HookFailure, *, gone: bool = False) -> None:
        store = Store(self.store_url)
        try:
            async with asyncio.timeout(WRITE_SECONDS), store.write() as transaction:
                change = drop_hook_failure if gone else record_hook_failure
                await change(transaction, call.job_id, failure)
        finally:
            await store.close()
