"""What Prometheus is told of a controller; no label has values that anybody else chooses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from controller.jobs.history.job_record import Happening, State
from controller.jobs.pipeline.border import Call, Result
from controller.jobs.reconcile.lifecycle.observed_state import ObservedState
from controller.jobs.reconcile.lifecycle.steps import Step, Submit, UpdateStatus
from controller.jobs.reconcile.workqueue import Reason
from controller.jobs.submission.dry_run import Answer

if TYPE_CHECKING:
    from controller.sessions.publisher import RoutePublisher
    from controller.sessions.sign_outs import Taken
    from controller.webhooks.sender import Outcome

_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200)
_HOOK_SECONDS = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10, 30)


_PUBLISHED_STEPS: Final = {
    "AbortVolcanoJob": "Stop",
    "AdoptNewerAttempt": "CatchUp",
    "ApplyCompanions": "Expose",
    "ConfirmGone": "Confirm",
    "DeletePods": "RemovePods",
    "DeleteVolcanoJob": "Remove",
    "ExpireJob": "EndOverdue",
    "IssueCommand": "Order",
    "RecordPods": "WriteDown",
    "ResetForNextAttempt": "Replace",
    "RestoreCompanions": "Restore",
    "SaveRecoveryData": "KeepForRecovery",
    "SetOutcome": "Conclude",
    "StartNextAttempt": "Renew",
    "UpdateStatus": "Note",
}
"""The published label of each step that the code calls by another name: dashboards read labels."""


class ControllerMetrics:
    """Counts what the reconciler does."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        histogram = partial(Histogram, buckets=_SECONDS, registry=registry)
        self._registry = registry
        self._steps = counter("fumarole_controller_steps", "Steps done for jobs", ["step"])
        self._enqueued = counter(
            "fumarole_controller_enqueued",
            "How often a job was enqueued to be looked at, by why",
            ["reason"],
        )
        self._failures = counter(
            "fumarole_controller_failures", "Steps that failed and are tried again", ["error"]
        )
        self._sign_outs = counter(
            "fumarole_controller_sign_outs",
            "Sign-outs that gateways passed on, by what became of them",
            ["result"],
        )
        self._submitting = histogram(
            "fumarole_controller_submit_seconds", "From a job's acceptance to its VolcanoJob"
        )
        self._starting = histogram(
            "fumarole_controller_start_seconds", "From a job's acceptance to its running"
        )

    def sign_out_taken(self, result: Taken) -> None:
        """Count a sign-out."""
        self._sign_outs.labels(result).inc()

    def watch(
        self,
        *,
        queued: Callable[[], int],
        routes: Callable[[], int],
        leads: Callable[[], bool],
        parked: Callable[[], int] = int,
        unfollowed: Callable[[], int] = int,
    ) -> None:
        """Have these read whenever somebody asks."""
        for name, text, read in (
            ("fumarole_controller_queue", "Jobs to be looked at", queued),
            ("fumarole_controller_routes", "Routes that are published", routes),
            ("fumarole_controller_leads", "1 while this process leads", leads),
            (
                "fumarole_controller_parked_jobs",
                "Jobs that this version of the controller cannot go on with",
                parked,
            ),
            (
                "fumarole_controller_unfollowed_kinds",
                "Kinds of objects that cannot be followed now",
                unfollowed,
            ),
        ):
            gauge = Gauge(name, text, registry=self._registry)
            gauge.set_function(read)

    def job_enqueued(self, reason: Reason) -> None:
        """Count that a job is to be looked at."""
        self._enqueued.labels(reason).inc()

    def step_done(self, step: Step, seen: ObservedState, *, now: float) -> None:
        """Count a step."""
        name = type(step).__name__
        self._steps.labels(_PUBLISHED_STEPS.get(name, name)).inc()
        age = max(0.0, now - seen.record.created_at)
        if isinstance(step, Submit):
            self._submitting.observe(age)
        begins = seen.record.state != State.RUNNING
        if isinstance(step, UpdateStatus) and step.happening is Happening.STARTED and begins:
            self._starting.observe(age)

    def step_failed(self, error: Exception) -> None:
        """Count a failure."""
        self._failures.labels(type(error).__name__).inc()


