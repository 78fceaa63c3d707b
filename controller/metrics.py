"""Prometheus metrics of a controller; no label has values that clients choose."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from controller.jobs.history.job_record import JobEvent, State
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
"""The published label of each step whose class has another name: dashboards read labels."""


class ControllerMetrics:
    """Metrics of the reconciler."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        histogram = partial(Histogram, buckets=_SECONDS, registry=registry)
        self._registry = registry
        self._steps = counter("fumarole_controller_steps", "Completed steps of jobs", ["step"])
        self._enqueued = counter(
            "fumarole_controller_enqueued",
            "Jobs added to the work queue, by reason",
            ["reason"],
        )
        self._failures = counter(
            "fumarole_controller_failures", "Failed steps, which are retried, by error", ["error"]
        )
        self._sign_outs = counter(
            "fumarole_controller_sign_outs",
            "Sign-outs from gateways, by result",
            ["result"],
        )
        self._submitting = histogram(
            "fumarole_controller_submit_seconds",
            "Seconds from a job's acceptance to its VolcanoJob",
        )
        self._starting = histogram(
            "fumarole_controller_start_seconds", "Seconds from a job's acceptance to its first run"
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
        """Register gauges whose values these functions return."""
        for name, text, read in (
            ("fumarole_controller_queue", "Jobs in the work queue", queued),
            ("fumarole_controller_routes", "Published routes", routes),
            ("fumarole_controller_leads", "1 while this process leads", leads),
            (
                "fumarole_controller_parked_jobs",
                "Jobs that this version of the controller cannot process",
                parked,
            ),
            (
                "fumarole_controller_unfollowed_kinds",
                "Kinds of objects that cannot be watched now",
                unfollowed,
            ),
        ):
            gauge = Gauge(name, text, registry=self._registry)
            gauge.set_function(read)

    def job_enqueued(self, reason: Reason) -> None:
        """Count an addition to the work queue."""
        self._enqueued.labels(reason).inc()

    def step_done(self, step: Step, seen: ObservedState, *, now: float) -> None:
        """Count a completed step."""
        name = type(step).__name__
        self._steps.labels(_PUBLISHED_STEPS.get(name, name)).inc()
        age = max(0.0, now - seen.record.created_at)
        if isinstance(step, Submit):
            self._submitting.observe(age)
        begins = seen.record.state != State.RUNNING
        if isinstance(step, UpdateStatus) and step.event is JobEvent.STARTED and begins:
            self._starting.observe(age)

    def step_failed(self, error: Exception) -> None:
        """Count a failed step."""
        self._failures.labels(type(error).__name__).inc()


class HookCounts:
    """Metrics of plugins' hooks; the plugins' names come from the settings."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._calls = Counter(
            "fumarole_controller_hooks",
            "Calls of plugins' hooks, by result",
            ["plugin", "hook", "result"],
            registry=registry,
        )
        self._seconds = Histogram(
            "fumarole_controller_hook_seconds",
            "Seconds per hook call, by plugin",
            ["plugin"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._by_hook = Histogram(
            "fumarole_controller_plugin_hook_seconds",
            "Seconds per hook call, by plugin and hook",
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
        """Register the gauge of calls that do not end, which *stuck* returns by plugin."""
        gauge = Gauge(
            "fumarole_controller_hooks_stuck",
            "Hook calls that exceeded their deadline and still run",
            ["plugin"],
            registry=self._registry,
        )

        def count(plugin: str) -> int:
            return stuck().get(plugin, 0)

        for name in plugins:
            gauge.labels(name).set_function(partial(count, name))


class WebhookCounts:
    """Metrics of webhooks; the receivers' names come from the settings."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._attempts = Counter(
            "fumarole_controller_webhook_attempts",
            "Attempts to send a webhook, by outcome",
            ["receiver", "outcome"],
            registry=registry,
        )
        self._lag = Gauge(
            "fumarole_controller_webhook_lag_seconds",
            "Seconds from the last accepted update to its acceptance",
            ["receiver"],
            registry=registry,
        )
        self._oldest = Gauge(
            "fumarole_controller_webhook_oldest_seconds",
            "Age in seconds of the oldest update that was not accepted",
            ["receiver"],
            registry=registry,
        )

    def attempted(self, receiver: str, outcome: Outcome) -> None:
        """Count an attempt."""
        self._attempts.labels(receiver, outcome).inc()

    def accepted_after(self, receiver: str, seconds: float) -> None:
        """Set the delay of the last accepted update."""
        self._lag.labels(receiver).set(seconds)

    def watch(self, receivers: Sequence[str], oldest: Callable[[str], float]) -> None:
        """Register the gauge of the oldest update's age, which *oldest* returns."""
        for name in receivers:
            self._oldest.labels(name).set_function(partial(oldest, name))


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


def count_dry_runs(registry: CollectorRegistry) -> Callable[[Answer], None]:
    """Return a function that counts dry runs of new jobs by their result."""
    answers = Counter(
        "fumarole_controller_dry_runs",
        "Dry runs of new jobs, by result",
        ["answer"],
        registry=registry,
    )
    return lambda answer: answers.labels(answer).inc()


def count_metric_samples(registry: CollectorRegistry) -> Callable[[str, str], None]:
    """Return a function that counts samples by source, whose names are fixed, and by result."""
    samples = Counter(
        "fumarole_controller_metric_samples",
        "Reads of sources of pod metrics, by result",
        ["source", "result"],
        registry=registry,
    )
    return lambda source, result: samples.labels(source, result).inc()


def make_debug_route(publisher: Callable[[], RoutePublisher | None]) -> web.RouteDef:
    """Return ``/debug/routes``: the position that every gateway should have reached."""

    async def debug(_request: web.Request) -> web.Response:
        leading = publisher()
        return web.json_response({"leads": False} if leading is None else leading.describe())

    return web.get("/debug/routes", debug)
