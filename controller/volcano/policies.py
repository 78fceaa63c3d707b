"""Volcano's retry policies: their meaning for a job, and their arithmetic.

The policies of a task precede those of the job, and the first that applies decides (``deciding``).
``max_retry`` of a job is how often it may be restarted. Volcano's ``maxRetry`` also counts the
first start, and treats 0 as 3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, get_args

Event: TypeAlias = Literal["*", "PodFailed", "PodEvicted", "PodPending", "Unknown", "TaskCompleted"]
"""The triggers of policies.

``JobUpdated`` is missing, since Volcano never emits it. ``TaskFailed`` is missing, since it counts
containers that were restarted within their pod, which never happens here.
"""

Action: TypeAlias = Literal[
    "AbortJob", "RestartJob", "RestartTask", "RestartPod", "TerminateJob", "CompleteJob"
]
EVENTS: Final[tuple[str, ...]] = get_args(Event)
ACTIONS: Final[tuple[str, ...]] = get_args(Action)
RESTARTS: Final = frozenset({"RestartJob", "RestartTask", "RestartPod"})
"""Actions that use up a retry."""

DEFAULT_RETRIES: Final = 3
"""The restarts of a job that names no number: Volcano's own default."""

_NEEDS_TIMEOUT: Final = "PodPending"
_ANY: Final = "*"

REASONS: Final = MappingProxyType(
    {
        "*": "anything happens",
        "PodFailed": "a pod failed",
        "PodEvicted": "a pod was deleted by somebody else",
        "PodPending": "a pod waited too long",
        "Unknown": "some pods run and others cannot be placed",
        "TaskCompleted": "all pods of a task succeeded",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A policy in the form that Volcano has: an event or an exit code, and an action."""

    action: str
    event: str | None = None
    exit_code: int | None = None
    timeout_seconds: int | None = None

    def manifest(self) -> dict[str, object]:
        """Return the JSON."""
        found: dict[str, object] = {"action": self.action}
        if self.event is not None:
            found["event"] = self.event
        if self.exit_code is not None:
            found["exitCode"] = self.exit_code
        if self.timeout_seconds is not None:
            found["timeout"] = f"{self.timeout_seconds}s"
        return found

    def fits(self, event: str, exit_code: int | None) -> bool:
        """Return whether *event*, with the exit code of the failed program, triggers it."""
        if event == _NEEDS_TIMEOUT and self.timeout_seconds is None:
            return False  # every pod is pending at first
        if self.exit_code is not None:
            return event == "PodFailed" and exit_code == self.exit_code
        return self.event in (event, _ANY)


def volcano_max_retry(max_retry: int | None, rules: Iterable[Rule]) -> int:
    """Return Volcano's ``maxRetry`` for a job that may be restarted *max_retry* times."""
    return retries(max_retry, rules) + 1


def retries(max_retry: int | None, rules: Iterable[Rule]) -> int:
    """Return how often the job is restarted at most."""
    if max_retry is not None:
        return max_retry
    return DEFAULT_RETRIES if any(rule.action in RESTARTS for rule in rules) else 0


def deciding(
    event: str, exit_code: int | None, *, of_task: Sequence[Rule], of_job: Sequence[Rule]
) -> Rule | None:
    """Return the policy that decides what follows *event*; None without one."""
    for rule in (*of_task, *of_job):
        if rule.fits(event, exit_code):
            return rule
    return None


def _overlap(one: Rule, other: Rule) -> bool:
    """Return whether some event triggers both."""
    if one.exit_code is not None and other.exit_code is not None:
        return one.exit_code == other.exit_code
    if one.exit_code is not None or other.exit_code is not None:
        return {one.event, other.event} & {"PodFailed", _ANY} != set()
    if _NEEDS_TIMEOUT in (one.event, other.event):
        return all(rule.event in (_NEEDS_TIMEOUT, _ANY) and rule.timeout_seconds is not None
                   for rule in (one, other))  # fmt: skip
    return one.event == other.event or _ANY in (one.event, other.event)


def carried_out_here(lists: Sequence[Sequence[Rule]]) -> list[Rule]:
    """Return those of a job's policies that Volcano is not given; the last list is the job's own.

    These are policies with a timeout: Volcano 1.15 runs them beside its worker, and then overwrites
    or loses the status. They are also policies that such a policy precedes, if an event triggers
    both: Volcano would apply the second at once.
    """
    *of_tasks, of_job = lists
    found = [rule for rules in of_tasks for rule in _carried_out_here(rules, ())]
    return found + _carried_out_here(of_job, found)


def _carried_out_here(rules: Sequence[Rule], before: Sequence[Rule]) -> list[Rule]:
    found: list[Rule] = []
    for rule in rules:
        if rule.timeout_seconds is not None or any(
            _overlap(rule, one) for one in (*before, *found)
        ):
            found.append(rule)
    return found


def is_among(rule: Rule, rules: Iterable[Rule]) -> bool:
    """Return whether *rule* itself is one of *rules*; an equal one of another list is not."""
    return any(rule is one for one in rules)


def problems_of(rules: Sequence[Rule]) -> Iterator[tuple[int, str]]:
    """Find problems that Volcano refuses in one list of policies, by index."""
    events = Counter(rule.event for rule in rules if rule.event is not None)
    codes = Counter(rule.exit_code for rule in rules if rule.exit_code is not None)
    for index, rule in enumerate(rules):
        if rule.event is not None and rule.exit_code is not None:
            yield index, "an event and an exit code exclude each other"
        if rule.event is None and rule.exit_code is None:
            yield index, "an event or an exit code is needed"
        if rule.event is not None and rule.event not in EVENTS:
            yield index, f"there is no event {rule.event}"
        if rule.action not in ACTIONS:
            yield index, f"there is no action {rule.action}"
        if rule.exit_code == 0:
            yield index, "an exit code of 0 is no failure"
        if events[rule.event or ""] > 1 or codes[rule.exit_code or 0] > 1:
            yield index, "another policy has the same trigger"
        if rule.event == _ANY and len(rules) > 1:
            yield index, "a policy for * must be the only one"
        if rule.event == _NEEDS_TIMEOUT and rule.timeout_seconds is None:
            yield index, "without timeout_seconds, PodPending never happens"
