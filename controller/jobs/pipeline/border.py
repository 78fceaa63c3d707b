"""The border to plugins: calls have deadlines, results are checked, and what ran is recorded.

Anybody can write a plugin. So an exception, a wrong result or a timeout of a hook becomes one
:class:`PluginFailed`, which names the plugin. A third-party hook runs as a task of its own.
Built-in hooks end when they are cancelled, and are awaited in place. A hook that ignores its
cancellation is abandoned and counted: until it ends, no hook of that plugin is called for that job.
A hook that blocks the event loop cannot be ended from within the process;
``controller.leader.watchdog`` reads the name of that hook here.
"""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Final, Literal, TypeVar

from controller.jobs.pipeline.plugin_metrics import HookCounts
from controller.site.hook_limits import DEFAULT_TRIES, HookSeconds
from controller.store.database import FencedStore
from controller.store.jobs.hook_failures import HookFailure, drop_hook_failure, record_hook_failure
from controller.store.jobs.progress import Hook, record_hooks, set_due
from shared.errors import FumaroleError
from shared.text import without_secrets

GRACE_SECONDS: Final = 1.0
"""How long a cancelled hook may take to end."""
MOST_STUCK: Final = 200
"""The maximum number of abandoned calls of one plugin; beyond it, the plugin is not called."""
LONGEST_TEXT: Final = 500
SWITCHED_OFF: Final = "it is switched off for this job: it blocked the controller"

HookName = Literal[
    "on_create", "on_job_start", "on_job_complete", "on_job_monitoring", "on_cleanup"
]
Result = Literal["done", "raised", "timed_out", "bad_result", "switched_off"]
T = TypeVar("T")

log = logging.getLogger(__name__)


class PluginFailed(FumaroleError):
    """A hook failed: its effect is unknown.

    ``why`` is the cause, without data of the job. ``slow``: the hook timed out. ``for_good``: the
    hook is not called for this job any more.
    """

    def __init__(
        self,
        plugin: str,
        hook: str,
        why: str = "",
        *,
        slow: bool = False,
        for_good: bool = False,
    ) -> None:
        super().__init__(f"the plugin {plugin} failed in {hook}")
        self.plugin = plugin
        self.hook = hook
        self.why = why
        self.slow = slow
        self.for_good = for_good


class BadResult(Exception):
    """A hook returned, or left in the builder, something invalid."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a hook; ``job_id`` is empty for a batch of jobs."""

    plugin: str
    hook: HookName
    job_id: str = ""


class _Escaped(Exception):
    """A hook raised an exception that would end the process."""


