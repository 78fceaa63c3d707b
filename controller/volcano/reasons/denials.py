"""Why the API server refused a VolcanoJob, read from its response. No I/O.

A 422 names fields in its causes. A denial of a webhook is a sentence; Volcano's has several, each
ending in a semicolon, with places as words. A message is kept as it is, except the prefix that
names the reporter, and a path at its beginning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from shared.text import plain_text

Finding = tuple[str, str]

_LONGEST: Final = 2000
"""The limit of one cause, in characters."""
_MOST_READ: Final = 1 << 16
"""Anybody can write a webhook, so its messages are bounded."""

_DENIED: Final = re.compile(r'^admission webhook "([^"]*)" denied the request(?::\s*|\s*$)')
_WRAPPERS: Final = tuple(
    re.compile(pattern)
    for pattern in (
        r'^\S+ "[^"]*" is (?:invalid|forbidden):\s*',
        r"^\w+ '[^']*' with binding '[^']*' denied request:\s*",
        r'^\w+ in version "[^"]*" cannot be handled as an? \w+:\s*',
        r"^strict decoding error:\s*",
        r"^json:\s*",
    )
)
"""Prefixes that name the reporter and the VolcanoJob; callers know only the job."""

_STRICT: Final = re.compile(r'\b(unknown|duplicate) field "([^"]+)"')
_OF_VOLCANO: Final = ".volcano.sh"
_PLACE: Final = r"(?:spec|metadata)(?:\.[A-Za-z]+|\[[^\]]*\])+"
_LED_BY: Final = re.compile(rf"^({_PLACE}):\s+(.+)$", re.DOTALL)
"""A path at the beginning, as ``field.Error`` of apimachinery writes it."""
_NAMES: Final = re.compile(rf"(?<![\w.])({_PLACE})")
_OF_GO: Final = re.compile(r"Go struct field \w+\.([\w.]+) of type")
_NO_PATHS: Final = frozenset({"", "[]", "<nil>", "<root>"})
_UNCHECKED: Final = "some validation rules were not checked"
"""The text that a server appends to the causes."""

_ERRORS: Final = re.compile(r"^\d+ errors? occurred:\s*\n")
_BULLET: Final = re.compile(r"^\s*\* ", re.MULTILINE)
_VALID_ONES: Final = re.compile(r",?\s*valid (?:events|actions) are \[[^\]]*\]")
"""Volcano's webhook appends all resources, in a different order each time."""
_SENTENCE: Final = re.compile(r'(?:"(?:[^"\\]|\\.)*"|[^;])+')
"""Up to a semicolon that is not within a quoted value."""
_NEXT_OF_TEMPLATE: Final = re.compile(r"\.\s+(?=template\.[\w.\[\]]+: )")
_TASK: Final = re.compile(r"^(spec\.tasks?\[[^\]]*\])\.template\.")


def _patterns(*rows: tuple[str, str]) -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(pattern), path) for pattern, path in rows)


_SAYINGS: Final = _patterns(
    (r"unable to find job plugin: (\S+)", "spec.plugins.{0}"),
    (r"specified (\S+) master task", "spec.plugins.{0}"),
    (r"integer in spec\.tasks?\[(\d+)\]", "spec.tasks[{0}].topologyPolicy"),
    (r"spec\.tasks?\[(\d+)\] isn't Guaranteed", "spec.tasks[{0}].topologyPolicy"),
    (r"^create (?:pod|job) with name", "metadata.name"),
    (r"duplicated task name (\S+)", "spec.tasks[{0}].name"),
    (r"\b(?:in|of) task: (\S+?)[,;]?(?:\s|$)", "spec.tasks[{0}]"),
)
"""Sentences of Volcano's webhook that name a part of the VolcanoJob."""

_WORDS: Final = _patterns(
    (r"job queue|to queue|\bqueue\b", "spec.queue"),
    (r"priorityclass|PriorityClass", "spec.priorityClassName"),
    (r"'minAvailable' (?:should|must) not be greater", "spec.minAvailable"),
    (r"minSuccess", "spec.minSuccess"),
    (r"dependsOn|DAG|cycl", "spec.tasks"),
    (r"polic(?:y|ies)|exitCode|\bevent\b|error code", "spec.policies"),
    (r"networkTopology|highestTier", "spec.networkTopology"),
)
"""Words of Volcano's webhook, for sentences without a place; the first that matches."""

_QUOTA: Final = re.compile(r"^(?:exceeded|failed) quota: ")


def findings_of(message: str, details: Mapping[str, Any]) -> list[Finding]:
    """Return what is wrong with a refused VolcanoJob, each with its path, if any."""
    if causes := list(_of_causes(details)):
        return causes
    if fields := _STRICT.findall(message[:_MOST_READ]):
        return [(path, _of_strict(word)) for word, path in fields]
    denied = _DENIED.match(message)
    if denied is not None and denied[1].endswith(_OF_VOLCANO):
        return _of_volcano(message[denied.end() : _MOST_READ]) or [("", message)]
    return [_placed(sentence_of(message))]


def sentence_of(message: str) -> str:
    """Return the message without the reporter; the whole message if nothing else is left."""
    found = _DENIED.sub("", message[:_MOST_READ], count=1)
    for wrapper in _WRAPPERS:
        found = wrapper.sub("", found, count=1)
    return found.strip() or message


def _of_causes(details: Mapping[str, Any]) -> Iterator[Finding]:
    causes = details.get("causes")
    for cause in causes if isinstance(causes, list) else ():
        if not isinstance(cause, Mapping):
            continue
        path = plain_text(cause.get("field"), _LONGEST)
        text = plain_text(cause.get("message") or cause.get("reason") or "is refused", _LONGEST)
        # A cause without a field repeats the message: the denial of a policy.
        if path and not text.startswith(_UNCHECKED):
            yield "" if path in _NO_PATHS else path, text


def _of_strict(word: str) -> str:
    return "the cluster does not know this" if word == "unknown" else "is given twice"


def _of_volcano(said: str) -> list[Finding]:
    return [_of_words(text) for part in _SENTENCE.findall(said) for text in _texts_in(part)]


def _texts_in(part: str) -> Iterator[str]:
    """Yield the statements in one part of a denial: a sentence, a list, or a pod's errors."""
    part = _VALID_ONES.sub("", part).strip()
    if match := _ERRORS.match(part):
        part = part[match.end() :]
        texts = _BULLET.split(part)
    else:
        texts = _NEXT_OF_TEMPLATE.split(part)
        if match := _TASK.match(part):
            texts[1:] = [f"{match[1]}.{text}" for text in texts[1:]]
    yield from (text for one in texts if (text := one.strip().removesuffix(".").strip()))


def _of_words(text: str) -> Finding:
    text = sentence_of(text)
    if path := _first(_SAYINGS, text):
        return path, text
    path, said = _placed(text)
    return path or _first(_WORDS, said), said


def _first(rows: tuple[tuple[re.Pattern[str], str], ...], text: str) -> str:
    for pattern, path in rows:
        if match := pattern.search(text):
            return path.format(*match.groups())
    return ""


def _placed(text: str) -> Finding:
    if match := _LED_BY.match(text):
        return match[1], match[2]
    if _QUOTA.match(text):
        return "metadata.namespace", text
    if match := _OF_GO.search(text) or _NAMES.search(text):
        return match[1], text
    return "", text
