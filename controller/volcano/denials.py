"""Why the cluster refused a VolcanoJob, read from its answer. No I/O.

A 422 names fields. Volcano's webhook answers 400 with a text, in which the places are words and
each problem ends in a semicolon.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

Finding = tuple[str, str]

_DENIED: Final = re.compile(r'^admission webhook "([^"]*)" denied the request:\s*')
_FORBIDDEN: Final = re.compile(
    r"^\S+ \"[^\"]*\" is forbidden:\s*(?:\w+ '[^']*' with binding '[^']*' denied request:\s*)?"
)
_UNKNOWN: Final = re.compile(r'unknown field "([^"]+)"')
_OF_VOLCANO: Final = ".volcano.sh"
_NAMED: Final = re.compile(r"\b(spec(?:\.[A-Za-z]+|\[[^\]]*\])+):?\s*(.*)", re.DOTALL)

WORDS: Final[tuple[tuple[re.Pattern[str], str], ...]] = tuple(
    (re.compile(pattern), path)
    for pattern, path in (
        # First of all: what follows may name anything, such as a job that is called "event".
        (r"^(?:exceeded|failed) quota: ", "metadata.namespace"),
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
    )
)
"""Where what a text talks about is; the first that fits."""


def findings_of(message: str, details: Mapping[str, Any]) -> list[Finding]:
    """Return what is wrong with a VolcanoJob that was refused, each with its path, if any."""
    causes = [cause for cause in details.get("causes") or () if isinstance(cause, Mapping)]
    if named := [_of_cause(cause) for cause in causes if cause.get("field")]:
        return named
    if unknown := _UNKNOWN.findall(message):
        return [(path, "the cluster does not know this") for path in unknown]
    return [_of_text(text) for text in _texts_of(message)]


def _texts_of(message: str) -> list[str]:
    """Return what is said, one text for each problem, without who says it."""
    denied = _DENIED.match(message)
    if denied is None:
        return [_FORBIDDEN.sub("", message).strip()]
    said = message[denied.end() :]
    parts = said.split(";") if denied[1].endswith(_OF_VOLCANO) else [said]
    texts = [part.strip(" ;.\n") for part in parts]
    return [text for text in texts if text] or [message]


def _of_text(text: str) -> Finding:
    if match := _NAMED.search(text):
        return match[1], match[2].strip() or text
    for pattern, path in WORDS:
        if match := pattern.search(text):
            return path.format(*match.groups()), text
    return "", text


def _of_cause(cause: Mapping[str, Any]) -> Finding:
    return str(cause["field"]), str(cause.get("message") or cause.get("reason") or "is refused")