class PluginBorder:
    """Calls hooks."""

    def __init__(
        self,
        seconds: HookSeconds | None = None,
        *,
        metrics: HookCounts | None = None,
    ) -> None:
        self._seconds = seconds or HookSeconds()
        self._metrics = metrics
        self._running: dict[asyncio.Task[object], Call] = {}
        self._stuck: dict[asyncio.Task[object], Call] = {}
        self._switched_off: frozenset[tuple[str, str]] = frozenset()

    def switch_off(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Never call the plugin of each (plugin, job id) for that job again."""
        self._switched_off |= frozenset(pairs)

    def call_in(self, task: asyncio.Task[object] | None) -> Call | None:
        """Return which hook runs in *task*; safe from any thread."""
        return self._running.get(task) if task is not None else None

    @property
    def stuck(self) -> Counter[str]:
        """The number of abandoned calls of each plugin that have not ended."""
        return Counter(call.plugin for call in self._stuck.values())

    async def call(
        self,
        call: Call,
        work: Callable[[], Awaitable[object]],
        read: Callable[[object], T],
        *,
        secrets: Collection[str] = (),
        in_place: bool = False,
    ) -> T:
        """Return the hook's result as *read* has checked it.

        Args:
            call: The hook and its job.
            work: Calls it.
            read: Checks the result; raises :class:`BadResult` if it is invalid.
            secrets: Values that must not be logged.
            in_place: Whether the hook is built in, and needs no task of its own.

        Raises:
            PluginFailed: If it raises anything, times out, or returns an invalid result.
        """
        began = time.monotonic()
        result: Result = "done"
        try:
            self._refuse(call)
            run = self._run_in_place if in_place else self._run
            return read(await run(call, work))
        except BadResult as bad:
            result = "bad_result"
            raise self._failed(call, str(bad), None, secrets) from bad
        except TimeoutError as error:
            result = "timed_out"
            raise self._failed(call, str(error), error, secrets) from error
        except PluginFailed:
            result = "switched_off"
            raise
        except Exception as error:  # the border: third-party code may raise anything
            result = "raised"
            raised = error.__cause__ if isinstance(error, _Escaped) else error
            why = f"raised {type(raised).__name__}"[:LONGEST_TEXT]
            raise self._failed(call, why, raised, secrets) from error
        finally:
            if self._metrics is not None:
                seconds = time.monotonic() - began
                self._metrics.hook_ended(call.plugin, call.hook, result, seconds)

    def _refuse(self, call: Call) -> None:
        if (call.plugin, call.job_id) in self._switched_off:
            raise PluginFailed(call.plugin, call.hook, SWITCHED_OFF, for_good=True)
        mine = [one for one in self._stuck.values() if one.plugin == call.plugin]
        if len(mine) >= MOST_STUCK:
            raise PluginFailed(call.plugin, call.hook, f"{len(mine)} of its calls do not end")
        if call.job_id and any(one.job_id == call.job_id for one in mine):
            raise PluginFailed(call.plugin, call.hook, "its last call for this job does not end")

    async def _run(self, call: Call, work: Callable[[], Awaitable[object]]) -> object:
        seconds = self._seconds_of(call)
        task = asyncio.create_task(_contained(work), name=f"{call.plugin}.{call.hook}")
        self._running[task] = call
        task.add_done_callback(self._ended)
        try:
            done, _ = await asyncio.wait({task}, timeout=seconds)
        except asyncio.CancelledError:
            await self._cancel(task, call)
            raise
        if not done:
            await self._cancel(task, call)
            raise _too_slow(seconds)
        if task.cancelled():
            raise _Escaped from asyncio.CancelledError()
        error = task.exception()
        if isinstance(error, TimeoutError):
            # A timeout inside the hook: the hook itself was in time.
            raise _Escaped from error
        if isinstance(error, PluginFailed | BadResult):
            raise _Escaped from error
        if error is not None:
            raise error
        return task.result()

    async def _run_in_place(self, call: Call, work: Callable[[], Awaitable[object]]) -> object:
        seconds, task = self._seconds_of(call), asyncio.current_task()
        assert task is not None  # noqa: S101 - for the type checker: a coroutine runs in one
        self._running[task] = call
        try:
            async with asyncio.timeout(seconds) as time:
                return await _contained(work)
        except TimeoutError as error:
            if time.expired():
                raise _too_slow(seconds) from error
            raise _Escaped from error
        except (PluginFailed, BadResult) as error:
            raise _Escaped from error
        except asyncio.CancelledError as error:
            if task.cancelling():
                raise
            raise _Escaped from error  # this task was not cancelled: the hook raised it
        finally:
            del self._running[task]

    def _seconds_of(self, call: Call) -> float:
        return self._seconds.named.get(call.plugin, self._seconds.default)

    async def _cancel(self, task: asyncio.Task[object], call: Call) -> None:
        task.cancel()
        await asyncio.wait({task}, timeout=GRACE_SECONDS)
        if not task.done():
            self._stuck[task] = call
            log.error(
                "a cancelled hook does not end and is abandoned",
                extra={"plugin": call.plugin, "hook": call.hook, "job": call.job_id},
            )

    def _ended(self, task: asyncio.Task[object]) -> None:
        self._running.pop(task, None)
        self._stuck.pop(task, None)
        if not task.cancelled():
            task.exception()  # retrieved here: no other task may retrieve it

    def _failed(
        self, call: Call, why: str, error: BaseException | None, secrets: Collection[str]
    ) -> PluginFailed:
        log.error(
            "a plugin failed",
            extra={
                "plugin": call.plugin,
                "hook": call.hook,
                "job": call.job_id,
                "why": why,
                **({} if error is None else {"trace": _trace(error, secrets)}),
            },
        )
        slow = isinstance(error, TimeoutError)
        return PluginFailed(call.plugin, call.hook, why[:LONGEST_TEXT], slow=slow)


def _too_slow(seconds: float) -> TimeoutError:
    return TimeoutError(f"took longer than {seconds:g} s")


async def _contained(work: Callable[[], Awaitable[object]]) -> object:
    try:
        return await work()
    except (Exception, asyncio.CancelledError):
        raise
    except BaseException as error:
        # SystemExit would pass through the event loop and end the process. Other subclasses of
        # BaseException, such as a panic of Rust code, would end the task that awaits the hook.
        raise _Escaped from error


def _trace(error: BaseException, secrets: Collection[str]) -> str:
    """Return the traceback and message, bounded and without secrets."""
    try:
        said = str(error)[:LONGEST_TEXT]
    except Exception:  # noqa: BLE001 - third-party code once more
        said = "(cannot be said)"
    said = without_secrets(said, secrets)
    frames = "".join(traceback.format_tb(error.__traceback__, limit=-5))
    return f"{frames[-2000:]}{type(error).__name__}: {said}"


LATEST: Final = 1e11
"""No time is later: some thousand years from now."""


def nothing(_result: object) -> None:
    """Accept any result of a hook that has none."""


def due_time(result: object) -> float | None:
    """Return *result*, which must be unix seconds or None."""
    if result is None:
        return None
    if isinstance(result, bool) or not isinstance(result, int | float):
        raise BadResult(f"returned {kind_of(result)} instead of unix seconds or None")
    if not -LATEST <= result <= LATEST:  # NaN too
        raise BadResult("returned an invalid time")
    return float(result)


def due_times(known: Collection[str]) -> Callable[[object], dict[str, float | None]]:
    """Return a function that reads the due times of the jobs *known*, and ignores others."""

    def read(result: object) -> dict[str, float | None]:
        if not isinstance(result, Mapping):
            raise BadResult(f"returned {kind_of(result)} instead of a mapping of times by job")
        return {job_id: due_time(result[job_id]) for job_id in known if job_id in result}

    return read


def kind_of(value: object) -> str:
    """Return the type of *value*, for messages."""
    return f"a {type(value).__name__}"[:80]


FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 60.0
"""The pauses after the first failure of a hook, and after many."""


@dataclass(frozen=True, slots=True)
class RanHook:
    """A hook that a plugin has completed.

    ``due`` is the time of the next monitoring; ``before`` is the plugin's last failure.
    """

    plugin: str
    due: float | None
    before: HookFailure | None


@dataclass(slots=True, eq=False, repr=False)
class HookRecorder:
    """Records in the store which hooks have run and which have failed, as the leader."""

    store: FencedStore
    _: KW_ONLY
    clock: Callable[[], float]
    """Unix seconds."""
    tries: int = DEFAULT_TRIES
    """How often a failing hook is tried."""

    def is_due(self, failure: HookFailure) -> bool:
        """Return whether it is time to try the hook again."""
        return failure.next_at is not None and self.clock() >= failure.next_at

    async def record(
        self, job_id: str, attempt: int, *, hook: Hook, ran: Sequence[RanHook]
    ) -> None:
        """Record that these plugins' hooks are done, and the times of their next monitoring."""
        async with self.store.write() as transaction:
            plugins = [one.plugin for one in ran]
            await record_hooks(
                transaction,
                job_id,
                attempt,
                hook=hook,
                plugins=plugins,
                now=self.clock(),
            )
            for one in ran:
                if one.due is not None:
                    await set_due(transaction, job_id, one.plugin, at=one.due)
                if one.before is not None:
                    await drop_hook_failure(transaction, job_id, one.before)

    async def fail(
        self,
        job_id: str,
        attempt: int,
        failure: PluginFailed,
        *,
        hook: Hook,
        before: HookFailure | None,
    ) -> None:
        """Record another failure of the hook; after the last try it counts as ended."""
        now, tries = self.clock(), 1 + (before.tries if before is not None else 0)
        pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(tries - 1, 16))
        ends = failure.for_good or tries >= self.tries
        new = HookFailure(
            hook=hook,
            plugin=failure.plugin,
            attempt=attempt,
            tries=tries,
            error=failure.why,
            at=now,
            next_at=None if ends else now + pause,
            blocked=failure.for_good,
        )
        async with self.store.write() as transaction:
            await record_hook_failure(transaction, job_id, new)
        if ends:
            log.error(
                "a failing hook is not tried again",
                extra={"job": job_id, "plugin": new.plugin, "hook": hook, "why": new.error},
            )
