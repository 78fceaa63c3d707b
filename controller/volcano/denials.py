"""Why the cluster refused a VolcanoJob, read from its answer. No I/O.

A 422 names fields. Volcano's webhook answers 400 with a text, in which the places are words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

Finding = tuple[str, str]

_DENIED: Final = re.compile(r'^admission webhook "[^"]*" denied the request:\s*')
_NAMED: Final = re.compile(r"\b(spec(?:\.[A-Za-z]+|\[[^\]]*\])+):?\s*(.*)", re.DOTALL)

WORDS: Final[tuple[tuple[re.Pattern[str], str], ...]] = tuple(
    (re.compile(pattern), path)
    for pattern, path in (
        (r"unable to find job plugin: (\S+)", "spec.plugins.{0}"),
        (r"job queue|to queue|\bqueue\b", "spec.queue"),
        (r"priorityclass|PriorityClass", "spec.priorityClassName"),
        (r"'minAvailable' should not be greater", "spec.minAvailable"),
        (r"minSuccess", "spec.minSuccess"),
        (r"duplicated task name (\S+)", "spec.tasks[{0}].name"),
        (r"(?:in|of) task: (\S+?)[,;]?(?:\s|$)", "spec.tasks[{0}]"),
        (r"dependsOn|DAG|cycl", "spec.tasks"),
        (r"polic(?:y|ies)|exitCode|event", "spec.policies"),
        (r"networkTopology|highestTier", "spec.networkTopology"),
        (r"exceeded quota|quota", "spec.tasks"),
    )
)
"""Where what a text talks about is; the first that fits."""


def findings_of(message: str, details: Mapping[str, Any]) -> list[Finding]:
    """Return what is wrong with a VolcanoJob that was refused, each with its path, if any."""
    causes = [cause for cause in details.get("causes") or () if isinstance(cause, Mapping)]
    if named := [_of_cause(cause) for cause in causes if cause.get("field")]:
        return named
    plain = _DENIED.sub("", message).strip().rstrip(";.")
    if match := _NAMED.search(plain):
        return [(match[1], match[2].strip() or plain)]
    for pattern, path in WORDS:
        if match := pattern.search(plain):
            return [(path.format(*match.groups()), plain)]
    return [("", plain)]


def _of_cause(cause: Mapping[str, Any]) -> Finding:
    return str(cause["field"]), str(cause.get("message") or cause.get("reason") or "is refused")