class HookCounts:
    """Counts calls of plugins; their names are the settings'."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._calls = Counter(
            "fumarole_controller_hooks",
            "Calls of plugins' hooks, by how they ended",
            ["plugin", "hook", "result"],
            registry=registry,
        )
        self._seconds = Histogram(
            "fumarole_controller_hook_seconds",
            "How long plugins' hooks took",
            ["plugin"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._by_hook = Histogram(
            "fumarole_controller_plugin_hook_seconds",
            "How long each hook of plugins took",
            ["plugin", "hook"],
            buckets=_HOOK_SECONDS,
            registry=registry,
        )

    def hook_ended(self, call: Call, result: Result, seconds: float) -> None:
        """Count a call."""
        self._by_hook.labels(call.plugin, call.hook).observe(seconds)
        self._calls.labels(call.plugin, call.hook, result).inc()
        self._seconds.labels(call.plugin).observe(seconds)

    def watch(self, plugins: Sequence[str], stuck: Callable[[], Mapping[str, int]]) -> None:
        """Have *stuck* read whenever somebody asks: the calls of each that do not end."""
        gauge = Gauge(
            "fumarole_controller_hooks_stuck",
            "Calls of hooks that were given up and do not end",
            ["plugin"],
            registry=self._registry,
        )

        def count(plugin: str) -> int:
            return stuck().get(plugin, 0)

        for name in plugins:
            gauge.labels(name).set_function(partial(count, name))


class WebhookCounts:
    """Counts what becomes of webhooks; names of receivers are the settings'."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._attempts = Counter(
            "fumarole_controller_webhook_attempts",
            "Attempts to send a webhook, by what became of them",
            ["receiver", "outcome"],
            registry=registry,
        )
        self._lag = Gauge(
            "fumarole_controller_webhook_lag_seconds",
            "From the last update that was accepted until it was",
            ["receiver"],
            registry=registry,
        )
        self._oldest = Gauge(
            "fumarole_controller_webhook_oldest_seconds",
            "How old the oldest update is that was not accepted",
            ["receiver"],
            registry=registry,
        )

    def attempted(self, receiver: str, outcome: Outcome) -> None:
        """Count an attempt."""
        self._attempts.labels(receiver, outcome).inc()

    def accepted_after(self, receiver: str, seconds: float) -> None:
        """Note how long an update took."""
        self._lag.labels(receiver).set(seconds)

    def watch(self, receivers: Sequence[str], oldest: Callable[[str], float]) -> None:
        """Have *oldest* read whenever somebody asks."""
        for name in receivers:
            self._oldest.labels(name).set_function(partial(oldest, name))


class LoopStalls:
    """Measures how long the event loop stood still, and which plugin was in it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._stalls = Counter(
            "fumarole_controller_loop_stalls",
            "Times that the event loop stood still for a second or longer",
            ["plugin"],
            registry=registry,
        )
        self._seconds = Counter(
            "fumarole_controller_loop_stalled_seconds",
            "For how long it did, altogether",
            registry=registry,
        )

    def loop_stalled(self, seconds: float, plugin: str) -> None:
        """Count a time that it did."""
        self._stalls.labels(plugin).inc()
        self._seconds.inc(seconds)


def count_dry_runs(registry: CollectorRegistry) -> Callable[[Answer], None]:
    """Return what counts how jobs were tried out before they were accepted."""
    answers = Counter(
        "fumarole_controller_dry_runs",
        "New jobs, by what the API server said to a dry run",
        ["answer"],
        registry=registry,
    )
    return lambda answer: answers.labels(answer).inc()


def count_metric_samples(registry: CollectorRegistry) -> Callable[[str, str], None]:
    """Return what counts how sources of pods' metrics responded: their names are fixed."""
    samples = Counter(
        "fumarole_controller_metric_samples",
        "Times that a source of pods' metrics was asked, by its result",
        ["source", "result"],
        registry=registry,
    )
    return lambda source, result: samples.labels(source, result).inc()


def make_debug_route(publisher: Callable[[], RoutePublisher | None]) -> web.RouteDef:
    """Return ``/debug/routes``: where every gateway should stand."""

    async def debug(_request: web.Request) -> web.Response:
        leading = publisher()
        return web.json_response({"leads": False} if leading is None else leading.describe())

    return web.get("/debug/routes", debug)
